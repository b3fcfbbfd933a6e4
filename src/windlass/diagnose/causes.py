"""Every code that a diagnosis may name, what it means, and what to do.

The closed list from which `why` answers. Scripts rely on the codes: new ones may be added, none is ever renamed.
"""

from __future__ import annotations

import msgspec

from windlass.model.names.windlass import DECLARED_DURATION_ANNOTATION

NOTHING_TO_DO = "nothing to do; `windlass plan schedule` shows the planned start"
"""The remedy of waits that end by themselves."""


class Cause(msgspec.Struct, frozen=True):
    meaning: str
    remedy: str
    is_wait: bool = False
    """Nothing is broken: it starts once time has passed or other work has ended."""


CAUSES: dict[str, Cause] = {
    # The manifest
    "FRACTIONAL_GPU_REQUEST": Cause(
        "a fraction of an extended resource is requested",
        "ask for a whole number, or for a shared resource (nvidia.com/gpu.shared, a MIG profile)",
    ),
    "REQUESTS_NE_LIMITS": Cause(
        "request and limit of an extended resource differ, or the limit is missing",
        "set the same number in requests and limits, or only in limits",
    ),
    "RESOURCE_NAME_MISMATCH": Cause(
        "no node advertises the requested resource",
        "ask for a resource that the nodes advertise",
    ),
    "SHM_TOO_SMALL": Cause(
        "/dev/shm is the 64 MiB default, and the program needs more shared memory",
        "mount an emptyDir with medium: Memory at /dev/shm",
    ),
    "POLICY_DENIED": Cause(
        "an admission policy refuses the pod, or its binding to a node",
        "change what the policy's message names, or ask its owner; a refused binding is tried again after 30 s",
    ),
    "DRA_CLAIM_INVALID": Cause(
        "the pod's resource claim is not valid in this API version",
        "set resourceClaimName or resourceClaimTemplateName directly in the entry of spec.resourceClaims",
    ),
    "DRA_CLASS_MISSING": Cause(
        "the device class of the claim does not exist",
        "install the DRA driver's DeviceClass, or use one that exists",
    ),
    # Quota and queues
    "RESOURCE_QUOTA_EXCEEDED": Cause(
        "the namespace's ResourceQuota is used up", "free some of it, ask for less, or have the quota raised"
    ),
    "QUOTA_KEY_INVALID": Cause(
        "a GPU quota key other than requests.<resource> has no effect",
        "write requests.<resource>, such as requests.nvidia.com/gpu",
    ),
    "KUEUE_QUEUE_MISSING": Cause(
        "the queue does not exist, is inactive or is stopped",
        "create the queue, or use one that exists; see the queue's conditions",
    ),
    "KUEUE_QUOTA_INSUFFICIENT": Cause(
        "the queue's quota is used up or too small",
        "wait for quota to be freed, ask for less, or have the quota raised",
        is_wait=True,
    ),
    "KUEUE_QUOTA_MISCONFIGURED": Cause(
        "the queue's quota does not cover the resource, or promises more than the nodes have",
        "add the resource to the queue's flavors, and make quota and hardware agree",
    ),
    "KUEUE_FLAVOR_MISMATCH": Cause(
        "no flavor of the queue matches the pod's tolerations and node affinity",
        "add the flavor's toleration or label to the pod",
    ),
    "KUEUE_TOPOLOGY_NOFIT": Cause(
        "no domain of the requested topology level has enough free",
        "ask for a wider topology level, or for a preferred instead of a required one",
    ),
    "PREEMPTION_LOOP": Cause(
        "workloads preempt one another again and again",
        "give the preempting queue nominal quota with a lendingLimit, or stop one of the two",
    ),
    "PREEMPTION_INEFFECTIVE": Cause(
        "preemption frees resources that the preemptor can't use",
        "ask for whole nodes, or use a scheduler that chooses victims and nodes together",
    ),
    "GANG_DEADLOCK": Cause(
        "partial gangs hold resources and wait for one another",
        "delete one of the gangs; admit gangs whole (a queue with all-or-nothing)",
    ),
    "GANG_INCOMPLETE": Cause(
        "the gang lacks members, or one member can't be placed",
        "create the missing pods; for a pod that exists, run `windlass why` on it",
    ),
    # Scheduling
    "TAINT_NOT_TOLERATED": Cause(
        "the matching nodes have a taint that the pod does not tolerate",
        "add the toleration to the pod, or remove the taint",
    ),
    "SELECTOR_MISMATCH": Cause(
        "the pod's node selector or affinity matches no node with enough resources",
        "compare the selector with the nodes' labels: they must match exactly",
    ),
    "POD_AFFINITY_CONFLICT": Cause(
        "pod affinity or anti-affinity excludes matching nodes",
        "make the rule preferred, or move the pod that it refers to",
    ),
    "POD_SPREAD_CONFLICT": Cause(
        "a topology spread constraint excludes matching nodes",
        "count only matching nodes (node affinity, nodeTaintsPolicy), raise maxSkew, or use ScheduleAnyway",
    ),
    "GPU_FULL": Cause(
        "too few matching GPUs are free",
        "free GPUs, or wait; `windlass plan schedule` shows the planned start",
        is_wait=True,
    ),
    "GPU_FRAGMENTED": Cause(
        "enough GPUs are free in total, but not on one node",
        "move smaller pods away (windlass plan defrag), or ask for fewer GPUs per pod",
    ),
    "GPU_STRANDED": Cause(
        "GPUs are free, but other pods have taken the CPU, memory or pod slots of their nodes",
        "keep CPU-only pods off GPU nodes (a taint), or move them",
    ),
    "REQUEST_EXCEEDS_CLUSTER": Cause(
        "no node is large enough for one of its pods, or all nodes together are too small for all of them",
        "ask for no more than the nodes have, or add nodes",
    ),
    "CPU_MEM_INSUFFICIENT": Cause("no matching node has enough CPU or memory free", "ask for less CPU or memory"),
    "POD_COUNT_LIMIT": Cause(
        "the matching nodes have reached their maximum number of pods", "raise the kubelet's maxPods, or move pods away"
    ),
    "EPHEMERAL_STORAGE": Cause(
        "local disk is used up",
        "write to a volume instead of the container's disk, and request ephemeral-storage",
    ),
    "STORAGE_INSUFFICIENT": Cause(
        "a volume can't be bound or attached on the matching nodes",
        "see the claim's events; use a storage class with volumeBindingMode WaitForFirstConsumer",
    ),
    "NODE_UNSCHEDULABLE": Cause(
        "the matching nodes are cordoned, not ready or unreachable",
        "uncordon the node if it is fit, or repair it: see its conditions",
    ),
    "KUBELET_ADMISSION_RACE": Cause(
        "the kubelet refused a pod that the scheduler had placed",
        "delete the failed pod; if it repeats, restart the device plugin and the kubelet of the node",
    ),
    # Autoscaling and cloud
    "AUTOSCALER_MAX_SIZE": Cause(
        "the matching node group is at its maximum size", "raise the group's maximum, or free nodes"
    ),
    "AUTOSCALER_NO_MATCHING_GROUP": Cause(
        "no node group of the autoscaler has matching nodes",
        "declare GPU, labels and taints in the group's template (needed to scale from zero)",
    ),
    "GPU_NOT_YET_ADVERTISED": Cause(
        "the node is new and its device plugin has not registered yet", "wait a few minutes", is_wait=True
    ),
    "CLOUD_CAPACITY": Cause(
        "the cloud provider has no such machine, or the account's quota is used up",
        "use another zone or machine type, or raise the provider's quota",
    ),
    # The node's stack
    "DEVICE_PLUGIN_ABSENT": Cause(
        "no device plugin runs on the GPU node, so its GPUs are not advertised",
        "make the plugin's DaemonSet match the node (labels, tolerations)",
    ),
    "DEVICE_PLUGIN_FAILING": Cause(
        "the device plugin runs, or restarts, without advertising GPUs", "read the plugin's log on that node"
    ),
    "GFD_LABELS_MISSING": Cause(
        "feature discovery did not label the GPU node",
        "restart the gpu-feature-discovery (or NFD worker) pod on the node",
    ),
    "RUNTIME_NOT_CONFIGURED": Cause(
        "the container runtime is not configured for GPUs",
        "configure the nvidia runtime (nvidia-ctk runtime configure) and restart the container runtime",
    ),
    "DRIVER_MISSING": Cause(
        "the NVIDIA driver is not installed or not loaded",
        "install a driver for the running kernel; see the driver pod's log",
    ),
    "DRIVER_LIB_MISMATCH": Cause(
        "kernel module and user library of the driver have different versions",
        "reboot the node, or reload the kernel modules",
    ),
    "DRIVER_UPGRADE_BLOCKED": Cause(
        "a driver upgrade waits for GPU pods to leave the node", "drain the node's GPU pods"
    ),
    "CUDA_DRIVER_TOO_OLD": Cause(
        "the image needs a newer CUDA than the node's driver offers",
        "use an image for an older CUDA, or upgrade the driver",
    ),
    "CGROUP_DEVICE_ACCESS_LOST": Cause(
        "the running container has lost access to its GPU device",
        "recreate the pod; make /dev/char links or use CDI, so that a daemon-reload no longer matters",
    ),
    "DEVICE_NODES_MISSING": Cause(
        "device nodes of the GPU were absent when the container's CDI spec was made",
        "create the device nodes (nvidia-modprobe), then write the CDI spec again",
    ),
    "DEVICE_ID_STALE": Cause(
        "the GPU that the pod was given no longer exists under that id",
        "delete the pod so that the kubelet allocates again; restart the device plugin",
    ),
    "DEVICE_PERMISSION": Cause(
        "the container may not open the GPU device (SELinux, seccomp or MIG permissions)",
        "use the vendor's SELinux policy, or the container_use_devices boolean",
    ),
    "DEVICE_UNHEALTHY": Cause(
        "the node has GPUs that are marked unhealthy",
        "look for Xid messages in the node's kernel log; drain and reset, or replace the GPU",
    ),
    "GPU_HW_FAULT": Cause(
        "the GPU has a hardware fault",
        "cordon the node, reset or power-cycle it; replace the GPU if it returns",
    ),
    "FABRIC_NOT_READY": Cause(
        "the NVLink fabric is not up, so CUDA can't initialise",
        "start the fabric manager in the driver's version; see its log",
    ),
    "MIG_CONFIG_NOT_APPLIED": Cause(
        "the MIG layout that the node should have was not applied",
        "see nvidia.com/mig.config.state and the MIG manager's log; a mode change may need a reboot",
    ),
    "SHARING_CONFIG_NOT_APPLIED": Cause(
        "the sharing configuration (time-slicing, MPS) is not applied as written",
        "put the fields where the plugin reads them, and restart it",
    ),
    "MPS_NOT_READY": Cause(
        "the MPS control daemon does not run, or the plugin can't reach it",
        "deploy the MPS daemon with the plugin (the Helm chart does)",
    ),
    # Image and program
    "IMAGE_PULL_SLOW": Cause(
        "the image is still being pulled", "pre-pull large images, or raise the deadline", is_wait=True
    ),
    "IMAGE_PULL_FAILED": Cause("the image can't be pulled", "check its name, tag and pull secret"),
    "CONTAINER_OOM": Cause("the container exceeded its memory limit and was killed", "raise the memory limit"),
    "GPU_OOM": Cause("the GPU's memory is used up", "use a smaller batch or model, or a GPU that is not shared"),
    "GPU_VISIBLE_UNREQUESTED": Cause(
        "the pod sees GPUs that it did not request", "remove NVIDIA_VISIBLE_DEVICES=all, and request GPUs"
    ),
    "TOPOLOGY_MANAGER_REFUSED": Cause(
        "the kubelet's topology manager found no aligned set of devices and CPUs",
        "ask for numbers that fit one NUMA node, or relax the topology manager's policy",
    ),
    "NCCL_TRANSPORT_FALLBACK": Cause(
        "NCCL uses a slower network transport than the hardware has",
        "see NCCL's log for what it did not find (IB devices, GPUDirect, NCCL_IB_HCA)",
    ),
    "APP_ERROR": Cause("the program itself failed; nothing shows a fault of GPUs or the cluster", "read its log"),
    # Waits and states
    "SCHEDULING_GATED": Cause(
        "the pod still has scheduling gates",
        "wait until the gate's controller removes it, or remove it from spec.schedulingGates",
        is_wait=True,
    ),
    "WRONG_SCHEDULER": Cause(
        "no scheduler of that name is running", "use the name of a running scheduler, or start that one"
    ),
    "HOST_PORT_CONFLICT": Cause("the host port is taken on matching nodes", "remove hostPort, or use a free port"),
    "QUEUE_BEHIND_HEAD": Cause(
        "quota suffices, but a workload ahead of it in its StrictFIFO queue waits and has to start first",
        "run `windlass why` on the head of the queue, or set its queueingStrategy to BestEffortFIFO",
        is_wait=True,
    ),
    "ADMISSION_DEFERRED": Cause(
        "its queue has not considered it yet: pods of a workload admitted before it are not ready "
        "(waitForPodsReady.blockAdmission), or the decision ended before its turn",
        "run `windlass why` on the workload whose pods are not ready, or set waitForPodsReady.blockAdmission to false",
        is_wait=True,
    ),
    "QUEUE_LIMIT_REACHED": Cause(
        "its queue limits what one job or one user may have, and the limit is reached",
        "wait until jobs of the same user end, ask for fewer GPUs, or ask an administrator to raise the limit",
        is_wait=True,
    ),
    "REQUEUE_BACKOFF": Cause("it was evicted and waits for its backoff to end", NOTHING_TO_DO, is_wait=True),
    "RESERVED_FOR_OTHERS": Cause(
        "room is free, but kept for a planned start or a reservation",
        f"set {DECLARED_DURATION_ANNOTATION} (or activeDeadlineSeconds) so that it ends before the planned start or "
        "the reservation begins",
        is_wait=True,
    ),
    "WAITING_FOR_PREEMPTION": Cause(
        "the pods preempted for it have not terminated yet",
        "wait for their grace period; if they outlive it, check their node and finalizers",
        is_wait=True,
    ),
    "DURATION_EXCEEDED": Cause(
        "it was stopped at the end of its declared run time; started again, it would be stopped again",
        f"raise or remove {DECLARED_DURATION_ANNOTATION}, or save checkpoints",
    ),
    "JOB_SUSPENDED": Cause(
        "it is suspended (spec.suspend: true), or its Workload is deactivated (spec.active: false)",
        "set spec.suspend to false, or, in a queue, let the queue start it; if its Workload is deactivated, set "
        "spec.active to true",
    ),
    "NONE": Cause("nothing is wrong", ""),
    "UNKNOWN": Cause("the evidence is not enough to name a cause", "run the commands under Missing"),
    "INVALID_OBJECT": Cause(
        "a field of the object can't be read, or has a value that is not allowed",
        "correct the field that the message names",
    ),
    "NODE_NOT_UNDERSTOOD": Cause(
        "the node or a pod on it could not be read",
        "correct the object that the event Unreadable is about "
        "(kubectl get events -A --field-selector reason=Unreadable)",
    ),
    "NOT_IMPLEMENTED": Cause(
        "it needs something that Windlass does not implement",
        "remove the field that the message names, or set spec.schedulerName to a scheduler that supports it",
    ),
    "INTERNAL_ERROR": Cause(
        "it is left out of decisions because of a bug in Windlass; other work is not affected",
        "report the bug's id with the log of the scheduler, and set spec.schedulerName to another scheduler "
        "until it is fixed",
    ),
}
