"""What waits in one queue, in order: its head is the next to be looked at.

`admit` fills the lines, `cycle` takes one head of each per round and puts back those that may try again. A heap per
line; in a usage-based queue a heap per local queue, of which the one that consumed the least goes first.
"""

from __future__ import annotations

from heapq import heappop, heappush

from windlass.queueing.pending_workload import PendingWorkload, SortKey
from windlass.queueing.placement_interface import HoldMessage
from windlass.queueing.quota_node import QuotaNode
from windlass.queueing.usage_history import LocalQueueUsage

_Heap = list[tuple[SortKey, PendingWorkload]]


class PendingQueue:
    __slots__ = ("_heaps", "_ledger", "blocked_by", "inadmissible_shapes", "node")

    def __init__(self, node: QuotaNode, ledger: LocalQueueUsage | None) -> None:
        self.node = node
        self._ledger = ledger if node.spec.usage_based else None
        self._heaps: dict[str, _Heap] = {}
        self.blocked_by: PendingWorkload | None = None
        """The head of a strict queue that can't be admitted: nothing behind it is looked at."""
        self.inadmissible_shapes: dict[int, tuple[str, HoldMessage]] = {}
        """What quota refused once in this decision it refuses again: code and message by shape."""

    @property
    def is_strict(self) -> bool:
        return self.node.spec.queueing_strategy == "StrictFIFO"

    def push(self, pending: PendingWorkload) -> None:
        name = pending.local_queue if self._ledger is not None else ""
        heappush(self._heaps.setdefault(name, []), (pending.sort_key, pending))

    def pop(self) -> PendingWorkload | None:
        if self.blocked_by is not None:
            return None
        return self.pop_ignoring_block()

    def pop_ignoring_block(self) -> PendingWorkload | None:
        """Also behind a head that blocks the line."""
        ledger = self._ledger
        if ledger is None:
            only = self._heaps.get("")
            return heappop(only)[1] if only else None
        waiting = {name: heap for name, heap in self._heaps.items() if heap}
        if not waiting:
            return None
        name = min(waiting, key=lambda queue: (ledger.usage(queue), waiting[queue][0][0]))
        return heappop(waiting[name])[1]
