"""What every node will have free at a moment, as a matrix: now, plus what those give back who have ended by then.

`fitting` looks for places in it and `room` for conflicts. Nodes × (resources and, as a last column, thousandths of
GPUs); no pod is moved on the overlay for it, so that a plan for a hundred moments costs a hundred sums. What it can't
see is how shares lie on single devices and what pods say about one another: a plan may be too early by that, and is
made again with every decision.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from windlass.cluster.node_state import DEV_END, DEV_FIRST, FREE_MILLI, Ints
from windlass.cluster.shape import Shape
from windlass.placement.blocked_capacity import PlannedPod
from windlass.placement.kernel_arrays import FIRST_REQUEST, GPU_MILLI, GPUS, REQUEST_COUNT
from windlass.placement.overlay import Overlay
from windlass.placement.timeplan.planned_start import PlannedStart
from windlass.placement.workload_placer import WorkloadPlacer

WHOLE_MILLI = 1000
MAX_CACHED_ROWS = 2_000_000
"""Nodes times moments that are remembered."""
AmountsByNode = tuple[Ints, Ints]
"""Node rows, and what is held on each."""


class CapacityReleases(NamedTuple):
    """What is given back, entry by entry."""

    owner: Ints
    """Whose it is, by number."""
    until: Ints
    rows: Ints
    """Of nodes."""
    amounts: Ints


class FreeCapacityTimeline:
    """What is free by node, and how that grows as things are given back."""

    def __init__(self, now: Ints, until: Ints, rows: Ints, amounts: Ints) -> None:
        """`until[i]`: when `amounts[i]` is given back on node `rows[i]`."""
        order = np.argsort(until, kind="stable")
        self._until: list[int] = until[order].tolist()
        self._rows, self._amounts = rows[order], amounts[order]
        self._after: dict[int, Ints] = {0: now}
        """So much of it has been given back → what is free."""
        self._known = [0]

    def at(self, moment: int) -> Ints:
        given = bisect_right(self._until, moment)
        found = self._after.get(given)
        if found is None:
            if len(self._known) * len(self._after[0]) > MAX_CACHED_ROWS:
                self._after, self._known = {0: self._after[0]}, [0]
            place = bisect_right(self._known, given)
            before = self._known[place - 1]
            found = self._after[before].copy()
            np.add.at(found, self._rows[before:given], self._amounts[before:given])
            self._after[given] = found
            self._known.insert(place, given)
        return found


class CapacityForecast:
    def __init__(self, overlay: Overlay, placer: WorkloadPlacer) -> None:
        self._overlay, self._site = overlay, placer
        self.width = overlay.state.free.shape[1] + 1
        self._held: dict[str, tuple[object, AmountsByNode]] = {}
        self._walls: dict[int, tuple[PlannedStart, AmountsByNode]] = {}
        self._courses: dict[frozenset[str], FreeCapacityTimeline] = {}
        self._steady: CapacityReleases | None = None
        """Of those who ran when it was first asked for: whoever comes and goes later is only added and left out."""
        self._steady_keys: dict[str, int] = {}
        self._version = -1

    def free(self, moment: int, ends: Mapping[str, int | None], without: Collection[str] = ()) -> Ints:
        """By node, once everybody has left who has ended by the moment, or is named. Not to be written to."""
        if self._version != self._overlay.version:
            self.invalidate()
        named = frozenset(without)
        course = self._courses.get(named)
        if course is None:
            course = self._courses[named] = self._course(ends, named)
        return course.at(moment)

    def invalidate(self) -> None:
        """Who is there has changed, or until when."""
        self._version = self._overlay.version
        self._courses.clear()

    def _course(self, ends: Mapping[str, int | None], without: frozenset[str]) -> FreeCapacityTimeline:
        """With all who leave ever, node by node; those named have left already."""
        if self._steady is None:
            keys = [
                key
                for key, end in ends.items()
                if end is not None and not self._site.placed_workloads[key].placed
            ]
            self._steady = self._returns({key: ends[key] or 0 for key in keys})
            self._steady_keys = {key: number for number, key in enumerate(keys)}
        gone = without & ends.keys()
        stays = np.ones(len(self._steady_keys), dtype=np.bool_)
        absent = (self._steady_keys.keys() - ends.keys()) | (gone & self._steady_keys.keys())
        stays[[self._steady_keys[key] for key in absent]] = False
        here = stays[self._steady.owner]
        others = {
            key: end for key in ends.keys() - self._steady_keys.keys() if (end := ends[key]) is not None
        }
        more = self._returns({**others, **dict.fromkeys(gone, 0)})
        return FreeCapacityTimeline(
            self._now(),
            np.concatenate([self._steady.until[here], more.until]),
            np.concatenate([self._steady.rows[here], more.rows]),
            np.concatenate([self._steady.amounts[here], more.amounts]),
        )

    def _returns(self, leave: Mapping[str, int]) -> CapacityReleases:
        held = [self.held_by_workload(key) for key in leave]
        sizes = [len(rows) for rows, _ in held]
        nothing = np.zeros((0, self.width), dtype=np.int64)
        return CapacityReleases(
            np.repeat(np.arange(len(held)), sizes),
            np.repeat(np.array(list(leave.values()), dtype=np.int64), sizes),
            np.concatenate([nothing[:, 0], *(rows for rows, _ in held)]),
            np.concatenate([nothing, *(amounts for _, amounts in held)]),
        )

    def _now(self) -> Ints:
        state = self._overlay.state
        sums = np.concatenate([[0], np.cumsum(state.device_occupancy[:, FREE_MILLI])])
        milli = sums[state.node_info[:, DEV_END]] - sums[state.node_info[:, DEV_FIRST]]
        return np.column_stack([state.free, milli]).astype(np.int64)

    def held_by_workload(self, key: str) -> AmountsByNode:
        """What somebody on the site holds."""
        seats = self._site.placed_workloads[key]
        known = self._held.get(key)
        if known is None or known[0] is not seats:
            pods = self._overlay.snapshot.pods
            shapes = self._overlay.snapshot.shapes
            parts = [
                (int(pods.node[row]), self.shape_request(shapes[int(pods.shape[row])]))
                for row in seats.running_rows
                if pods.shape[row] >= 0
            ]
            parts += [(one.assumed.node, self.row_request(one.assumed.row)) for one in seats.placed]
            known = self._held[key] = (seats, self._by_node(parts))
        return known[1]

    def held_by_planned_start(self, planned: PlannedStart) -> AmountsByNode:
        known = self._walls.get(id(planned))
        if known is None:
            made = self._by_node((seat.node, self.row_request(seat.row)) for seat in planned.pods)
            known = self._walls[id(planned)] = (planned, made)
        return known[1]

    def shape_request(self, shape: Shape) -> Ints:
        """What one pod takes."""
        amounts = np.zeros(self.width, dtype=np.int64)
        for name, amount in shape.requests:
            amounts[self._overlay.snapshot.resources.column(name)] += amount
        if shape.gpu is not None:
            amounts[-1] = shape.gpu.count * (shape.gpu.milli or WHOLE_MILLI)
        return amounts

    def row_request(self, row: int) -> Ints:
        """The same for a row of the table."""
        shape = self._overlay.table.shapes[row]
        amounts = np.zeros(self.width, dtype=np.int64)
        for j in range(int(shape[REQUEST_COUNT])):
            amounts[shape[FIRST_REQUEST + 2 * j]] += shape[FIRST_REQUEST + 2 * j + 1]
        if shape[GPUS]:
            amounts[-1] = shape[GPUS] * (shape[GPU_MILLI] or WHOLE_MILLI)
        return amounts

    def held_by_planned_pods(self, planned_pods: Iterable[PlannedPod]) -> AmountsByNode:
        return self._by_node((seat.node, self.row_request(seat.row)) for seat in planned_pods)

    def _by_node(self, parts: Iterable[tuple[int, Ints]]) -> AmountsByNode:
        total: dict[int, Ints] = {}
        for node, amounts in parts:
            total[node] = total[node] + amounts if node in total else amounts
        rows = np.array(sorted(total), dtype=np.int64)
        held = np.array([total[node] for node in sorted(total)], dtype=np.int64)
        return rows, held.reshape(len(rows), self.width)
