"""How many pods of each shape have been decided on so far, for policies that score by the expected mix.

The store counts every pod once a decision has been made on it. Snapshots get new counts only at growing intervals
(after 32 pods, then whenever the total has grown by a quarter), since a new mix makes every cached score stale.
"""

from __future__ import annotations

import numpy as np

from windlass.cluster.node_state import Ints

FIRST_PUBLISH = 32


class PodMixHistory:
    def __init__(self) -> None:
        self._counts: Ints = np.zeros(0, dtype=np.int64)
        self.published: Ints = self._counts
        """[shape] pods decided, as snapshots see it."""
        self.total = 0
        self.next_publish_at = FIRST_PUBLISH
        """The total at which `published` changes next."""

    def record(self, shapes: Ints, known_shapes: int) -> None:
        """Counts one decided pod per shape number."""
        counts = np.bincount(shapes, minlength=known_shapes).astype(np.int64)
        counts[: len(self._counts)] += self._counts
        self._counts = counts
        self.total += len(shapes)
        if self.total >= self.next_publish_at:
            self.published = counts
            while self.next_publish_at <= self.total:
                self.next_publish_at = self.next_publish_at * 5 // 4
