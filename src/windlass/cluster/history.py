"""What kind of pods have come so far: the mix as history knows it.

The store counts every pod once a decision has been made on it. Snapshots are told only at growing intervals (after 32
pods, then whenever the count has grown by a quarter): a new mix makes every score stale, and an older one is as good.
"""

from __future__ import annotations

import numpy as np

from windlass.cluster.state import Ints

FIRST = 32


class History:
    def __init__(self) -> None:
        self._counts: Ints = np.zeros(0, dtype=np.int64)
        self.told: Ints = self._counts
        """[shape] pods seen, as snapshots know it."""
        self.total = 0
        self.due = FIRST
        """The total at which snapshots are told next."""

    def add(self, shapes: Ints, known_shapes: int) -> None:
        """Pods of these shape numbers have been decided on."""
        counts = np.bincount(shapes, minlength=known_shapes).astype(np.int64)
        counts[: len(self._counts)] += self._counts
        self._counts = counts
        self.total += len(shapes)
        if self.total >= self.due:
            self.told = counts
            while self.due <= self.total:
                self.due = self.due * 5 // 4
