"""Names that Kubernetes itself defines. The API server, the kubelet and kube-scheduler read and write them."""

# API versions
APPS_API_VERSION = "apps/v1"
BATCH_API_VERSION = "batch/v1"
COORDINATION_API_VERSION = "coordination.k8s.io/v1"
EVENTS_API_VERSION = "events.k8s.io/v1"
META_API_VERSION = "meta.k8s.io/v1"
POD_GROUP_API_VERSION = "scheduling.k8s.io/v1beta1"
POLICY_API_VERSION = "policy/v1"
SCHEDULING_API_VERSION = "scheduling.k8s.io/v1"
STORAGE_API_VERSION = "storage.k8s.io/v1"

DEFAULT_SCHEDULER_NAME = "default-scheduler"
"""Of pods that name none; kube-scheduler's, unless another one took it."""

# Node labels
ARCH_LABEL = "kubernetes.io/arch"
HOSTNAME_LABEL = "kubernetes.io/hostname"
INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
OS_LABEL = "kubernetes.io/os"
REGION_LABEL = "topology.kubernetes.io/region"
ZONE_LABEL = "topology.kubernetes.io/zone"
# Deprecated since Kubernetes 1.17; old volumes and manifests still have them.
BETA_INSTANCE_TYPE_LABEL = "beta.kubernetes.io/instance-type"
BETA_REGION_LABEL = "failure-domain.beta.kubernetes.io/region"
BETA_ZONE_LABEL = "failure-domain.beta.kubernetes.io/zone"

# Node taints
DISK_PRESSURE_TAINT = "node.kubernetes.io/disk-pressure"
MEMORY_PRESSURE_TAINT = "node.kubernetes.io/memory-pressure"
NETWORK_UNAVAILABLE_TAINT = "node.kubernetes.io/network-unavailable"
NODE_TAINT_PREFIX = "node.kubernetes.io/"
"""Taints for the condition of a node: no workload should tolerate them to get a GPU."""
NOT_READY_TAINT = "node.kubernetes.io/not-ready"
PID_PRESSURE_TAINT = "node.kubernetes.io/pid-pressure"
UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"
UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"

# Labels of other objects
APP_COMPONENT_LABEL = "app.kubernetes.io/component"
APP_MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
APP_NAME_LABEL = "app.kubernetes.io/name"
JOB_CONTROLLER_UID_LABEL = "batch.kubernetes.io/controller-uid"
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
"""The API server puts it on every namespace."""
POD_TEMPLATE_HASH_LABEL = "pod-template-hash"
POD_SECURITY_ENFORCE_LABEL = "pod-security.kubernetes.io/enforce"

# Annotations
BIND_COMPLETED_ANNOTATION = "pv.kubernetes.io/bind-completed"
"""The volume controller has confirmed that a claim is bound."""
DEFAULT_STORAGE_CLASS_ANNOTATION = "storageclass.kubernetes.io/is-default-class"
LAST_APPLIED_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
"""Written by `kubectl apply` without `--server-side`."""
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""On a mirror pod, the API object of a kubelet's static pod."""
SELECTED_NODE_ANNOTATION = "volume.kubernetes.io/selected-node"
STORAGE_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
"""Of claims and volumes; older than `storageClassName`, and still before it."""

NATIVE_RESOURCE_DOMAIN = "kubernetes.io/"
"""A resource name that contains it is Kubernetes' own; any other name with a slash is an extended resource."""
