"""What running pods hold: quota of which flavors, on which nodes.

Called by `build` for units whose pods are on nodes. Kueue writes it into a Workload's status; for everything else it
is counted from the pods: a pod holds the first flavor of its queue whose labels its node has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.model.errors import InputError
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.queue import ClusterQueue, QueueSystem, ResourceGroup
from windlass.model.quota import quota_requests
from windlass.model.times import parse_timestamp
from windlass.model.workload import Admission, PodSet, PodSetAssignment

GPU_MEMORY = "nvidia.com/gpu.memory"


def admission_of_pods(
    sets: Sequence[PodSet],
    pods: Mapping[str, Pod],
    queue: ClusterQueue | None,
    system: QueueSystem,
    nodes: Mapping[str, Node],
) -> Admission | None:
    """What the pods on nodes hold; None where none is."""
    assignments: list[PodSetAssignment] = []
    bound: list[Pod] = []
    for one in sets:
        placed = [pods[key] for key in one.pod_keys if pods[key].is_bound]
        bound.extend(placed)
        assignments.extend(_assignments(one.name, placed, queue, system, nodes))
    if not bound:
        return None
    return Admission(
        cluster_queue=queue.name if queue is not None else "",
        assignments=tuple(assignments),
        reserved_at=min(start_time(pod) for pod in bound),
    )


def start_time(pod: Pod) -> int:
    """When the pod began to hold what it holds, as well as its status tells."""
    return parse_timestamp(pod.status.start_time) or parse_timestamp(pod.metadata.creation_timestamp)


def pods_per_node(pods: Sequence[Pod]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for pod in pods:
        if pod.is_bound:
            counts[pod.spec.node_name] = counts.get(pod.spec.node_name, 0) + 1
    return counts


def _assignments(
    name: str, pods: Sequence[Pod], queue: ClusterQueue | None, system: QueueSystem, nodes: Mapping[str, Node]
) -> list[PodSetAssignment]:
    """One assignment, or one for each mixture of flavors where the pods of a set are on different ones."""
    parts: dict[tuple[tuple[str, str], ...], list[Pod]] = {}
    usage: dict[tuple[tuple[str, str], ...], dict[str, int]] = {}
    for pod in pods:
        node = nodes.get(pod.spec.node_name)
        asked = _requests(pod, node)
        flavors = tuple(sorted(_flavors(asked, queue, system, node).items()))
        parts.setdefault(flavors, []).append(pod)
        total = usage.setdefault(flavors, {})
        for resource, amount in asked.items():
            total[resource] = total.get(resource, 0) + amount
    return [
        PodSetAssignment(name, len(members), dict(flavors), usage[flavors], pods_per_node(members))
        for flavors, members in parts.items()
    ]


def _requests(pod: Pod, node: Node | None) -> dict[str, int]:
    memory = node.labels.get(GPU_MEMORY, "") if node is not None else ""
    known = int(memory) if memory.isascii() and memory.isdigit() and len(memory) < 12 else 0
    try:
        return quota_requests(pod, known)
    except InputError:
        return {}  # the store blocks the node of a bound pod that can't be read; its quota is not known


def _flavors(
    asked: Mapping[str, int], queue: ClusterQueue | None, system: QueueSystem, node: Node | None
) -> dict[str, str]:
    if queue is None:
        return {}
    labels = node.labels if node is not None else {}
    return {
        resource: _flavor(group, system, labels)
        for group in queue.resource_groups
        for resource in group.resources
        if resource in asked and group.flavors
    }


def _flavor(group: ResourceGroup, system: QueueSystem, labels: Mapping[str, str]) -> str:
    for quotas in group.flavors:
        flavor = system.flavors.get(quotas.flavor)
        if flavor is not None and flavor.node_labels.items() <= labels.items():
            return quotas.flavor
    return group.flavors[0].flavor
