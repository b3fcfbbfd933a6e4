"""How many pods of each shape have been decided on so far, for policies that score by the expected mix.

The store counts every pod once a decision has been made on it. Snapshots get new counts only at growing intervals
(after 32 pods, then whenever the total has grown by a quarter), since a new mix makes every cached score stale.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.cluster.node_state import Ints
from windlass.cluster.shape import Shape, mix_class

FIRST_PUBLISH = 32
MAX_PAST_CLASSES = 1000
"""Of which no pod exists any more."""


class PodMixHistory:
    def __init__(self) -> None:
        self._counts: Ints = np.zeros(0, dtype=np.int64)
        self.published: Ints = self._counts
        """[shape] pods decided, as snapshots see it."""
        self.total = 0
        self.next_publish_at = FIRST_PUBLISH
        """The total at which `published` changes next."""

    def numbers_to_keep(self, shapes: Sequence[Shape], in_use: Ints) -> list[int]:
        """Numbers of the shapes in use, and one shape for each other class of which pods were decided. Moves the
        counts of the others there; of many classes, the rarest are forgotten."""
        number_of = {mix_class(shapes[number]): number for number in in_use.tolist()}
        counts = np.zeros(len(shapes), dtype=np.int64)
        published = np.zeros(len(shapes), dtype=np.int64)
        for number in np.flatnonzero(self._counts).tolist():
            kept = number_of.setdefault(mix_class(shapes[number]), number)
            counts[kept] += self._counts[number]
            published[kept] += self.published[number] if number < len(self.published) else 0
        past = sorted(set(number_of.values()).difference(in_use.tolist()), key=lambda number: -counts[number])
        kept_numbers = sorted([*in_use.tolist(), *past[:MAX_PAST_CLASSES]])
        self._counts, self.published = counts[kept_numbers], published[kept_numbers]
        return kept_numbers

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
