"""A priority queue of future events on the virtual clock: ends of jobs, failures, repairs, checks.

Every script of `simulate.driver` keeps one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

EventT = TypeVar("EventT")


class Timeline(Generic[EventT]):
    def __init__(self) -> None:
        self._events: list[tuple[int, Any, int, EventT]] = []
        self._pushed = 0

    def push(self, at: int, event: EventT, order: Any = 0) -> None:
        """Events of one moment are sorted by `order`, then by the order of pushing."""
        self._pushed += 1
        heapq.heappush(self._events, (at, order, self._pushed, event))

    @property
    def next_at(self) -> int | None:
        return self._events[0][0] if self._events else None

    def pop_due(self, until: int) -> Iterator[tuple[int, EventT]]:
        """Time and event of everything that is due, including events pushed during the iteration."""
        while self._events and self._events[0][0] <= until:
            at, _, _, event = heapq.heappop(self._events)
            yield at, event
