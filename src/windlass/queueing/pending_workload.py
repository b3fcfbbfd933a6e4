"""A workload that waits, as the cycle sees it: what it asks for, and how far its search for flavors has got.

Made by `admit` for every workload with a queue; `lines` orders them, `flavors` assigns them.
"""

from __future__ import annotations

from windlass.model.queue import ResourceFlavor
from windlass.model.workload import PodSet, Workload
from windlass.queueing.placement_interface import PlacementInterface
from windlass.queueing.quota_node import QuotaNode, local_queue_key, queue_order_timestamp

PODS = "pods"
SortKey = tuple[bool, int, bool, int, str, str]


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
        self.requests = tuple(self._per_pod(pod_set) for pod_set in workload.pod_sets)
        self.pod_set_groups = _groups(workload.pod_sets)
        self.tried_flavors: tuple[dict[str, int], ...] = ()
        """Per pod set and resource, the last flavor that was looked at; -1: all of them."""
        self.pinned_flavors: tuple[dict[str, str], ...] = ()
        """While it is looked at again in one cycle, it keeps to the flavors of the first look."""
        self.nominations = 0
        """Rounds in which it was looked at."""
        self._refusals: dict[tuple[int, str], str] = {}
        self._shape: int | None = None

    def reset(self, placement: PlacementInterface) -> None:
        """Another decision on the same workload, in the same tree."""
        self.placement, self.tried_flavors, self.pinned_flavors, self.nominations = placement, (), (), 0

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(pod_set.count for pod_set in self.workload.pod_sets)

    @property
    def sort_key(self) -> SortKey:
        """For whom others went, then higher priority, then who has begun, then older, then by UID."""
        workload = self.workload
        return (
            not workload.nominated,
            -self.priority,
            not workload.gang_running,
            self.queued_at,
            self.uid,
            self.key,
        )

    @property
    def has_flavors_left(self) -> bool:
        """Sets whose searches are out of step could go round for ever, so each flavor gets its turn only once."""
        flavors = sum(len(group.flavors) for group in self.node.spec.resource_groups)
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
        """A number of its queue's own, equal for workloads whose answer from quota is the same."""
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
                tuple(self.ineligible_reason(index, flavors[name]) for name in names)
                for index in range(len(self.requests))
            ),
        )

    def _per_pod(self, pod_set: PodSet) -> dict[str, int]:
        requests = dict(self.placement.requests(self.workload, pod_set))
        covered = any(PODS in group.resources for group in self.node.spec.resource_groups)
        requests.pop(PODS, None)
        if covered:
            requests[PODS] = 1
        return requests


def _groups(pod_sets: tuple[PodSet, ...]) -> tuple[tuple[int, ...], ...]:
    """Sets of one topology group take the same flavors; every other set chooses alone."""
    groups: dict[str, list[int]] = {}
    for index, pod_set in enumerate(pod_sets):
        name = pod_set.topology.group if pod_set.topology else ""
        groups.setdefault(f"group {name}" if name else str(index), []).append(index)
    return tuple(tuple(members) for members in groups.values())
