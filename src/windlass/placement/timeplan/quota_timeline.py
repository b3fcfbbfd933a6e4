"""Quota as it will be at a moment: the tree with what is held of every queue then, and nothing else.

`room` says who holds quota and until when. What a queue's members hold is summed up once; going from one moment to
another takes off those who have ended in between, and only queues that differ are booked on the tree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from windlass.model.queue import QueueSystem
from windlass.model.workload import Workload
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import PlacementInterface, PodSetChoice
from windlass.queueing.quota_node import QuotaNode, Usage
from windlass.queueing.quota_tree import QuotaTree

QueueUsage = tuple[str, Usage]
"""ClusterQueue, and what is held of it."""
TimedQueueUsage = tuple[int | None, QueueUsage]
"""When it ends, where that is known, and what it holds until then."""
UsageByQueue = Mapping[str, Usage]
"""By ClusterQueue."""


class QuotaTimeline:
    """What is held of quota from now on: it only gets less, as one after the other ends."""

    def __init__(self, holders: Iterable[TimedQueueUsage]) -> None:
        total: dict[str, Usage] = {}
        leaving: list[tuple[int, QueueUsage]] = []
        for end, holding in holders:
            _change(total.setdefault(holding[0], {}), holding[1], 1)
            if end is not None:
                leaving.append((end, holding))
        leaving.sort(key=lambda one: one[0])
        self._ends = [end for end, _ in leaving]
        self._leaving = [holding for _, holding in leaving]
        self._after: dict[int, UsageByQueue] = {0: total}
        """So many have left → what the others hold."""
        self._known = [0]

    def at(self, moment: int) -> UsageByQueue:
        """Once everybody has left who has ended by then."""
        gone = bisect_right(self._ends, moment)
        found = self._after.get(gone)
        if found is None:
            place = bisect_right(self._known, gone)
            fewer = self._known[place - 1]
            left = {queue: dict(usage) for queue, usage in self._after[fewer].items()}
            for queue, usage in self._leaving[fewer:gone]:
                _change(left[queue], usage, -1)
            found = self._after[gone] = left
            self._known.insert(place, gone)
        return found


class AmendedQuotaTimeline:
    """The same with a few more who hold something, and without a few others."""

    def __init__(
        self, base: QuotaTimeline, more: Sequence[TimedQueueUsage], less: Sequence[TimedQueueUsage]
    ) -> None:
        self._base = base
        self._changes = [
            *((end, holding, 1) for end, holding in more),
            *((end, holding, -1) for end, holding in less),
        ]
        self._known: dict[int, UsageByQueue] = {}

    def at(self, moment: int) -> UsageByQueue:
        found = self._known.get(moment)
        if found is None:
            left = {queue: dict(usage) for queue, usage in self._base.at(moment).items()}
            for end, (queue, usage), sign in self._changes:
                if end is None or end > moment:
                    _change(left.setdefault(queue, {}), usage, sign)
            found = self._known[moment] = left
        return found


class QuotaAtMoment:
    def __init__(self, system: QueueSystem) -> None:
        self._tree = QuotaTree(system)
        self._shown: dict[str, Usage] = {}

    def active_queue(self, name: str) -> QuotaNode | None:
        """An active queue."""
        return None if name in self._tree.inactive_reasons else self._tree.queues.get(name)

    def set_usage(self, usage_by_queue: UsageByQueue, extra: Iterable[QueueUsage] = ()) -> None:
        """Make the tree hold exactly this."""
        wanted = dict(usage_by_queue)
        for queue, usage in extra:
            wanted[queue] = dict(wanted.get(queue, {}))
            _change(wanted[queue], usage, 1)
        for queue in [name for name in self._shown if name not in wanted]:
            self._tree.queues[queue].remove_usage(self._shown.pop(queue))
        for queue, usage in wanted.items():
            known = self._shown.get(queue)
            if known is usage or known == usage or queue not in self._tree.queues:
                continue
            if known is not None:
                self._tree.queues[queue].remove_usage(known)
            self._tree.queues[queue].add_usage(usage)
            self._shown[queue] = usage


def _change(total: Usage, usage: Usage, sign: int) -> None:
    for cell, amount in usage.items():
        total[cell] = total.get(cell, 0) + sign * amount


def assignment_usage(
    workload: Workload, choices: tuple[PodSetChoice, ...], node: QuotaNode, placer: PlacementInterface
) -> Usage:
    """What the choices take of quota."""
    usage: Usage = {}
    names = [pod_set.name for pod_set in workload.pod_sets]
    requests = PendingWorkload(workload, node, placer).requests
    for choice in choices:
        for resource, amount in requests[names.index(choice.name)].items():
            if amount and resource in choice.flavors:
                cell = (choice.flavors[resource], resource)
                usage[cell] = usage.get(cell, 0) + amount * choice.count
    return usage


def admitted_usage(workload: Workload) -> Usage:
    usage: Usage = {}
    for part in workload.admission.assignments if workload.admission else ():
        for resource, flavor in part.flavors.items():
            cell = (flavor, resource)
            usage[cell] = usage.get(cell, 0) + part.usage.get(resource, 0)
    return usage
