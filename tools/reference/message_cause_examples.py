"""Values of the placeholders in sentences of `why` about single layers, for `message_examples`."""

from __future__ import annotations

SOLD_OUT = "ZonalAllocationFailed: no such machine in zone 2"
NOT_ALLOWED = "You are not authorized to perform this operation"
CLAIM, POD, CLASS = "ResourceClaim team/train-0-gpus", "Pod team/train-0", "EC2NodeClass gpu"
CONFIG = "ConfigMap kueue-system/kueue-manager-config"
NO_SUBNET = "SubnetsNotFound: SubnetSelector did not match any Subnets"
NO_CLUSTER = "No worker clusters are reachable"
CAUSE_VALUES: dict[str, tuple[str, ...]] = {
    "its pods are ready, and ⟦item⟧ is not": ("RayService team/llm", "ModuleNotFoundError: No module named 'vllm'"),
    "⟦pod⟧ runs, but has not been ready for ⟦since⟧: ": (
        "Pod team/serve-0",
        "2h",
        "Readiness probe failed: statuscode 503",
    ),
    "⟦pool⟧ is not ready, so that": ("NodePool gpu", NO_SUBNET),
    "⟦pool⟧, of ⟦node_class⟧, is not ready": ("NodePool gpu", CLASS, NO_SUBNET),
    "⟦pool⟧ is not ready, so that no machine of it is started: it does": ("NodePool gpu",),
    "⟦pool⟧, of ⟦node_class⟧, is not ready, so that no machine of it is started: it does": ("NodePool gpu", CLASS),
    "the cloud provider refuses the machine of ⟦claim⟧": ("NodeClaim gpu-x7k2p", NOT_ALLOWED),
    "the cloud provider does not start the machine of ⟦claim⟧": ("NodeClaim gpu-x7k2p", SOLD_OUT),
    "the cloud provider refuses a machine of a node group": (NOT_ALLOWED,),
    "the cloud provider does not start a machine of a node group": (SOLD_OUT,),
    "the cloud provider refuses a machine,": (NOT_ALLOWED,),
    "the cloud provider does not start a machine:": (SOLD_OUT,),
    "the cloud provider refuses the machine of ⟦kind⟧": ("MachineSet", "gpu-a", NOT_ALLOWED),
    "the cloud provider does not start the machine of ⟦kind⟧": ("MachineSet", "gpu-a", SOLD_OUT),
    "the cloud provider refuses ⟦what⟧": ("a machine", NOT_ALLOWED),
    "the cloud provider does not start ⟦what⟧": ("a machine", SOLD_OUT),
    "the device plugin ⟦pod⟧ is on node ⟦node⟧ and has restarted ⟦restarts⟧ times: ⟦tail⟧": (
        "nvidia-device-plugin-x7k2p",
        "gpu-7",
        "14",
        "too many open files",
    ),
    "the device plugin ⟦pod⟧ is on node ⟦node⟧, but has advertised no GPU: ⟦tail⟧": (
        "nvidia-device-plugin-x7k2p",
        "gpu-7",
        "too many open files",
    ),
    "the driver has tainted": ("gpu-1", "gpu-7", "gpu.nvidia.com/xid=79", "1", "0"),
    "node ⟦node⟧ offers ⟦offered⟧": ("gpu-7", "7", "p5.48xlarge", "8"),
    "⟦claim⟧ asks for a device of": (CLAIM, "gpu.nvidia.com", "productName", "NVIDIA H100", "NVIDIA L40S"),
    "no published device of": ("gpu.nvidia.com", CLAIM),
    "⟦claim⟧ asks for ⟦count⟧ devices": (CLAIM, "4", "gpu.nvidia.com", "2"),
    "too few ⟦name⟧ are free: ⟦total⟧ on ⟦count⟧ matching nodes, ⟦wanted⟧ needed; ": (
        "nvidia.com/hostdev",
        "0",
        "2",
        "1",
        "6",
        "nvidia.com/gpu",
    ),
    "⟦part⟧, which ⟦subject⟧ has made": ("Job team/tune", "RayJob team/tune"),
    "⟦part⟧, which ⟦subject⟧ has made, stays suspended (suspend: true): it": (
        "Job team/tune",
        "RayJob team/tune",
        CONFIG,
    ),
    "⟦item⟧ is suspended (suspend: true): it names": ("Job team/tune", CONFIG),
    "⟦message⟧: it names no queue": ("Job team/tune stays suspended", CONFIG),
    "the pod has to run in one ⟦topology_key⟧ with": ("kubernetes.io/hostname",),
    "the pod has to run in one ⟦topology_key⟧ with a pod that has ⟦": ("kubernetes.io/hostname", "app=cache"),
    "the pod may not share its ⟦topology_key⟧ with": ("kubernetes.io/hostname", "Pod team/web-1", "gpu-7"),
    "the pod may not share its ⟦topology_key⟧ with ⟦other⟧ of node ⟦node⟧ (⟦": (
        "kubernetes.io/hostname",
        "Pod team/web-1",
        "gpu-7",
        "app=web",
    ),
    "its queue ⟦name⟧ is ⟦state⟧": ("research", "closed"),
    "queue ⟦queue⟧ has no bound": ("research", "PodGroup team/big"),
    "queue ⟦queue⟧ has no bound of its own, but what was let into it before counts as used although it waits for "
    "nodes: ⟦item⟧ (⟦": ("research", "PodGroup team/big", "2", "nvidia.com/gpu"),
    "node ⟦node⟧, which the pod may use": ("gpu-7", "nvidia.com/mig-3g.40gb", "nvidia.com/gpu", "nvidia.com/gpu"),
    "ResourceQuota ⟦quota⟧ is on": ("small", "cpu and memory", "main"),
    "ResourceQuota ⟦quota⟧ is on ⟦names⟧, and a container": ("small", "cpu and memory"),
    "the runtime ⟦name⟧ of node": ("kata", "gpu-7", POD, "timed out connecting to the virtual machine"),
    "a volume of ⟦pod⟧ can't be mounted": (POD, "gpu-7", "access denied by server"),
    "the volume of claim ⟦claim⟧, mounted at": ("models", "/data", " (/data/step-9.pt)"),
    "claim ⟦failing⟧ gets no volume": ("models", "Quota 'SSD_TOTAL_GB' exceeded"),
    "its queue does not admit it": (NO_CLUSTER,),
    "⟦starting⟧ was bound to node ⟦nodeName⟧ ⟦since⟧ ago, and its network": (POD, "gpu-7", "20m", "no route to host"),
    "⟦starting⟧ was bound to node ⟦nodeName⟧ ⟦since⟧ ago, and its sandbox": (POD, "gpu-7", "20m", "the shim timed out"),
    "⟦scheduler⟧ looks for": ("default-scheduler", "nvidia.com/gpumem"),
    "the driver's kubelet plugin can't prepare the devices of claim": ("train-0-gpus", "gpu-7", "connection refused"),
    "the ⟦component⟧ (⟦pod⟧) on node ⟦node⟧ has waited for the": (
        "device plugin",
        "nvidia-device-plugin-x7k2p",
        "gpu-7",
        "driver",
        "1h17m",
        "driver-validation",
    ),
    "the pod's selector or affinity matches only nodes without": ("nvidia.com/gpu", "t4-0", "gpu.shared", "a100-0"),
    "⟦pod⟧ finds no room on node": (
        "Pod nvidia/device-plugin-x7k2p",
        "gpu-7",
        "0/2 nodes are available: Insufficient cpu",
    ),
}
"""Beginning of a message → text of its placeholders, in order."""
