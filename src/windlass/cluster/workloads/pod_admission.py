"""The admission of workloads whose pods are bound: which flavors they use, on which nodes.

Called by `build_workload`. Kueue writes the admission to a Workload's status; for everything else it is computed from
the pods: a pod uses the first flavor of its queue whose labels its node has, and rather one whose labels it selects by
itself: admission adds those of its flavor to gated pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.model.errors import InputError
from windlass.model.names.nvidia import GPU_MEMORY_LABEL
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.queue import ClusterQueue, QueueSystem, ResourceGroup
from windlass.model.quota import quota_requests
from windlass.model.times import parse_timestamp
from windlass.model.workload import Admission, PodSet, PodSetAssignment


def admission_of_pods(
    sets: Sequence[PodSet],
    pods: Mapping[str, Pod],
    queue: ClusterQueue | None,
    system: QueueSystem,
    nodes: Mapping[str, Node],
) -> Admission | None:
    """What the bound pods use; None where no pod is bound."""
    assignments: list[PodSetAssignment] = []
    bound: list[Pod] = []
    for pod_set in sets:
        bound_members = [pods[key] for key in pod_set.pod_keys if pods[key].is_bound]
        bound.extend(bound_members)
        assignments.extend(_assignments(pod_set.name, bound_members, queue, system, nodes))
    if not bound:
        return None
    return Admission(
        cluster_queue=queue.name if queue is not None else "",
        assignments=tuple(assignments),
        reserved_at=min(start_time(pod) for pod in bound),
    )


def start_time(pod: Pod) -> int:
    """When the pod started; its creation where the status has no start time."""
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
    """One assignment per combination of flavors that the pods use; usually one."""
    pods_by_flavors: dict[tuple[tuple[str, str], ...], list[Pod]] = {}
    usage: dict[tuple[tuple[str, str], ...], dict[str, int]] = {}
    for pod in pods:
        node = nodes.get(pod.spec.node_name)
        requests = _requests(pod, node)
        labels = node.labels if node is not None else {}
        flavors = tuple(sorted(_flavors(requests, queue, system, labels, pod.spec.node_selector).items()))
        pods_by_flavors.setdefault(flavors, []).append(pod)
        total = usage.setdefault(flavors, {})
        for resource, amount in requests.items():
            total[resource] = total.get(resource, 0) + amount
    return [
        PodSetAssignment(name, len(members), dict(flavors), usage[flavors], pods_per_node(members))
        for flavors, members in pods_by_flavors.items()
    ]


def _requests(pod: Pod, node: Node | None) -> dict[str, int]:
    memory = node.labels.get(GPU_MEMORY_LABEL, "") if node is not None else ""
    known = int(memory) if memory.isascii() and memory.isdigit() and len(memory) < 12 else 0
    try:
        return quota_requests(pod, known)
    except InputError:
        return {}  # its usage is not known; the store blocks the node of a bound pod that can't be read


def _flavors(
    requests: Mapping[str, int],
    queue: ClusterQueue | None,
    system: QueueSystem,
    labels: Mapping[str, str],
    selector: Mapping[str, str],
) -> dict[str, str]:
    if queue is None:
        return {}
    return {
        resource: _flavor(group, system, labels, selector)
        for group in queue.resource_groups
        for resource in group.resources
        if resource in requests and group.flavors
    }


def _flavor(group: ResourceGroup, system: QueueSystem, labels: Mapping[str, str], selector: Mapping[str, str]) -> str:
    flavors = [system.flavors[quotas.flavor] for quotas in group.flavors if quotas.flavor in system.flavors]
    found = [flavor for flavor in flavors if flavor.node_labels.items() <= labels.items()]
    if len(found) > 1:  # the node has the labels of several
        selected = [flavor for flavor in found if flavor.node_labels and flavor.node_labels.items() <= selector.items()]
        found = [*selected, *found]
    return found[0].name if found else group.flavors[0].flavor
