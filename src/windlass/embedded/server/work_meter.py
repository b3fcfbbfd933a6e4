"""Fairness between users: large requests of one may not take the loop from the others.

A write or a list runs between two turns of the loop, and everybody waits for it. Each user has an account of seconds
that refills slowly; requests that take long draw from it: processor time, so that nobody pays for a busy machine. While
it is overdrawn, large requests of that user get 429 with a Retry-After, and small ones are served. `read_handlers` and
`write_handlers` ask.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from windlass.embedded.api.errors import ApiError

CAPACITY_SECONDS = 5.0
REFILL = 0.25
"""Seconds of work in a second, for each user."""
FREE_SECONDS = 0.02
"""A request that takes less draws nothing."""
LARGE_BODY_BYTES = 64 << 10
LARGE_LIST = 1000
"""Objects of a kind; listing more is a large request, unless it is limited to fewer."""
LARGE_SELECTOR = 4096
"""Characters: parsing 200,000 takes a tenth of a second."""
MAX_USERS = 1000


class WorkMeter:
    def __init__(
        self, clock: Callable[[], float] = time.monotonic, worked: Callable[[], float] = time.thread_time
    ) -> None:
        """`clock` says how much an account has refilled, `worked` how long a request takes."""
        self._clock = clock
        self._worked = worked
        self._accounts: dict[str, tuple[float, float]] = {}
        """User → (balance, as of when)."""

    @contextlib.contextmanager
    def measure(self, user: str, is_large: bool) -> Iterator[None]:
        """Measures the work inside; nothing in it may wait. Raises 429 instead if the user has to wait."""
        balance = self._balance(user)
        if is_large and balance < 0:
            wait = max(1, round(-balance / REFILL))
            message = f"large requests of {user} have used too much of the server's time; retry in {wait} s"
            raise ApiError.too_many_requests(message, retry=wait)
        started = self._worked()
        try:
            yield
        finally:
            taken = self._worked() - started
            if taken > FREE_SECONDS:
                self._accounts[user] = balance - taken, self._clock()

    def _balance(self, user: str) -> float:
        balance, since = self._accounts.get(user, (CAPACITY_SECONDS, 0.0))
        balance += (self._clock() - since) * REFILL
        if balance >= CAPACITY_SECONDS or len(self._accounts) > MAX_USERS:
            self._accounts.pop(user, None)
        return min(balance, CAPACITY_SECONDS)
