"""Events to come on the virtual clock, in the order in which they happen.

Every script of the driver (`simulate.driver`) keeps one: the ends of what runs, failures and repairs, looks.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

E = TypeVar("E")


class Timeline(Generic[E]):
    def __init__(self) -> None:
        self._events: list[tuple[int, Any, int, E]] = []
        self._pushed = 0

    def push(self, at: int, event: E, order: Any = 0) -> None:
        """Of the events of one moment those of a lower order come first; of one order, those that were pushed first."""
        self._pushed += 1
        heapq.heappush(self._events, (at, order, self._pushed, event))

    @property
    def next_at(self) -> int | None:
        return self._events[0][0] if self._events else None

    def pop_due(self, until: int) -> Iterator[tuple[int, E]]:
        """Moment and event of all that is due; also of what is pushed meanwhile."""
        while self._events and self._events[0][0] <= until:
            at, _, _, event = heapq.heappop(self._events)
            yield at, event
