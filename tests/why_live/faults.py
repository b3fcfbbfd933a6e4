"""The faults that `make why-live` injects: nodes, plugin, driver, quota, storage, rules, gangs, queues, starts."""

from __future__ import annotations

from tests.why_live.build import (
    FAULT_LABEL,
    GPU,
    KUBELET_LABEL,
    PATCH,
    TAINT,
    VOLUME,
    WINDLASS,
    Fault,
    claim,
    container_status,
    deployment,
    event,
    failing,
    job,
    node,
    owner,
    pod,
    silent_node,
    spec,
    terminated,
    waiting,
)

from windlass.model.names.kueue import KUEUE_API_VERSION, KUEUE_POD_GROUP_NAME, QUEUE_NAME_LABEL
from windlass.model.unstructured import Unstructured

PRESENT = {"nvidia.com/gpu.present": "true"}
POD = "pod/asked"
HOST = "kubernetes.io/hostname"


def _affinity(kind: str, app: str) -> Unstructured:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOST}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _node_affinity(key: str, value: str) -> Unstructured:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _holders(name: str, gpus: int, *suffixes: str) -> list[Unstructured]:
    """A pod on each of the fault's nodes that holds some of its GPUs."""
    return [
        pod(name, {**spec(name, gpus), "nodeName": f"{name}{suffix}"}, f"holds{suffix}") for suffix in suffixes or ("",)
    ]


def _stack(name: str, image: str, status: Unstructured, component: str) -> list[Unstructured]:
    """A GPU node without GPUs, and the pod of a component of its stack that fails."""
    content = {**spec(name, 0), "nodeName": name}
    content["containers"][0]["image"] = image
    made = pod(name, content, component, labels={KUBELET_LABEL: "injected"})
    return [*silent_node(name, 0, labels=PRESENT), {**made, "status": status}, deployment(name, spec(name))]


CRASHED = container_status(5, state=waiting("CrashLoopBackOff"), lastState=terminated(1, "Error"))
NODE_FAULTS = (
    Fault("taint", lambda n: [node(n, taints=[TAINT]), deployment(n, spec(n))], ["TAINT_NOT_TOLERATED"], PATCH),
    Fault("taint-pod", lambda n: [node(n, taints=[TAINT]), pod(n, spec(n))], ["TAINT_NOT_TOLERATED"], PATCH, POD),
    Fault("cordon", lambda n: [node(n, cordoned=True), deployment(n, spec(n))], ["NODE_UNSCHEDULABLE"], PATCH),
    Fault("node-down", lambda n: [node(n, ready=False, taints=[DOWN]), deployment(n, spec(n))], ["NODE_UNSCHEDULABLE"]),
    Fault("too-large", lambda n: [node(n), deployment(n, spec(n, 16))], ["REQUEST_EXCEEDS_CLUSTER"], PATCH),
    Fault("cpu", lambda n: [node(n), deployment(n, spec(n, limits={"cpu": "64"}))], ["CPU_MEM_INSUFFICIENT"], PATCH),
    Fault(
        "memory", lambda n: [node(n), deployment(n, spec(n, limits={"memory": "1Ti"}))], ["CPU_MEM_INSUFFICIENT"], PATCH
    ),
    Fault("full", lambda n: [node(n), *_holders(n, 8), deployment(n, spec(n, 4))], ["GPU_FULL"]),
    Fault(
        "fragmented",
        lambda n: [node(n, suffix="-a"), node(n, suffix="-b"), *_holders(n, 4, "-a", "-b"), deployment(n, spec(n, 8))],
        ["GPU_FRAGMENTED"],
        PATCH,
    ),
    Fault(
        "stranded",
        lambda n: [
            node(n),
            pod(n, {**spec(n, 0, limits={"cpu": "30"}), "nodeName": n}, "cpu-only"),
            deployment(n, spec(n, 8, limits={"cpu": "16"})),
        ],
        ["GPU_STRANDED", "CPU_MEM_INSUFFICIENT"],
        PATCH,
    ),
    Fault(
        "pod-slots",
        lambda n: [node(n, pods="1"), pod(n, {**spec(n, 0), "nodeName": n}, "other"), deployment(n, spec(n))],
        ["POD_COUNT_LIMIT"],
    ),
    Fault("plugin-absent", lambda n: [node(n, 0, labels=PRESENT), deployment(n, spec(n))], ["DEVICE_PLUGIN_ABSENT"]),
    Fault(
        "plugin-crash",
        lambda n: _stack(n, "nvcr.io/nvidia/k8s-device-plugin:v0.17.0", CRASHED, "nvidia-device-plugin-x"),
        ["DEVICE_PLUGIN_FAILING"],
    ),
    Fault(
        "driver",
        lambda n: _stack(n, "nvcr.io/nvidia/driver:570", CRASHED, "nvidia-driver-daemonset-x"),
        ["DRIVER_MISSING"],
    ),
    Fault(
        "unhealthy",
        lambda n: [*silent_node(n, allocatable={GPU: "7"}), deployment(n, spec(n, 8))],
        ["DEVICE_UNHEALTHY"],
    ),
    Fault(
        "mig-failed",
        lambda n: [
            node(
                n,
                0,
                labels={**PRESENT, "nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.config.state": "failed"},
            ),
            deployment(n, spec(n, 0, limits={"nvidia.com/mig-1g.10gb": "1"})),
        ],
        ["MIG_CONFIG_NOT_APPLIED"],
    ),
    Fault(
        "driver-upgrade",
        lambda n: [
            node(n, 0, cordoned=True, labels={**PRESENT, "nvidia.com/gpu-driver-upgrade-state": "upgrade-failed"}),
            deployment(n, spec(n)),
        ],
        ["DRIVER_UPGRADE_BLOCKED"],
    ),
    Fault(
        "xid",
        lambda n: [
            *failing(n, container_status(5, state=waiting("CrashLoopBackOff"), lastState=terminated(1, "Error"))),
            event(
                n,
                f"Node/{n}",
                "GPUXid",
                "NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus",
                "node-problem-detector",
            ),
        ],
        ["GPU_HW_FAULT"],
        question=POD,
    ),
)
DOWN = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}

RULE_FAULTS = (
    Fault(
        "selector",
        lambda n: [node(n, labels={"gpu": "h100"}), deployment(n, spec(n, nodeSelector={"gpu": "a100"}))],
        ["SELECTOR_MISMATCH"],
        PATCH,
    ),
    Fault(
        "node-affinity",
        lambda n: [node(n), deployment(n, spec(n, affinity=_node_affinity("pool", "large")))],
        ["SELECTOR_MISMATCH"],
        PATCH,
    ),
    Fault(
        "pod-affinity",
        lambda n: [node(n), deployment(n, spec(n, affinity=_affinity("podAffinity", "absent")))],
        ["POD_AFFINITY_CONFLICT"],
        PATCH,
    ),
    Fault(
        "anti-affinity",
        lambda n: [
            node(n),
            pod(n, {**spec(n), "nodeName": n}, "other"),
            deployment(n, spec(n, affinity=_affinity("podAntiAffinity", "other"))),
        ],
        ["POD_AFFINITY_CONFLICT"],
        PATCH,
    ),
    Fault(
        "host-port",
        lambda n: [
            node(n),
            pod(n, {**spec(n, container={"ports": [{"containerPort": 80, "hostPort": 8080}]}), "nodeName": n}, "other"),
            deployment(n, spec(n, container={"ports": [{"containerPort": 80, "hostPort": 8080}]})),
        ],
        ["HOST_PORT_CONFLICT"],
        PATCH,
    ),
    Fault(
        "resource-name",
        lambda n: [node(n), deployment(n, spec(n, 0, limits={"nvidia.com/gpus": "1"}))],
        ["RESOURCE_NAME_MISMATCH"],
        PATCH,
    ),
    Fault("scheduler", lambda n: [node(n), deployment(n, spec(n, schedulerName="nobody"))], ["WRONG_SCHEDULER"], PATCH),
    Fault(
        "gated",
        lambda n: [node(n), pod(n, spec(n, schedulingGates=[{"name": "example.com/wait"}]))],
        ["SCHEDULING_GATED"],
        question=POD,
    ),
    Fault("claim-missing", lambda n: [node(n), deployment(n, spec(n, volumes=VOLUME))], ["STORAGE_INSUFFICIENT"]),
    Fault(
        "claim-unbound",
        lambda n: [node(n), claim(n, "nowhere"), deployment(n, spec(n, volumes=VOLUME))],
        ["STORAGE_INSUFFICIENT"],
    ),
    Fault(
        "quota",
        lambda n: [
            owner(n, "ResourceQuota", "v1", "gpus", hard={f"requests.{GPU}": "2"}),
            node(n),
            deployment(n, spec(n, 4)),
        ],
        ["RESOURCE_QUOTA_EXCEEDED"],
    ),
    Fault(
        "priority-class",
        lambda n: [node(n), deployment(n, spec(n, priorityClassName="absent"))],
        ["POLICY_DENIED", "INVALID_OBJECT"],
    ),
    Fault("suspended", lambda n: [node(n), job(n, spec(n), suspend=True)], ["JOB_SUSPENDED"], PATCH, "job/asked"),
    Fault(
        "scale-up",
        lambda n: [
            *(node(n), *_holders(n, 8), pod(n, spec(n, 4))),
            event(
                n,
                "Pod/asked",
                "NotTriggerScaleUp",
                "pod didn't trigger scale-up: 1 max node group size reached",
                "cluster-autoscaler",
            ),
        ],
        ["AUTOSCALER_MAX_SIZE"],
        question=POD,
    ),
    Fault(
        "gang",
        lambda n: [
            node(n),
            *(
                pod(
                    n,
                    spec(n),
                    name,
                    labels={KUEUE_POD_GROUP_NAME: "ring"},
                    annotations={"kueue.x-k8s.io/pod-group-total-count": "3"},
                )
                for name in ("asked", "second")
            ),
        ],
        ["GANG_INCOMPLETE"],
        question=POD,
        scheduler=WINDLASS,
    ),
    Fault(
        "queue-missing",
        lambda n: [node(n), job(n, spec(n), {QUEUE_NAME_LABEL: "absent"}, suspend=True)],
        ["KUEUE_QUEUE_MISSING"],
        question="job/asked",
        scheduler=WINDLASS,
    ),
    Fault(
        "queue-quota",
        lambda n: [node(n), *_queue(n, 2), job(n, spec(n, 4), {QUEUE_NAME_LABEL: "main"}, suspend=True)],
        ["KUEUE_QUOTA_INSUFFICIENT"],
        question="job/asked",
        scheduler=WINDLASS,
    ),
)


def _queue(name: str, gpus: int) -> list[Unstructured]:
    resources = [
        {"name": GPU, "nominalQuota": gpus},
        {"name": "cpu", "nominalQuota": 64},
        {"name": "memory", "nominalQuota": "1Ti"},
    ]
    group = {
        "coveredResources": [row["name"] for row in resources],
        "flavors": [{"name": name, "resources": resources}],
    }
    flavor = {"nodeLabels": {FAULT_LABEL: name}}
    cluster_queue = {"namespaceSelector": {}, "resourceGroups": [group]}
    return [
        {"apiVersion": KUEUE_API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": flavor},
        {"apiVersion": KUEUE_API_VERSION, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": cluster_queue},
        owner(name, "LocalQueue", KUEUE_API_VERSION, "main", clusterQueue=name),
    ]


def _crash(name: str, code: int, reason: str, message: str = "") -> list[Unstructured]:
    return failing(
        name, container_status(5, state=waiting("CrashLoopBackOff"), lastState=terminated(code, reason, message))
    )


def _refused(name: str, reason: str, message: str) -> list[Unstructured]:
    return failing(name, {"phase": "Failed", "reason": reason, "message": message})


LIBRARY = "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch"
CUDA = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver"
START_FAULTS = (
    Fault(
        "image",
        lambda n: failing(
            n, container_status(0, state=waiting("ImagePullBackOff", 'Back-off pulling image "registry.example/app:1"'))
        ),
        ["IMAGE_PULL_FAILED"],
        question=POD,
    ),
    Fault("oom", lambda n: _crash(n, 137, "OOMKilled"), ["CONTAINER_OOM"], question=POD),
    Fault("library", lambda n: _crash(n, 128, "StartError", LIBRARY), ["DRIVER_LIB_MISMATCH"], question=POD),
    Fault("cuda", lambda n: _crash(n, 128, "StartError", CUDA), ["CUDA_DRIVER_TOO_OLD"], question=POD),
    Fault(
        "admission",
        lambda n: _refused(
            n,
            "UnexpectedAdmissionError",
            "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu",
        ),
        ["KUBELET_ADMISSION_RACE"],
        question=POD,
    ),
    Fault(
        "topology",
        lambda n: _refused(n, "TopologyAffinityError", "Resources cannot be allocated with Topology locality"),
        ["TOPOLOGY_MANAGER_REFUSED"],
        question=POD,
    ),
    Fault(
        "disk",
        lambda n: _refused(n, "Evicted", "The node was low on resource: ephemeral-storage."),
        ["EPHEMERAL_STORAGE"],
        question=POD,
    ),
    Fault(
        "runtime",
        lambda n: [
            *failing(n, container_status(0, state=waiting("ContainerCreating")), {**spec(n), "nodeName": n}),
            event(
                n,
                "Pod/asked",
                "FailedCreatePodSandBox",
                'Failed to create pod sandbox: no runtime for "nvidia" is configured',
            ),
        ],
        ["RUNTIME_NOT_CONFIGURED"],
        question=POD,
    ),
)

FAULTS = (*NODE_FAULTS, *RULE_FAULTS, *START_FAULTS)
