"""What waits in one queue, in order: its head is the next to be looked at.

`admit` fills the lines, `cycle` takes one head of each per round and puts back those that may try again. A heap per
line; in a usage-based queue a heap per local queue, of which the one that consumed the least goes first.
"""

from __future__ import annotations

from heapq import heappop, heappush

from windlass.queueing.history import Ledger
from windlass.queueing.node import QuotaNode
from windlass.queueing.pending import Pending, SortKey
from windlass.queueing.site import Said

_Heap = list[tuple[SortKey, Pending]]


class Line:
    __slots__ = ("_heaps", "_ledger", "blocked_by", "node", "parked_shapes")

    def __init__(self, node: QuotaNode, ledger: Ledger | None) -> None:
        self.node = node
        self._ledger = ledger if node.spec.usage_based else None
        self._heaps: dict[str, _Heap] = {}
        self.blocked_by: Pending | None = None
        """The head of a strict queue that can't be admitted: nothing behind it is looked at."""
        self.parked_shapes: dict[int, tuple[str, Said]] = {}
        """What quota refused once in this decision it refuses again: code and message by shape."""

    @property
    def is_strict(self) -> bool:
        return self.node.spec.strategy == "StrictFIFO"

    def push(self, pending: Pending) -> None:
        name = pending.local_queue if self._ledger is not None else ""
        heappush(self._heaps.setdefault(name, []), (pending.sort_key, pending))

    def pop(self) -> Pending | None:
        if self.blocked_by is not None:
            return None
        return self.pop_any()

    def pop_any(self) -> Pending | None:
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
