"""Memory of events that watchers have not read yet: bounded for each, and for all of them together.

`server` has one; every `watch_stream` counts its own events here. A watcher that reads too slowly is ended: listing
again costs less than keeping everything for it.
"""

from __future__ import annotations

MAX_WATCHER_BYTES = 16 << 20
MAX_TOTAL_BYTES = 256 << 20
FAIR_BYTES = 1 << 20
"""Watchers below this are never ended for the total."""


class WatchMemory:
    def __init__(self) -> None:
        self.total_bytes = 0

    def add(self, count: int) -> None:
        self.total_bytes += count

    def is_exceeded_by(self, watcher_bytes: int) -> bool:
        """Whether a watcher with so many bytes has to go."""
        if watcher_bytes > MAX_WATCHER_BYTES:
            return True
        return self.total_bytes > MAX_TOTAL_BYTES and watcher_bytes > FAIR_BYTES
