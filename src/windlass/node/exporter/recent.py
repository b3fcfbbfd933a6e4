"""What happened to which GPU within the exporter's window, counted: Xids and clock events."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable

from windlass.node.exporter.view import WINDOW_SECONDS

Happening = tuple[str, int]
"""UUID of a GPU, and the Xid or the bit of a clock event."""
MOST_KEPT = 1 << 14


class Recent:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, Happening]] = deque(maxlen=MOST_KEPT)

    def add(self, uuid: str, number: int) -> None:
        self._seen.append((self._clock(), (uuid, number)))

    def counts(self) -> Counter[Happening]:
        """How often each happened within the window; what is older is forgotten."""
        oldest = self._clock() - WINDOW_SECONDS
        while self._seen and self._seen[0][0] < oldest:
            self._seen.popleft()
        return Counter(what for _, what in list(self._seen))
