"""Facts about single nodes: whether it is a GPU node, taints and labels that exclude a pod, free resources.

Called by `unschedulable`, `gpu_stack` and `doctor`; `node_summary` makes the rows under a diagnosis.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from windlass.diagnose.finding import NodeSummary
from windlass.diagnose.fit import FitChecker, NodeFit, capacity_and_allocatable, once_per_node
from windlass.model.names.kubernetes import BETA_INSTANCE_TYPE_LABEL, INSTANCE_TYPE_LABEL
from windlass.model.names.nvidia import GPU_COUNT_LABEL, GPU_PRESENT_LABEL, GPU_PRODUCT_LABEL
from windlass.model.names.others import NFD_NVIDIA_3D_LABEL, NFD_NVIDIA_LABEL, NFD_NVIDIA_VGA_LABEL
from windlass.model.names.windlass import NOT_READY_GPU_TAINT
from windlass.model.node import Node, Taint
from windlass.model.pod import Pod
from windlass.model.requests import format_amount, is_extended_resource
from windlass.model.taints import HARD_EFFECTS, LIFECYCLE_TAINTS, OPERATOR_TAINTS, is_lifecycle_taint, tolerates

GPU_LABELS = (
    GPU_PRESENT_LABEL,
    GPU_PRODUCT_LABEL,
    GPU_COUNT_LABEL,
    "nvidia.com/gpu.deploy.device-plugin",
    NFD_NVIDIA_LABEL,
    NFD_NVIDIA_VGA_LABEL,
    NFD_NVIDIA_3D_LABEL,
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-count",
    "eks.amazonaws.com/instance-gpu-count",
    "kubernetes.azure.com/accelerator",
    "accelerator",
)
"""Labels that only GPU nodes have: set by NVIDIA's or NFD's discovery, or by a cloud provider."""
GPU_INSTANCE_TYPES = re.compile(
    r"^(p[2-6]\w*|g[3-7]\w*|gr6\w*|trn\d\w*|inf\d\w*)\.|^(a[234]|g[24])-|^Standard_N[CDV]", re.ASCII
)
"""Machine types with GPUs, as the clouds name them."""
INSTANCE_TYPE_LABELS = (INSTANCE_TYPE_LABEL, BETA_INSTANCE_TYPE_LABEL)


def device_requests(requests: Mapping[str, int]) -> dict[str, int]:
    """The extended resources of the request."""
    return {name: amount for name, amount in requests.items() if is_extended_resource(name) and amount}


def gpu_count(requests: Mapping[str, int]) -> int:
    """GPUs and parts of GPUs in the request."""
    return sum(amount for name, amount in device_requests(requests).items() if is_gpu_name(name))


@once_per_node
def gpu_resources(node: Node) -> Mapping[str, int]:
    """GPU resources of the node's capacity that are not 0."""
    capacity, _ = capacity_and_allocatable(node)
    return {
        name: amount for name, amount in capacity.items() if amount and is_extended_resource(name) and is_gpu_name(name)
    }


def is_gpu_name(name: str) -> bool:
    vendor, _, rest = name.partition("/")
    return vendor in ("nvidia.com", "amd.com", "gpu.intel.com", "huawei.com", "habana.ai") or "gpu" in rest


def looks_like_gpu_node(node: Node) -> bool:
    """Whether labels, resources, machine type or taints say that the node has GPUs, advertised or not."""
    if any(node.labels.get(label, "false") not in ("false", "0", "") for label in GPU_LABELS):
        return True
    capacity, _ = capacity_and_allocatable(node)
    if any(is_extended_resource(name) and is_gpu_name(name) for name in capacity):
        return True  # also with 0 of them, which kubelet leaves behind when a device plugin goes
    if any(GPU_INSTANCE_TYPES.match(node.labels.get(label, "")) for label in INSTANCE_TYPE_LABELS):
        return True
    return any("gpu" in taint.key.lower() for taint in node.spec.taints)


def is_labelled_for(node: Node, resource: str) -> bool:
    """Whether node feature discovery has seen a GPU of the resource's vendor, where that is not NVIDIA.

    Many CPUs have such a GPU, so that it counts only for pods that ask for that vendor's.
    """
    label = OTHER_VENDORS.get(resource.partition("/")[0])
    return label is not None and any(label.search(key) for key, value in node.labels.items() if value != "false")


OTHER_VENDORS = {
    "amd.com": re.compile(r"^feature\.node\.kubernetes\.io/(pci-([0-9a-f]{4}_)?1002\.|amd-v?gpu)"),
    "gpu.intel.com": re.compile(r"feature\.node\.kubernetes\.io/(pci-([0-9a-f]{4}_)?8086\.|gpu)"),
}


def unschedulable_reason(node: Node) -> str:
    """Why the node takes no new pods; empty if it does."""
    if node.spec.unschedulable:
        return "cordoned"
    for taint in node.spec.taints:
        if taint.key in LIFECYCLE_TAINTS and taint.effect in HARD_EFFECTS:
            name = taint.key.rpartition("/")[2]
            return STATES.get(name, name)
    ready = next((condition.status for condition in node.status.conditions if condition.type == "Ready"), "True")
    if ready != "True":
        return "not ready"
    starting = startup_taint(node)
    return f"tainted {starting}, which goes when it is ready for pods" if starting else ""


STATES = {
    "memory-pressure": "short of memory (MemoryPressure)",
    "pid-pressure": "short of process ids (PIDPressure)",
    "network-unavailable": "without a network (network-unavailable)",
    "uninitialized": "not initialised by its cloud controller (uninitialized)",
}
"""Last part of a taint's key → what it says about the node, where that is not plain."""


def startup_taint(node: Node) -> str:
    """The taint that an agent of the node has yet to take away; empty if there is none."""
    hard = (taint.key for taint in node.spec.taints if taint.effect in HARD_EFFECTS)
    return next((key for key in hard if key not in LIFECYCLE_TAINTS and is_lifecycle_taint(key)), "")


def down_remedy(node: Node) -> str:
    """What to do about a node that takes no pods."""
    if unschedulable_reason(node) in ("cordoned", "unschedulable"):
        return f"if it is fit, kubectl uncordon {node.name}"
    if startup_taint(node) in (*OPERATOR_TAINTS, NOT_READY_GPU_TAINT):
        return f"wait for the operator (windlass stack explain {node.name}); do not tolerate the taint"
    if unschedulable_reason(node) == STATES["uninitialized"]:
        return "repair the cloud-controller-manager, which takes the taint away (kubectl get pods -n kube-system)"
    if unschedulable_reason(node).startswith("short of"):
        return f"find and end what uses it up: kubectl describe node {node.name}"
    if unschedulable_reason(node).startswith("tainted"):
        agent = f"kubectl get pods -A -o wide --field-selector spec.nodeName={node.name}"
        return f"repair the agent that takes the taint away ({agent}); do not tolerate it"
    return f"repair its machine or its kubelet: kubectl describe node {node.name}"


def not_ready_reason(node: Node) -> str:
    """Why running pods of the node are at risk; empty for a node that only takes no more of them."""
    down = unschedulable_reason(node)
    return "" if down in ("cordoned", "unschedulable") or down.startswith("tainted") else down


def blocking_taints(node: Node, pod: Pod) -> list[Taint]:
    return [
        taint
        for taint in node.spec.taints
        if taint.effect in HARD_EFFECTS and not tolerates(pod.spec.tolerations, taint)
    ]


def format_taint(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def selector_mismatches(node: Node, pod: Pod) -> list[str]:
    """The labels of the pod's node selector and required affinity that the node does not match."""
    mismatches = []
    for key, value in pod.spec.node_selector.items():
        has = node.labels.get(key)
        if has != value:
            mismatches.append(f"{key} is {has or 'absent'}, not {value}")
    for key, values, operator in required_labels(pod):
        has = node.labels.get(key)
        if operator == "In" and has not in values:
            mismatches.append(f"{key} is {has or 'absent'}, not {' or '.join(values)}")
        elif operator == "Exists" and has is None:
            mismatches.append(f"{key} is absent")
        elif operator in ("NotIn", "DoesNotExist") and has is not None and (has in values or not values):
            mismatches.append(f"{key} is {has}, which is excluded")
    return mismatches


def required_labels(pod: Pod) -> list[tuple[str, tuple[str, ...], str]]:
    """(key, values, operator) of all expressions of the required node affinity."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    terms = required.node_selector_terms if required else ()
    return [
        (expression.key, expression.values, expression.operator)
        for term in terms
        for expression in term.match_expressions
    ]


def node_summary(
    fit: FitChecker,
    found: NodeFit,
    node: Node,
    pod: Pod,
    requests: Mapping[str, int],
    candidate: bool,
    codes: Iterable[str],
) -> NodeSummary:
    """The node's numbers for the resources that the pod requests."""
    capacity, allocatable = capacity_and_allocatable(node)
    names = [name for name in requests if name != "pods" or name in found.shortfall]
    gpus = [name for name in gpu_resources(node) if name not in names]
    shown = sorted([*names, *gpus], key=lambda name: not is_extended_resource(name))

    def amounts(numbers: Mapping[str, int]) -> dict[str, str]:
        return {name: shown_amount(name, numbers[name]) for name in shown if name in numbers}

    left = {name: fit.free(node.name, name) for name in shown if name in allocatable}
    used = {name: allocatable[name] - left[name] for name in left}
    # Pods keep devices that are no longer advertised: more may be requested than there is.
    free = {name: max(0, amount) for name, amount in left.items()}
    return NodeSummary(
        name=node.name,
        codes=tuple(dict.fromkeys(codes)),
        lacks={name: shown_amount(name, amount) for name, amount in _lacks(found, requests).items()},
        capacity=amounts(capacity),
        allocatable=amounts(allocatable),
        requested=amounts(used),
        free=amounts(free),
        detail=_details(found, node, pod, requests),
        candidate=candidate,
    )


shown_amount = lru_cache(maxsize=4096)(format_amount)
"""Remembered, since most nodes of a cluster have the same amounts."""


def _details(found: NodeFit, node: Node, pod: Pod, requests: Mapping[str, int]) -> tuple[str, ...]:
    details: list[str] = []
    for reason in found.reasons:
        if reason.name == "TAINT":
            details += [f"taint {format_taint(taint)} is not tolerated" for taint in blocking_taints(node, pod)]
        elif reason.name == "NODE_AFFINITY":
            details += selector_mismatches(node, pod) or [reason.message]
        elif reason.name == "UNSCHEDULABLE":
            details.append("cordoned")
        elif reason.name == "GPU_DEVICE_ROOM" and found.shortfall:
            continue  # the shortfall below says the same with a number
        elif not reason.name.startswith("INSUFFICIENT_"):  # the shortfall below has the amounts
            details.append(reason.message)
    for name, amount in _lacks(found, requests).items():
        details.append(f"lacks {format_amount(name, amount)} {name}")
        empty = found.shortfall_when_empty.get(name, 0)
        if empty:
            details[-1] += " even when empty" if empty == amount else f", {format_amount(name, empty)} even when empty"
    return tuple(details)


def _lacks(found: NodeFit, requests: Mapping[str, int]) -> dict[str, int]:
    """No more than is requested: pods may hold more than the node still advertises."""
    return {name: min(amount, requests.get(name, amount)) for name, amount in found.shortfall.items()}


def unhealthy_device_count(node: Node, resource: str) -> int:
    """Devices in capacity that are not allocatable."""
    capacity, allocatable = capacity_and_allocatable(node)
    return max(0, capacity.get(resource, 0) - allocatable.get(resource, 0))
