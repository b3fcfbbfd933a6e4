"""A work queue: what is to be looked at, each thing once, at once or at a moment, slower where it keeps failing.

`controllers.loop` owns one for all workers. It knows no clock: whoever takes work out says what time it is, so that
tests play an hour in a millisecond.
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
        self._later: list[tuple[float, int, Item]] = []
        self._due: dict[Item, float] = {}
        self._failures: dict[Item, int] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, item: Item) -> None:
        self._ready[item] = None

    def add_at(self, item: Item, moment: float) -> None:
        """Not before the moment; an earlier one that is known already stands."""
        known = self._due.get(item)
        if known is not None and known <= moment:
            return
        self._due[item] = moment
        self._serial += 1
        heapq.heappush(self._later, (moment, self._serial, item))

    def add_rate_limited(self, item: Item, now: float) -> float:
        """Again after a pause that doubles with each failure; returns the pause."""
        count = self._failures.get(item, 0)
        self._failures[item] = count + 1
        pause: float = min(INITIAL_BACKOFF * 2 ** min(count, 20), MAX_BACKOFF)
        self.add_at(item, now + pause)
        return pause

    def forget(self, item: Item) -> None:
        self._failures.pop(item, None)

    def pop(self, now: float) -> Item | None:
        """The next thing to look at; None if nothing is due."""
        self._ripen(now)
        if not self._ready:
            return None
        item, _ = self._ready.popitem(last=False)
        return item

    def next_due(self) -> float | None:
        """When the next delayed item is due."""
        while self._later and self._due.get(self._later[0][2]) != self._later[0][0]:
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    def _ripen(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            moment, _, item = heapq.heappop(self._later)
            if self._due.get(item) == moment:
                del self._due[item]
                self._ready[item] = None
