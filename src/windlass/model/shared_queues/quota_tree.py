"""From the queues of another scheduler to cohorts and ClusterQueues: a queue with children is a cohort, a leaf a queue.

Quota that is not given to anybody is shared by all: the cohort at the root has what the queues leave of the cluster, so
`capacity`, the sum over all nodes, is needed. A queue's limit becomes its borrowing limit, what it does not lend its
lending limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from windlass.model.meta import LabelSelector
from windlass.model.queue import (
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    FlavorResourceQuota,
    LocalQueue,
    PreemptionPolicy,
    QueueSystem,
    ResourceFlavor,
    ResourceGroup,
)

UNLIMITED = 10**17
"""More than any cluster has, of any resource in its unit of quota."""
Amounts = Mapping[str, int]
"""Resource → amount in units of quota."""


class SharedQueue(msgspec.Struct, frozen=True):
    """A queue as its project describes it, in units of quota."""

    name: str
    """As `model.queue_names` writes it, with the project's prefix."""
    parent: str = ""
    quota: dict[str, int | None] = msgspec.field(default_factory=dict)
    """What it has by right; None: as much as the cluster has."""
    limit: dict[str, int] = msgspec.field(default_factory=dict)
    """The most that it may use, of the resources that it limits."""
    guarantee: dict[str, int] = msgspec.field(default_factory=dict)
    """The part of its quota that nobody else may use meanwhile."""
    weight_milli: int = 1000
    priority: int = 0
    preempt_min_run_seconds: int | None = None
    reclaim_min_run_seconds: int | None = None
    reclaimable: bool = True
    strict_order: bool = False
    is_closed: bool = False
    inactive_reason: str = ""


class SharedTree:
    """The queues of one project while they are added to a `QueueSystem`."""

    def __init__(self, prefix: str, queues: Iterable[SharedQueue], capacity: Amounts | None) -> None:
        self._root = prefix
        """Name of the cohort above all of them: the prefix alone is the name of no queue."""
        self._queues = {queue.name: queue for queue in queues}
        self._capacity = capacity
        self._children: dict[str, list[SharedQueue]] = {}
        for queue in self._queues.values():
            self._children.setdefault(queue.parent, []).append(queue)
        self._resources = sorted(
            {resource for queue in self._queues.values() for resource in (*queue.quota, *queue.limit, *queue.guarantee)}
        )
        self._flavor = f"{prefix}nodes"

    def add_to(self, system: QueueSystem) -> None:
        if not self._queues:
            return
        system.flavors[self._flavor] = ResourceFlavor(self._flavor, any_topology=True)
        top = self._children.get("", [])
        rest = {
            resource: FlavorResourceQuota(
                max(0, self._of_cluster(resource) - sum(self._subtree_quota(queue, resource) for queue in top))
            )
            for resource in self._resources
        }
        system.cohorts[self._root] = Cohort(self._root, resource_groups=self._groups(rest))
        for queue in self._queues.values():
            if self._children.get(queue.name):
                self._add_cohort(system, queue)
            else:
                self._add_leaf(system, queue)

    def _add_cohort(self, system: QueueSystem, queue: SharedQueue) -> None:
        cells = {}
        for resource in self._resources:
            below = sum(self._subtree_quota(child, resource) for child in self._children[queue.name])
            subtree = self._subtree_quota(queue, resource)
            cells[resource] = self._cell(queue, resource, subtree - below, subtree)
        name = queue.name
        system.cohorts[name] = Cohort(name, self._parent(queue), self._groups(cells), queue.weight_milli)
        names = ", ".join(sorted(child.name.removeprefix(self._root) for child in self._children[name]))
        reason = f"it has queues below it ({names}), and only those take work"
        system.shared_queues[name] = LocalQueue(name, cluster_queue=name, inactive_reason=reason)

    def _add_leaf(self, system: QueueSystem, queue: SharedQueue) -> None:
        name = queue.name
        quotas = {resource: self._subtree_quota(queue, resource) for resource in self._resources}
        cells = {resource: self._cell(queue, resource, amount, amount) for resource, amount in quotas.items()}
        system.queues[name] = ClusterQueue(
            name,
            cohort=self._parent(queue),
            resource_groups=self._groups(cells),
            queueing_strategy="StrictFIFO" if queue.strict_order else "BestEffortFIFO",
            preemption=PreemptionPolicy("LowerPriority", "Any"),
            fair_weight_milli=queue.weight_milli,
            namespace_selector=LabelSelector(),
            stop_policy="Hold" if queue.is_closed else "None",
            inactive_reason=queue.inactive_reason or self._parent_problem(queue),
            ignores_undeclared=True,
            priority=queue.priority,
            preempt_min_run_seconds=self._nearest_preempt_minimum(queue),
            reclaim_min_run_seconds=self._reclaim_minimums(queue),
            reclaimable=queue.reclaimable,
        )
        system.shared_queues[name] = LocalQueue(name, cluster_queue=name)

    def _subtree_quota(self, queue: SharedQueue, resource: str, seen: frozenset[str] = frozenset()) -> int:
        """What it has by right, and at least what those below it have; never more than its limit."""
        own = queue.quota.get(resource, 0)
        amount = self._of_cluster(resource) if own is None else max(own, queue.guarantee.get(resource, 0))
        limit = queue.limit.get(resource)
        amount = amount if limit is None else min(amount, limit)
        if queue.name in seen:
            return amount  # a cycle, which makes its queues inactive
        below = self._children.get(queue.name, [])
        return max(amount, sum(self._subtree_quota(child, resource, seen | {queue.name}) for child in below))

    def _cell(self, queue: SharedQueue, resource: str, nominal: int, subtree: int) -> FlavorResourceQuota:
        limit, guarantee = queue.limit.get(resource), queue.guarantee.get(resource, 0)
        return FlavorResourceQuota(
            max(0, nominal),
            None if limit is None else max(0, limit - subtree),
            subtree - min(guarantee, subtree) if guarantee else None,
        )

    def _of_cluster(self, resource: str) -> int:
        return UNLIMITED if self._capacity is None else self._capacity.get(resource, 0)

    def _groups(self, cells: dict[str, FlavorResourceQuota]) -> tuple[ResourceGroup, ...]:
        if not cells:
            return ()
        return (ResourceGroup(tuple(cells), (FlavorQuotas(self._flavor, cells),)),)

    def _parent(self, queue: SharedQueue) -> str:
        return queue.parent or self._root

    def _path(self, queue: SharedQueue) -> list[SharedQueue]:
        """From the queue up, as far as its parents exist."""
        path: list[SharedQueue] = []
        current: SharedQueue | None = queue
        while current is not None and current not in path:
            path.append(current)
            current = self._queues.get(current.parent)
        return path

    def _parent_problem(self, queue: SharedQueue) -> str:
        last = self._path(queue)[-1]
        if last.parent and last.parent not in self._queues:
            return f"its parent queue {last.parent.removeprefix(self._root)} doesn't exist"
        return ""

    def _nearest_preempt_minimum(self, queue: SharedQueue) -> int | None:
        minimums = (above.preempt_min_run_seconds for above in self._path(queue))
        return next((minimum for minimum in minimums if minimum is not None), None)

    def _reclaim_minimums(self, queue: SharedQueue) -> tuple[tuple[str, int], ...]:
        path = reversed(self._path(queue))
        return tuple(
            (above.name, above.reclaim_min_run_seconds) for above in path if above.reclaim_min_run_seconds is not None
        )
