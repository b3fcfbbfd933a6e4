"""If the fault of a node were mended, would it take the pod? Asked of the engine's own reasons for refusing it.

`root_causes` calls `would_take` for every hypothesis about a node. Each reason of `NodeFit` is one filter's, so the
node takes the pod as soon as the mended fault removes all of them; no second snapshot is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from windlass.diagnose import nodes
from windlass.diagnose.fit import once_per_node
from windlass.diagnose.unschedulable import Candidate
from windlass.model.digits import is_digits
from windlass.model.names.nvidia import GPU_COUNT_LABEL, GPU_REPLICAS_LABEL, GPU_RESOURCE
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.taints import is_lifecycle_taint

DEVICE_REASONS = ("GPU_DEVICE_ROOM", "GPU_UNHEALTHY", "MIG_NO_ROOM", "GPU_ALIGNMENT", "GPU_MODEL", "GPU_MEMORY")
"""Reasons that depend on the devices that a node advertises, which change with them."""


def would_take(candidate: Candidate, pod: Pod, gained: Mapping[str, int], uncordoned: bool = False) -> bool:
    """Whether the node would take the pod if it had these resources in addition, and took pods at all."""
    for reason in candidate.fit.reasons:
        if reason.name.startswith("INSUFFICIENT_"):
            continue  # the amounts are compared below
        if reason.name in DEVICE_REASONS and gained:
            continue
        if uncordoned and (reason.name == "UNSCHEDULABLE" or _is_lifecycle(reason.name, candidate.node, pod)):
            continue
        return False
    return all(lacking <= gained.get(name, 0) for name, lacking in candidate.fit.shortfall.items())


def _is_lifecycle(reason: str, node: Node, pod: Pod) -> bool:
    taints = nodes.blocking_taints(node, pod)
    return reason == "TAINT" and all(is_lifecycle_taint(taint.key) for taint in taints)


def missing_devices(node: Node, resource: str) -> int:
    """How many devices its labels or its capacity count beyond what is advertised or allocatable."""
    known = _missing_by_resource(node)
    if resource not in known:
        known[resource] = _count_missing(node, resource)
    return known[resource]


@once_per_node
def _missing_by_resource(node: Node) -> dict[str, int]:
    """Filled as it is asked for: a survey asks about every node in every question."""
    return {}


def _count_missing(node: Node, resource: str) -> int:
    unhealthy, offered = nodes.unhealthy_device_count(node, resource), nodes.gpu_resources(node)
    if resource != GPU_RESOURCE or any(name != GPU_RESOURCE for name in offered):
        return unhealthy  # the labels count GPUs, which MIG and renamed sharing advertise under other names
    replicas, count = node.labels.get(GPU_REPLICAS_LABEL, ""), node.labels.get(GPU_COUNT_LABEL, "")
    had = int(count) * (int(replicas) if is_digits(replicas) else 1) if is_digits(count) else 0
    return max(had - offered.get(resource, 0), unhealthy, 0)


def gained_devices(candidate: Candidate, wanted: Mapping[str, int], promised: Mapping[str, int]) -> dict[str, int]:
    """What the node would have in addition if its GPU stack worked.

    Where nothing says how many devices it has, it may have as many as the pod asks for.
    """
    gained = {}
    for name, amount in wanted.items():
        known = max(missing_devices(candidate.node, name), promised.get(name, 0))
        gained[name] = known or (0 if nodes.gpu_resources(candidate.node) else amount)
    return gained


def other_refusals(candidate: Candidate, mended: Collection[str]) -> list[str]:
    """Causes that would keep the pod off the node even if its devices were there."""
    return [code for code in candidate.permanent_codes if code != "REQUEST_EXCEEDS_CLUSTER" and code not in mended]
