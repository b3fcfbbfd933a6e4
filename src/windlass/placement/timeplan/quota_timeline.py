"""The quota in use at a moment, now or later.

`occupancy` says which workloads use quota and until when. Usage is summed up once per queue; another moment only
subtracts what has ended in between, and only queues that differ are changed in the quota tree.
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
"""ClusterQueue, and the quota used in it."""
TimedQueueUsage = tuple[int | None, QueueUsage]
"""The end, where it is known, and the quota that is used until then."""
UsageByQueue = Mapping[str, Usage]
"""By ClusterQueue."""


class QuotaTimeline:
    """Quota in use from now on: it only shrinks, as workloads end."""

    def __init__(self, holders: Iterable[TimedQueueUsage]) -> None:
        total: dict[str, Usage] = {}
        ending: list[tuple[int, QueueUsage]] = []
        for end, queue_usage in holders:
            _add(total.setdefault(queue_usage[0], {}), queue_usage[1], 1)
            if end is not None:
                ending.append((end, queue_usage))
        ending.sort(key=lambda entry: entry[0])
        self._ends = [end for end, _ in ending]
        self._ending = [queue_usage for _, queue_usage in ending]
        self._usage_by_count: dict[int, UsageByQueue] = {0: total}
        """Number of workloads that have ended → what the others use. Only moments that were asked for are computed."""
        self._computed_counts = [0]

    def at(self, moment: int) -> UsageByQueue:
        """Usage without the workloads that have ended by the moment."""
        ended = bisect_right(self._ends, moment)
        usage_by_queue = self._usage_by_count.get(ended)
        if usage_by_queue is None:
            place = bisect_right(self._computed_counts, ended)
            nearest = self._computed_counts[place - 1]
            remaining = {queue: dict(usage) for queue, usage in self._usage_by_count[nearest].items()}
            for queue, usage in self._ending[nearest:ended]:
                _add(remaining[queue], usage, -1)
            usage_by_queue = self._usage_by_count[ended] = remaining
            self._computed_counts.insert(place, ended)
        return usage_by_queue


class AmendedQuotaTimeline:
    """A timeline with a few workloads more and a few less."""

    def __init__(self, base: QuotaTimeline, more: Sequence[TimedQueueUsage], less: Sequence[TimedQueueUsage]) -> None:
        self._base = base
        self._changes = [
            *((end, queue_usage, 1) for end, queue_usage in more),
            *((end, queue_usage, -1) for end, queue_usage in less),
        ]
        self._usage_by_moment: dict[int, UsageByQueue] = {}

    def at(self, moment: int) -> UsageByQueue:
        usage_by_queue = self._usage_by_moment.get(moment)
        if usage_by_queue is None:
            remaining = {queue: dict(usage) for queue, usage in self._base.at(moment).items()}
            for end, (queue, usage), sign in self._changes:
                if end is None or end > moment:
                    _add(remaining.setdefault(queue, {}), usage, sign)
            usage_by_queue = self._usage_by_moment[moment] = remaining
        return usage_by_queue


class QuotaAtMoment:
    def __init__(self, system: QueueSystem) -> None:
        self._tree = QuotaTree(system)
        self._current: dict[str, Usage] = {}

    def active_queue(self, name: str) -> QuotaNode | None:
        """The ClusterQueue's node of the quota tree; None where it is missing or inactive."""
        return None if name in self._tree.inactive_reasons else self._tree.queues.get(name)

    def set_usage(self, usage_by_queue: UsageByQueue, extra: Iterable[QueueUsage] = ()) -> None:
        """Change the quota tree so that it has exactly this usage."""
        wanted = dict(usage_by_queue)
        for queue, usage in extra:
            # Copied before the change: the timeline keeps its own for other moments.
            wanted[queue] = dict(wanted.get(queue, {}))
            _add(wanted[queue], usage, 1)
        for queue in [name for name in self._current if name not in wanted]:
            self._tree.queues[queue].remove_usage(self._current.pop(queue))
        for queue, usage in wanted.items():
            current = self._current.get(queue)
            # Identity first: most queues have the same object as at the last moment.
            if current is usage or current == usage or queue not in self._tree.queues:
                continue
            if current is not None:
                self._tree.queues[queue].remove_usage(current)
            self._tree.queues[queue].add_usage(usage)
            self._current[queue] = usage


def _add(total: Usage, usage: Usage, sign: int) -> None:
    for cell, amount in usage.items():
        total[cell] = total.get(cell, 0) + sign * amount


def assignment_usage(
    workload: Workload, choices: tuple[PodSetChoice, ...], node: QuotaNode, placer: PlacementInterface
) -> Usage:
    """The quota that the workload uses with these flavors."""
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
    for assignment in workload.admission.assignments if workload.admission else ():
        for resource, flavor in assignment.flavors.items():
            cell = (flavor, resource)
            usage[cell] = usage.get(cell, 0) + assignment.usage.get(resource, 0)
    return usage
