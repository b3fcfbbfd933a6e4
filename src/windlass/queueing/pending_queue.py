"""The pending workloads of one ClusterQueue, in order; the head is the next to be considered.

`admit` fills the queues, pops one head of each per cycle and pushes back those that may try again. Each queue is a
heap; a usage-based queue has a heap per LocalQueue, and the LocalQueue that consumed the least goes first.
"""

from __future__ import annotations

from heapq import heappop, heappush

from windlass.queueing.pending_workload import PendingWorkload, SortKey
from windlass.queueing.placement_interface import HoldMessage
from windlass.queueing.quota_node import QuotaNode
from windlass.queueing.usage_history import LocalQueueUsage

_Heap = list[tuple[SortKey, PendingWorkload]]


class PendingQueue:
    __slots__ = ("_heaps", "_local_queue_usage", "blocked_by", "inadmissible_shapes", "node")

    def __init__(self, node: QuotaNode, local_queue_usage: LocalQueueUsage | None) -> None:
        self.node = node
        self._local_queue_usage = local_queue_usage if node.spec.usage_based else None
        self._heaps: dict[str, _Heap] = {}
        self.blocked_by: PendingWorkload | None = None
        """The head of a StrictFIFO queue that can't be admitted: nothing behind it is considered."""
        self.inadmissible_shapes: dict[int, tuple[str, HoldMessage]] = {}
        """Shape → code and message of its refusal; quota refuses the same shape again in this decision."""

    @property
    def is_strict(self) -> bool:
        return self.node.spec.queueing_strategy == "StrictFIFO"

    def push(self, pending: PendingWorkload) -> None:
        name = pending.local_queue if self._local_queue_usage is not None else ""
        heappush(self._heaps.setdefault(name, []), (pending.sort_key, pending))

    def waiting(self) -> list[PendingWorkload]:
        """All of them, in no order."""
        return [pending for heap in self._heaps.values() for _, pending in heap]

    def pop(self) -> PendingWorkload | None:
        if self.blocked_by is not None:
            return None
        return self.pop_ignoring_block()

    def pop_ignoring_block(self) -> PendingWorkload | None:
        """As `pop`, also behind a head that blocks the queue."""
        local_queue_usage = self._local_queue_usage
        if local_queue_usage is None:
            heap = self._heaps.get("")
            return heappop(heap)[1] if heap else None
        waiting = {name: heap for name, heap in self._heaps.items() if heap}
        if not waiting:
            return None
        name = min(waiting, key=lambda queue: (local_queue_usage.usage(queue), waiting[queue][0][0]))
        return heappop(waiting[name])[1]
