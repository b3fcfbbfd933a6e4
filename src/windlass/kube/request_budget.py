"""How much a role may ask of its API server: requests a second, with a burst; and what it has asked for so far.

`kube.client` waits here before every attempt, also before opening a watch. Leases are excepted: a leader that waits
for its own requests would lose its lease. So is the state of `windlass freeze`, without which nothing is written.
`scheduler.api_metrics` shows the counts.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import msgspec

from windlass.kube.freeze import FREEZE_CONFIG_MAP, LEASE_PATHS
from windlass.model.errors import InputError

_FREEZE_PATH = f"/{FREEZE_CONFIG_MAP}"


class RequestRate(msgspec.Struct, frozen=True):
    per_second: float = 0.0
    """0: no limit."""
    burst: int = 0
    """So many may be sent at once after a pause; 0: as many as in two seconds."""

    def __post_init__(self) -> None:
        if self.per_second < 0 or self.burst < 0:
            raise InputError("a rate of requests can't be negative", remedy="use 0 for no limit, or a positive number")

    @property
    def most_at_once(self) -> float:
        return max(1.0, self.burst or 2 * self.per_second)


NO_LIMIT = RequestRate()


class RequestBudget:
    """A token bucket: requests are sent in the order in which they asked, each as soon as the rate allows it."""

    def __init__(self, rate: RequestRate) -> None:
        self.rate = rate
        self.seconds_waited = 0.0
        self._tokens = rate.most_at_once
        """Below 0: so many requests wait already."""
        self._at = time.monotonic()

    async def wait(self, path: str) -> None:
        if not self.rate.per_second or path.startswith(LEASE_PATHS) or path.endswith(_FREEZE_PATH):
            return
        now = time.monotonic()
        refilled = self._tokens + (now - self._at) * self.rate.per_second
        self._tokens, self._at = min(refilled, self.rate.most_at_once) - 1, now
        seconds = -self._tokens / self.rate.per_second
        if seconds > 0:
            self.seconds_waited += seconds
            await asyncio.sleep(seconds)


class ApiTraffic:
    """What was asked of the server, and what it has answered."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        """Method (WATCH for a watch) and code of the answer (`<error>` for none) → requests, as client-go counts."""
        self.bytes_sent = self.bytes_received = 0
        """Of bodies, as they are before compression."""
        self.open_watches = 0

    def count(self, method: str, code: str, sent: int = 0, received: int = 0) -> None:
        self.requests[method, code] += 1
        self.bytes_sent += sent
        self.bytes_received += received
