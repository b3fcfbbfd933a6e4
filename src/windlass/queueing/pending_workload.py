"""A pending workload as admission cycles see it: its requests, and how far its flavor search has got.

Made by `admit` for every workload with a queue; `pending_queue` sorts them, `flavor_assigner` assigns flavors.
"""

from __future__ import annotations

from windlass.model.queue import ResourceFlavor
from windlass.model.workload import PodSet, Workload
from windlass.queueing.placement_interface import PlacementInterface
from windlass.queueing.quota_node import QuotaNode, local_queue_key, queue_order_timestamp

PODS = "pods"
SortKey = tuple[bool, int, bool, int, str, str]


def workload_sort_key(workload: Workload) -> SortKey:
    """Workloads for which others were evicted, then higher priority, then started gangs, then older, then UID."""
    return (
        not workload.nominated,
        -workload.priority,
        not workload.gang_running,
        queue_order_timestamp(workload),
        workload.uid or workload.key,
        workload.key,
    )


class PendingWorkload:
    __slots__ = (
        "_refusals",
        "_shape",
        "key",
        "local_queue",
        "node",
        "nominations",
        "pinned_flavors",
        "placement",
        "pod_set_groups",
        "priority",
        "queued_at",
        "requests",
        "tried_flavors",
        "uid",
        "workload",
    )

    def __init__(self, workload: Workload, node: QuotaNode, placement: PlacementInterface) -> None:
        self.workload = workload
        self.key = workload.key
        self.node = node
        self.placement = placement
        self.priority = workload.priority
        self.queued_at = queue_order_timestamp(workload)
        self.uid = workload.uid or workload.key
        self.local_queue = local_queue_key(workload)
        self.requests = tuple(self._requests_per_pod(pod_set) for pod_set in workload.pod_sets)
        self.pod_set_groups = _group_pod_sets(workload.pod_sets)
        self.tried_flavors: tuple[dict[str, int], ...] = ()
        """Per pod set: resource → index of the last flavor that was tried; -1: all were."""
        self.pinned_flavors: tuple[dict[str, str], ...] = ()
        """Per pod set: resource → the only flavor allowed, while it is nominated again within one cycle."""
        self.nominations = 0
        """Cycles in which it was nominated."""
        self._refusals: dict[tuple[int, str], str] = {}
        self._shape: int | None = None

    def reset(self, placement: PlacementInterface) -> None:
        """Before another decision on the same workload with the same quota tree."""
        self.placement, self.tried_flavors, self.pinned_flavors, self.nominations = placement, (), (), 0

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(pod_set.count for pod_set in self.workload.pod_sets)

    @property
    def sort_key(self) -> SortKey:
        return workload_sort_key(self.workload)

    @property
    def has_flavors_left(self) -> bool:
        """Whether the next cycle should continue its flavor search."""
        flavors = sum(len(group.flavors) for group in self.node.spec.resource_groups)
        # Pod sets whose searches are out of step could continue for ever, so the number of nominations is bounded.
        if self.nominations > flavors * len(self.requests):
            return False
        return any(index != -1 for indices in self.tried_flavors for index in indices.values())

    def ineligible_reason(self, index: int, flavor: ResourceFlavor) -> str:
        known = self._refusals.get((index, flavor.name))
        if known is None:
            known = self.placement.ineligible_reason(self.workload.pod_sets[index], flavor)
            self._refusals[index, flavor.name] = known
        return known

    def shape(self, flavors: dict[str, ResourceFlavor]) -> int:
        """A number, unique within its queue, that is equal for workloads on which quota decides the same."""
        if self._shape is None:
            shapes = self.node.request_shapes
            self._shape = shapes.setdefault(self._describe(flavors), len(shapes))
        return self._shape

    def _describe(self, flavors: dict[str, ResourceFlavor]) -> tuple[object, ...]:
        names = [quotas.flavor for group in self.node.spec.resource_groups for quotas in group.flavors]
        return (
            self.priority,
            self.workload.preemption_policy,
            self.workload.min_pods,
            tuple(
                (pod_set.count, pod_set.min_count, tuple(sorted(self.requests[index].items())))
                for index, pod_set in enumerate(self.workload.pod_sets)
            ),
            self.pod_set_groups,
            tuple(
                # Stands for selectors, tolerations and affinity: quota sees no more of them than this.
                tuple(self.ineligible_reason(index, flavors[name]) for name in names)
                for index in range(len(self.requests))
            ),
        )

    def _requests_per_pod(self, pod_set: PodSet) -> dict[str, int]:
        requests = dict(self.placement.requests(self.workload, pod_set))
        counts_pods = any(PODS in group.resources for group in self.node.spec.resource_groups)
        # Every pod counts as one, whatever it requests; and only where the queue has quota for pods.
        requests.pop(PODS, None)
        if counts_pods:
            requests[PODS] = 1
        return requests


def _group_pod_sets(pod_sets: tuple[PodSet, ...]) -> tuple[tuple[int, ...], ...]:
    """Indices of pod sets by group: pod sets of one topology group take the same flavors, others are on their own."""
    groups: dict[str, list[int]] = {}
    for index, pod_set in enumerate(pod_sets):
        name = pod_set.topology.group if pod_set.topology else ""
        groups.setdefault(f"group {name}" if name else str(index), []).append(index)
    return tuple(tuple(members) for members in groups.values())
