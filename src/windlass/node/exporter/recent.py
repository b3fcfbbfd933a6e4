"""Counts of Xids and clock events per GPU within the exporter's window, for `exporter`."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable

from windlass.node.exporter.collection_context import WINDOW_SECONDS

DeviceEvent = tuple[str, int]
"""UUID of a GPU, and the Xid or the bit of a clock event."""
MAX_KEPT = 1 << 14


class RecentEvents:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._events: deque[tuple[float, DeviceEvent]] = deque(maxlen=MAX_KEPT)

    def add(self, uuid: str, code: int) -> None:
        self._events.append((self._clock(), (uuid, code)))

    def counts(self) -> Counter[DeviceEvent]:
        """Counts within the window; older events are dropped."""
        oldest = self._clock() - WINDOW_SECONDS
        while self._events and self._events[0][0] < oldest:
            self._events.popleft()
        return Counter(event for _, event in list(self._events))
