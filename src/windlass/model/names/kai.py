"""Names that KAI-Scheduler defines (and Run:ai before it). Windlass reads them so that objects written for KAI work."""

KAI_QUEUE_API_VERSION = "scheduling.run.ai/v2"
KAI_POD_GROUP_API_VERSION = "scheduling.run.ai/v2alpha2"
KAI_TOPOLOGY_API_VERSION = "kai.scheduler/v1alpha1"

# Labels of pods and their owners
KAI_QUEUE_LABEL = "kai.scheduler/queue"
KAI_OLD_QUEUE_LABEL = "runai/queue"
KAI_PREEMPTIBILITY_LABEL = "kai.scheduler/preemptibility"
KAI_SUB_GROUP_LABEL = "kai.scheduler/subgroup-name"

# Annotations of pods and their owners
KAI_BATCH_MIN_MEMBER_ANNOTATION = "kai.scheduler/batch-min-member"
"""Of a Job: how many of its pods start together."""
KAI_FRACTION = "gpu-fraction"
KAI_FRACTION_CONTAINER = "gpu-fraction-container-name"
"""Which container has the share; the first one, if it is not given."""
KAI_FRACTION_DEVICES = "gpu-fraction-num-devices"
KAI_GROUP_ANNOTATION = "pod-group-name"
KAI_MEMORY = "gpu-memory"
KAI_PREFERRED_TOPOLOGY_ANNOTATION = "kai.scheduler/topology-preferred-placement"
KAI_REQUIRED_TOPOLOGY_ANNOTATION = "kai.scheduler/topology-required-placement"

NON_PREEMPTIBLE_PRIORITY = 100
"""Work of this priority or more is not preempted, unless it says otherwise."""
