"""A workload that waits, as the cycle sees it: what it asks for, and how far its search for flavors has got.

Made by `admit` for every workload with a queue; `lines` orders them, `flavors` assigns them.
"""

from __future__ import annotations

from windlass.model.queue import ResourceFlavor
from windlass.model.workload import PodSet, Workload
from windlass.queueing.node import QuotaNode, local_queue_key, queue_time
from windlass.queueing.site import Site

PODS = "pods"
SortKey = tuple[bool, int, bool, int, str, str]


class Pending:
    __slots__ = (
        "_refusals",
        "_shape",
        "groups",
        "key",
        "local_queue",
        "looks",
        "node",
        "pinned",
        "priority",
        "queued_at",
        "requests",
        "site",
        "tried",
        "uid",
        "workload",
    )

    def __init__(self, workload: Workload, node: QuotaNode, site: Site) -> None:
        self.workload = workload
        self.key = workload.key
        self.node = node
        self.site = site
        self.priority = workload.priority
        self.queued_at = queue_time(workload)
        self.uid = workload.uid or workload.key
        self.local_queue = local_queue_key(workload)
        self.requests = tuple(self._per_pod(pod_set) for pod_set in workload.pod_sets)
        self.groups = _groups(workload.pod_sets)
        self.tried: tuple[dict[str, int], ...] = ()
        """Per pod set and resource, the last flavor that was looked at; -1: all of them."""
        self.pinned: tuple[dict[str, str], ...] = ()
        """While it is looked at again in one cycle, it keeps to the flavors of the first look."""
        self.looks = 0
        """Rounds in which it was looked at."""
        self._refusals: dict[tuple[int, str], str] = {}
        self._shape: int | None = None

    def begin(self, site: Site) -> None:
        """Another decision on the same workload, in the same tree."""
        self.site, self.tried, self.pinned, self.looks = site, (), (), 0

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(pod_set.count for pod_set in self.workload.pod_sets)

    @property
    def sort_key(self) -> SortKey:
        """For whom others went, then higher priority, then who has begun, then older, then by UID."""
        workload = self.workload
        return (not workload.promised, -self.priority, not workload.begun, self.queued_at, self.uid, self.key)

    @property
    def has_flavors_left(self) -> bool:
        """Sets whose searches are out of step could go round for ever, so each flavor gets its turn only once."""
        flavors = sum(len(group.flavors) for group in self.node.spec.groups)
        if self.looks > flavors * len(self.requests):
            return False
        return any(index != -1 for indices in self.tried for index in indices.values())

    def refusal(self, index: int, flavor: ResourceFlavor) -> str:
        known = self._refusals.get((index, flavor.name))
        if known is None:
            known = self.site.eligible(self.workload.pod_sets[index], flavor)
            self._refusals[index, flavor.name] = known
        return known

    def shape(self, flavors: dict[str, ResourceFlavor]) -> int:
        """A number of its queue's own, equal for workloads whose answer from quota is the same."""
        if self._shape is None:
            shapes = self.node.shapes
            self._shape = shapes.setdefault(self._describe(flavors), len(shapes))
        return self._shape

    def _describe(self, flavors: dict[str, ResourceFlavor]) -> tuple[object, ...]:
        names = [quotas.flavor for group in self.node.spec.groups for quotas in group.flavors]
        return (
            self.priority,
            self.workload.preemption_policy,
            self.workload.minimum,
            tuple(
                (pod_set.count, pod_set.min_count, tuple(sorted(self.requests[index].items())))
                for index, pod_set in enumerate(self.workload.pod_sets)
            ),
            self.groups,
            tuple(
                tuple(self.refusal(index, flavors[name]) for name in names)
                for index in range(len(self.requests))
            ),
        )

    def _per_pod(self, pod_set: PodSet) -> dict[str, int]:
        requests = dict(self.site.requests(self.workload, pod_set))
        covered = any(PODS in group.resources for group in self.node.spec.groups)
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
