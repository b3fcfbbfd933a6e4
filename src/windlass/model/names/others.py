"""Names of other schedulers, workload controllers, clouds and device vendors."""

# The coscheduling plugin of kubernetes-sigs/scheduler-plugins; the older label is still accepted.
COSCHEDULING_API_VERSION = "scheduling.x-k8s.io/v1alpha1"
COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
COSCHEDULING_OLD_LABEL = "pod-group.scheduling.sigs.k8s.io"
COSCHEDULING_LABELS = (COSCHEDULING_LABEL, COSCHEDULING_OLD_LABEL)

# Controllers that make pods
APP_WRAPPER_API_VERSION = "workload.codeflare.dev/v1beta2"
JOBSET_API_VERSION = "jobset.x-k8s.io/v1alpha2"
JOBSET_EXCLUSIVE_ANNOTATION = "alpha.jobset.sigs.k8s.io/exclusive-topology"
KUBEFLOW_API_VERSION = "kubeflow.org/v1"
KUBEFLOW_REPLICA_TYPE_LABEL = "training.kubeflow.org/replica-type"
LEADER_WORKER_SET_API_VERSION = "leaderworkerset.x-k8s.io/v1"
LWS_EXCLUSIVE_ANNOTATION = "leaderworkerset.sigs.k8s.io/exclusive-topology"
LWS_SUBGROUP_EXCLUSIVE_ANNOTATION = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"
MPI_JOB_API_VERSION = "kubeflow.org/v2beta1"
RAY_API_VERSION = "ray.io/v1"
SPARK_API_VERSION = "sparkoperator.k8s.io/v1beta2"
TRAINJOB_STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
TRAINER_API_VERSION = "trainer.kubeflow.org/v1alpha1"

# Alibaba's production trace of 2023 (openb): annotations of pods, labels and resources of nodes
ALIBABA_MODEL = "alibabacloud.com/gpu-card-model"
"""On a pod the models it may use, with | between them; on a node its model."""
ALIBABA_COUNT = "alibabacloud.com/gpu-count"
ALIBABA_MILLI = "alibabacloud.com/gpu-milli"

# Clouds: node labels for the place in the network, widest first
AWS_NETWORK_LAYER_1_LABEL = "topology.k8s.aws/network-node-layer-1"
AWS_NETWORK_LAYER_2_LABEL = "topology.k8s.aws/network-node-layer-2"
AWS_NETWORK_LAYER_3_LABEL = "topology.k8s.aws/network-node-layer-3"
GCE_TOPOLOGY_BLOCK_LABEL = "cloud.google.com/gce-topology-block"
GCE_TOPOLOGY_SUBBLOCK_LABEL = "cloud.google.com/gce-topology-subblock"
# The keys of the examples in Kueue's guides, which many clusters copied as they are.
PROVIDER_TOPOLOGY_BLOCK_LABEL = "cloud.provider.com/topology-block"
PROVIDER_TOPOLOGY_RACK_LABEL = "cloud.provider.com/topology-rack"

# Node Feature Discovery: the node has a PCI device of vendor 10de (NVIDIA); 0300 is VGA, 0302 a 3D controller
NFD_NVIDIA_3D_LABEL = "feature.node.kubernetes.io/pci-0302_10de.present"
NFD_NVIDIA_LABEL = "feature.node.kubernetes.io/pci-10de.present"
NFD_NVIDIA_VGA_LABEL = "feature.node.kubernetes.io/pci-0300_10de.present"

# Other device vendors, and the Container Device Interface
AMD_GPU_RESOURCE = "amd.com/gpu"
CDI_ANNOTATION_PREFIX = "cdi.k8s.io/"
