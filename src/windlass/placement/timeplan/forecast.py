"""What every node will have free at a moment, as a matrix: now, plus what those give back who have ended by then.

`fitting` looks for places in it and `room` for conflicts. Nodes × (resources and, as a last column, thousandths of
GPUs); no pod is moved on the overlay for it, so that a plan for a hundred moments costs a hundred sums. What it can't
see is how shares lie on single devices and what pods say about one another: a plan may be too early by that, and is
made again with every decision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from windlass.cluster.shape import Shape
from windlass.cluster.state import DEV_END, DEV_FIRST, FREE, Ints
from windlass.placement.arrays import ASKED, GPUS, MILLI, REQUESTS
from windlass.placement.obstacles import Seat
from windlass.placement.overlay import Overlay
from windlass.placement.site import OverlaySite
from windlass.placement.timeplan.walls import Wall

WHOLE = 1000
MOST_ROWS = 2_000_000
"""Nodes times moments that are remembered."""
ByNode = tuple[Ints, Ints]
"""Node rows, and what is held on each."""
Leaving = tuple[Ints, ...]
"""When something is given back, on which node row, and how much."""
_EMPTY: Ints = np.zeros(0, dtype=np.int64)


class Forecast:
    def __init__(self, overlay: Overlay, site: OverlaySite) -> None:
        self._overlay, self._site = overlay, site
        self.width = overlay.state.free.shape[1] + 1
        self._held: dict[str, tuple[object, ByNode]] = {}
        self._walls: dict[int, tuple[Wall, ByNode]] = {}
        self._free: dict[tuple[int, frozenset[str]], Ints] = {}
        self._leaving: dict[frozenset[str], Leaving] = {}
        self._version = -1

    def free(self, moment: int, ends: Mapping[str, int | None], without: Collection[str] = ()) -> Ints:
        """By node, once everybody has left who has ended by the moment, or is named. Not to be written to."""
        if self._version != self._overlay.version:
            self.forget()
        key = (moment, frozenset(without))
        known = self._free.get(key)
        if known is None:
            if len(self._free) * (1 + len(self._overlay.state.free)) > MOST_ROWS:
                self._free.clear()
            known = self._free[key] = self._now()
            until, rows, amounts = self._leave(ends, key[1])
            gone = until <= moment
            np.add.at(known, rows[gone], amounts[gone])
        return known

    def forget(self) -> None:
        """Who is there has changed, or until when."""
        self._version = self._overlay.version
        self._free.clear()
        self._leaving.clear()

    def _leave(self, ends: Mapping[str, int | None], without: frozenset[str]) -> Leaving:
        """Who leaves ever, node by node; those named have left already."""
        known = self._leaving.get(without)
        if known is None:
            gone = {key for key in without if key in ends}
            keys = [key for key, end in ends.items() if end is not None and key not in gone]
            held = [self.held_by(key) for key in (*keys, *gone)]
            sizes = [len(rows) for rows, _ in held]
            known = self._leaving[without] = (
                np.repeat(
                    np.array([*(ends[key] for key in keys), *(0 for _ in gone)], dtype=np.int64), sizes
                ),
                np.concatenate([_EMPTY, *(rows for rows, _ in held)]),
                np.concatenate(
                    [np.zeros((0, self.width), dtype=np.int64), *(amounts for _, amounts in held)]
                ),
            )
        return known

    def _now(self) -> Ints:
        state = self._overlay.state
        sums = np.concatenate([[0], np.cumsum(state.room[:, FREE])])
        milli = sums[state.node[:, DEV_END]] - sums[state.node[:, DEV_FIRST]]
        return np.column_stack([state.free, milli]).astype(np.int64)

    def held_by(self, key: str) -> ByNode:
        """What somebody on the site holds."""
        seats = self._site.seats[key]
        known = self._held.get(key)
        if known is None or known[0] is not seats:
            pods = self._overlay.snapshot.pods
            shapes = self._overlay.snapshot.shapes
            parts = [
                (int(pods.node[row]), self.of_shape(shapes[int(pods.shape[row])]))
                for row in seats.running
                if pods.shape[row] >= 0
            ]
            parts += [(one.placing.node, self.of_row(one.placing.row)) for one in seats.placed]
            known = self._held[key] = (seats, self._by_node(parts))
        return known[1]

    def held_by_wall(self, wall: Wall) -> ByNode:
        known = self._walls.get(id(wall))
        if known is None:
            made = self._by_node((seat.node, self.of_row(seat.row)) for seat in wall.seats)
            known = self._walls[id(wall)] = (wall, made)
        return known[1]

    def of_shape(self, shape: Shape) -> Ints:
        """What one pod takes."""
        amounts = np.zeros(self.width, dtype=np.int64)
        for name, amount in shape.requests:
            amounts[self._overlay.snapshot.resources.column(name)] += amount
        if shape.gpu is not None:
            amounts[-1] = shape.gpu.count * (shape.gpu.milli or WHOLE)
        return amounts

    def of_row(self, row: int) -> Ints:
        """The same for a row of the table."""
        shape = self._overlay.table.shapes[row]
        amounts = np.zeros(self.width, dtype=np.int64)
        for j in range(int(shape[REQUESTS])):
            amounts[shape[ASKED + 2 * j]] += shape[ASKED + 2 * j + 1]
        if shape[GPUS]:
            amounts[-1] = shape[GPUS] * (shape[MILLI] or WHOLE)
        return amounts

    def of_seats(self, seats: Iterable[Seat]) -> ByNode:
        return self._by_node((seat.node, self.of_row(seat.row)) for seat in seats)

    def _by_node(self, parts: Iterable[tuple[int, Ints]]) -> ByNode:
        total: dict[int, Ints] = {}
        for node, amounts in parts:
            total[node] = total[node] + amounts if node in total else amounts
        rows = np.array(sorted(total), dtype=np.int64)
        held = np.array([total[node] for node in sorted(total)], dtype=np.int64)
        return rows, held.reshape(len(rows), self.width)
