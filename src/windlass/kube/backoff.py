"""Waiting longer after each failure, with jitter, so that many clients don't come back at the same moment."""

from __future__ import annotations

import random


class Backoff:
    def __init__(self, first: float = 0.5, most: float = 30.0, draw: random.Random | None = None) -> None:
        self._first, self._most = first, most
        self._draw = draw or random.Random()
        self._next = first

    def next(self, at_least: float = 0.0) -> float:
        """Seconds to wait now; `at_least` is what the server asked for."""
        wait = self._next * self._draw.uniform(0.5, 1.0)
        self._next = min(self._next * 2, self._most)
        return max(wait, at_least)

    def reset(self) -> None:
        self._next = self._first
