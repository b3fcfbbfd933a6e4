"""What happened to which GPU within the exporter's window, counted: Xids and clock events."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable

from windlass.node.exporter.collection_context import WINDOW_SECONDS

DeviceEvent = tuple[str, int]
"""UUID of a GPU, and the Xid or the bit of a clock event."""
MOST_KEPT = 1 << 14


class RecentEvents:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, DeviceEvent]] = deque(maxlen=MOST_KEPT)

    def add(self, uuid: str, code: int) -> None:
        self._seen.append((self._clock(), (uuid, code)))

    def counts(self) -> Counter[DeviceEvent]:
        """How often each happened within the window; what is older is forgotten."""
        oldest = self._clock() - WINDOW_SECONDS
        while self._seen and self._seen[0][0] < oldest:
            self._seen.popleft()
        return Counter(what for _, what in list(self._seen))
