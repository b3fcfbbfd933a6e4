"""Names that Volcano defines. Its group annotation has Kubernetes' domain, since its PodGroup once was kube-batch's."""

VOLCANO_API_VERSION = "scheduling.volcano.sh/v1beta1"
VOLCANO_JOB_API_VERSION = "batch.volcano.sh/v1alpha1"

# Annotations of pods
VOLCANO_GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
VOLCANO_QUALIFIED_GROUP_ANNOTATION = "scheduling.volcano.sh/group-name"
VOLCANO_QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
"""Of pods that no Job of Volcano's makes."""
VOLCANO_JOB_QUEUE = "volcano.sh/queue-name"
"""A label and an annotation of the pods of its Jobs."""
VOLCANO_TASK_LABEL = "volcano.sh/task-spec"

VOLCANO_DEFAULT_QUEUE = "default"
VOLCANO_JOB_KIND = "Job.batch.volcano.sh"
"""Its Job is called like Kubernetes' own; kubectl tells them apart so."""
