"""A work queue as in client-go: each key once, immediately or at a given time, with back-off after failures.

`controller_loop` owns one for all controllers. It has no clock: the caller passes the time, so that tests can play
an hour in a millisecond.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import Generic, TypeVar

Item = TypeVar("Item")
INITIAL_BACKOFF, MAX_BACKOFF = 0.05, 60.0


class WorkQueue(Generic[Item]):
    def __init__(self) -> None:
        self._ready: OrderedDict[Item, None] = OrderedDict()
        self._delayed: list[tuple[float, int, Item]] = []
        self._due_at: dict[Item, float] = {}
        self._failures: dict[Item, int] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, item: Item) -> None:
        self._ready[item] = None

    def add_at(self, item: Item, moment: float) -> None:
        """Not before `moment`; an earlier time that is queued already stays."""
        known = self._due_at.get(item)
        if known is not None and known <= moment:
            return
        self._due_at[item] = moment
        self._serial += 1
        heapq.heappush(self._delayed, (moment, self._serial, item))

    def add_rate_limited(self, item: Item, now: float) -> float:
        """Queues again after a back-off that doubles with each failure; returns the back-off."""
        count = self._failures.get(item, 0)
        self._failures[item] = count + 1
        backoff: float = min(INITIAL_BACKOFF * 2 ** min(count, 20), MAX_BACKOFF)
        self.add_at(item, now + backoff)
        return backoff

    def forget(self, item: Item) -> None:
        self._failures.pop(item, None)

    def pop(self, now: float) -> Item | None:
        """The next key; None if nothing is due."""
        self._move_due(now)
        if not self._ready:
            return None
        item, _ = self._ready.popitem(last=False)
        return item

    def next_due(self) -> float | None:
        """When the next delayed item is due."""
        while self._delayed and self._due_at.get(self._delayed[0][2]) != self._delayed[0][0]:
            heapq.heappop(self._delayed)
        return self._delayed[0][0] if self._delayed else None

    def _move_due(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            moment, _, item = heapq.heappop(self._delayed)
            if self._due_at.get(item) == moment:
                del self._due_at[item]
                self._ready[item] = None
