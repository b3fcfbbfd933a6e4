"""Names that Kueue defines. Windlass reads them so that objects written for Kueue work unchanged."""

KUEUE_PREFIX = "kueue.x-k8s.io/"
KUEUE_API_VERSION = "kueue.x-k8s.io/v1beta2"
KUEUE_CONFIG_API_VERSION = "config.kueue.x-k8s.io/v1beta2"

# A label or an annotation of pods
KUEUE_POD_GROUP_NAME = "kueue.x-k8s.io/pod-group-name"

# Labels of pods, Jobs and other owners
MAX_EXEC_TIME_LABEL = "kueue.x-k8s.io/max-exec-time-seconds"
POD_SET_LABEL = "kueue.x-k8s.io/podset"
PREBUILT_WORKLOAD_LABEL = "kueue.x-k8s.io/prebuilt-workload-name"
QUEUE_NAME_LABEL = "kueue.x-k8s.io/queue-name"
WORKLOAD_PRIORITY_CLASS_LABEL = "kueue.x-k8s.io/priority-class"

# Annotations
ADMISSION_GATED_BY_ANNOTATION = "kueue.x-k8s.io/admission-gated-by"
COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION = "kueue.x-k8s.io/job-completions-equal-parallelism"
ELASTIC_JOB_ANNOTATION = "kueue.x-k8s.io/elastic-job"
MIN_PARALLELISM_ANNOTATION = "kueue.x-k8s.io/job-min-parallelism"
POD_GROUP_TOTAL_COUNT_ANNOTATION = "kueue.x-k8s.io/pod-group-total-count"
POD_SET_GROUP_ANNOTATION = "kueue.x-k8s.io/podset-group-name"
PREFERRED_TOPOLOGY_ANNOTATION = "kueue.x-k8s.io/podset-preferred-topology"
REQUIRED_TOPOLOGY_ANNOTATION = "kueue.x-k8s.io/podset-required-topology"
SLICE_CONSTRAINTS_ANNOTATION = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
SLICE_REQUIRED_TOPOLOGY_ANNOTATION = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE_ANNOTATION = "kueue.x-k8s.io/podset-slice-size"
STOPPING_ANNOTATION = "kueue.x-k8s.io/stopping"
TOPOLOGY_PREFIX = "kueue.x-k8s.io/podset-"
UNCONSTRAINED_TOPOLOGY_ANNOTATION = "kueue.x-k8s.io/podset-unconstrained-topology"
WORKLOAD_ANNOTATION = "kueue.x-k8s.io/workload"
