"""Names of NVIDIA's device plugin, GPU Feature Discovery, MIG manager and GPU operator."""

NVIDIA_PREFIX = "nvidia.com/"

# Extended resources
GPU_RESOURCE = "nvidia.com/gpu"
MIG_RESOURCE_PREFIX = "nvidia.com/mig-"
SHARED_GPU_RESOURCE = "nvidia.com/gpu.shared"

# Node labels that GPU Feature Discovery writes
GPU_CLIQUE_LABEL = "nvidia.com/gpu.clique"
GPU_COUNT_LABEL = "nvidia.com/gpu.count"
GPU_MEMORY_LABEL = "nvidia.com/gpu.memory"
GPU_PRESENT_LABEL = "nvidia.com/gpu.present"
GPU_PRODUCT_LABEL = "nvidia.com/gpu.product"
GPU_REPLICAS_LABEL = "nvidia.com/gpu.replicas"
MIG_STRATEGY_LABEL = "nvidia.com/mig.strategy"
SHARING_STRATEGY_LABEL = "nvidia.com/gpu.sharing-strategy"

# Node labels that choose or report a configuration
DEPLOY_LABEL_PREFIX = "nvidia.com/gpu.deploy."
DEVICE_PLUGIN_CONFIG_LABEL = "nvidia.com/device-plugin.config"
MIG_CONFIG_LABEL = "nvidia.com/mig.config"
MIG_CONFIG_STATE_LABEL = "nvidia.com/mig.config.state"

# Node labels of NVIDIA's topograph
NETWORK_ACCELERATOR_LABEL = "network.topology.nvidia.com/accelerator"
NETWORK_BLOCK_LABEL = "network.topology.nvidia.com/block"
NETWORK_SPINE_LABEL = "network.topology.nvidia.com/spine"
