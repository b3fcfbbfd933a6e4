"""What walls leave of the room, moment by moment: worked out once for a set of walls, asked for many spans of time.

`room` makes one for the walls that bind somebody. Those who run and end only ever add room, so the least that a span
leaves is found at its start or where a wall begins within it, and only on nodes that walls stand on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

import numpy as np

from windlass.cluster.node_state import Ints
from windlass.placement.timeplan.planned_start import PlannedStart

ByNode = tuple[Ints, Ints]
"""Node rows, and what is held on each."""
FOREVER = np.iinfo(np.int64).max


class SpareCapacityProfile:
    def __init__(
        self,
        planned_starts: Sequence[PlannedStart],
        held_by: Callable[[PlannedStart], ByNode],
        free: Callable[[int], Ints],
    ) -> None:
        """`free`: by node, at a moment, with no walls."""
        self._free = free
        held = [held_by(wall) for wall in planned_starts]
        self._rows: Ints = np.unique(np.concatenate([rows for rows, _ in held]))
        self._held: Ints = np.zeros(
            (len(planned_starts), len(self._rows), held[0][1].shape[1]), dtype=np.int64
        )
        for place, (rows, amounts) in zip(self._held, held, strict=True):
            place[np.searchsorted(self._rows, rows)] = amounts
        self._from = np.array([wall.start for wall in planned_starts], dtype=np.int64)
        self._until = np.array(
            [FOREVER if wall.end is None else wall.end for wall in planned_starts], dtype=np.int64
        )
        self._starts: list[int] = np.unique(self._from).tolist()
        self._left: dict[int, Ints] = {}
        """Start of a wall → what is left on the rows then."""

    def spare(self, start: int, end: int | None) -> Ints:
        """By node, the least that is free at any moment from the start until the end."""
        least = self._free(start).copy()
        lowest = self._left_at(start)
        first = bisect_right(self._starts, start)
        last = len(self._starts) if end is None else bisect_left(self._starts, end)
        for moment in self._starts[first:last]:
            lowest = np.minimum(lowest, self._left_at(moment))
        least[self._rows] = np.minimum(least[self._rows], lowest)
        return least

    def _left_at(self, moment: int) -> Ints:
        known = self._left.get(moment)
        if known is None:
            stands = (self._from <= moment) & (self._until > moment)
            known = self._left[moment] = self._free(moment)[self._rows] - self._held[stands].sum(axis=0)
        return known
