"""What every node will have free at a moment: what is free now, plus what workloads release that have ended by then;
and what planned starts leave of it.

`occupancy` asks for the matrices, `pod_set_fitter` places pods in them. A matrix has one row per node and one column
per resource; the last column is thousandths of GPUs. The overlay is not changed, so a hundred moments cost a hundred
sums. The forecast doesn't see how shares are spread over single devices, nor inter-pod rules: a planned start may be
too early for these reasons, and is computed again with every decision.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from windlass.cluster.node_state import DEV_END, DEV_FIRST, FREE_MILLI, Ints
from windlass.cluster.shape import Shape
from windlass.placement.blocked_capacity import PlannedPod
from windlass.placement.kernel_arrays import FIRST_REQUEST, GPU_MILLI, GPUS, MIG_REQUEST, REQUEST_COUNT
from windlass.placement.overlay import Overlay
from windlass.placement.timeplan.planned_start import PlannedStart
from windlass.placement.workload_placer import WorkloadPlacer

WHOLE_MILLI = 1000
MAX_CACHED_ROWS = 2_000_000
"""Rows (nodes × moments) that a timeline keeps: 8 bytes per column each."""
AmountsByNode = tuple[Ints, Ints]
"""Node rows, and what is held on each."""
FOREVER = np.iinfo(np.int64).max


class CapacityReleases(NamedTuple):
    """What workloads release when they end: parallel arrays, one entry per workload and node."""

    owner: Ints
    """Number of the workload."""
    until: Ints
    rows: Ints
    """Of the node."""
    amounts: Ints


class FreeCapacityTimeline:
    """What is free by node at any moment: it only grows, as workloads end."""

    def __init__(self, now: Ints, until: Ints, rows: Ints, amounts: Ints) -> None:
        """`amounts[i]` is released on node `rows[i]` at `until[i]`."""
        order = np.argsort(until, kind="stable")
        self._until: list[int] = until[order].tolist()
        self._rows, self._amounts = rows[order], amounts[order]
        self._free_by_count: dict[int, Ints] = {0: now}
        """Number of releases so far → what is free then. Only moments that were asked for are computed."""
        self._computed_counts = [0]

    def at(self, moment: int) -> Ints:
        returned = bisect_right(self._until, moment)
        free = self._free_by_count.get(returned)
        if free is None:
            # Starts from the nearest earlier matrix that is known, and adds only what was released since.
            if len(self._computed_counts) * len(self._free_by_count[0]) > MAX_CACHED_ROWS:
                self._free_by_count, self._computed_counts = {0: self._free_by_count[0]}, [0]
            place = bisect_right(self._computed_counts, returned)
            nearest = self._computed_counts[place - 1]
            free = self._free_by_count[nearest].copy()
            np.add.at(free, self._rows[nearest:returned], self._amounts[nearest:returned])
            self._free_by_count[returned] = free
            self._computed_counts.insert(place, returned)
        return free


class CapacityForecast:
    def __init__(self, overlay: Overlay, placer: WorkloadPlacer) -> None:
        self._overlay, self._placer = overlay, placer
        self.width = overlay.state.free.shape[1] + 1
        self._by_workload: dict[str, tuple[object, AmountsByNode]] = {}
        self._by_planned_start: dict[int, tuple[PlannedStart, AmountsByNode]] = {}
        self._timelines: dict[frozenset[str], FreeCapacityTimeline] = {}
        self._initial: CapacityReleases | None = None
        """Releases of the workloads that ran at the first call; later changes are added to them or masked out."""
        self._numbers: dict[str, int] = {}
        self._version = -1

    def free(self, moment: int, ends: Mapping[str, int | None], without: Collection[str] = ()) -> Ints:
        """By node, what is free at the moment without the workloads that have ended by then, nor those in `without`.

        Callers must not write to the result.
        """
        if self._version != self._overlay.version:
            self.invalidate()
        removed = frozenset(without)
        timeline = self._timelines.get(removed)
        if timeline is None:
            timeline = self._timelines[removed] = self._timeline(ends, removed)
        return timeline.at(moment)

    def invalidate(self) -> None:
        """Forget the timelines: workloads or their ends have changed."""
        self._version = self._overlay.version
        self._timelines.clear()

    def _timeline(self, ends: Mapping[str, int | None], without: frozenset[str]) -> FreeCapacityTimeline:
        """The timeline over all known ends; workloads in `without` release at time 0."""
        if self._initial is None:
            placed = self._placer.placed_workloads
            keys = [key for key, end in ends.items() if end is not None and not placed[key].placed]
            self._initial = self._releases({key: ends[key] or 0 for key in keys})
            self._numbers = {key: number for number, key in enumerate(keys)}
        removed = without & ends.keys()
        stays = np.ones(len(self._numbers), dtype=np.bool_)
        absent = (self._numbers.keys() - ends.keys()) | (removed & self._numbers.keys())
        stays[[self._numbers[key] for key in absent]] = False
        kept = stays[self._initial.owner]
        others = {key: end for key in ends.keys() - self._numbers.keys() if (end := ends[key]) is not None}
        more = self._releases({**others, **dict.fromkeys(removed, 0)})
        return FreeCapacityTimeline(
            self._free_now(),
            np.concatenate([self._initial.until[kept], more.until]),
            np.concatenate([self._initial.rows[kept], more.rows]),
            np.concatenate([self._initial.amounts[kept], more.amounts]),
        )

    def _releases(self, ends: Mapping[str, int]) -> CapacityReleases:
        held = [self.held_by_workload(key) for key in ends]
        sizes = [len(rows) for rows, _ in held]
        nothing = np.zeros((0, self.width), dtype=np.int64)
        return CapacityReleases(
            np.repeat(np.arange(len(held)), sizes),
            np.repeat(np.array(list(ends.values()), dtype=np.int64), sizes),
            np.concatenate([nothing[:, 0], *(rows for rows, _ in held)]),
            np.concatenate([nothing, *(amounts for _, amounts in held)]),
        )

    def _free_now(self) -> Ints:
        state = self._overlay.state
        sums = np.concatenate([[0], np.cumsum(state.device_occupancy[:, FREE_MILLI])])
        milli = sums[state.node_info[:, DEV_END]] - sums[state.node_info[:, DEV_FIRST]]
        return np.column_stack([state.free, milli]).astype(np.int64)

    def held_by_workload(self, key: str) -> AmountsByNode:
        """What a workload holds: its running pods, and its pods placed by this decision."""
        placed = self._placer.placed_workloads[key]
        cached = self._by_workload.get(key)
        # By identity: every change of a workload's pods makes a new object.
        if cached is None or cached[0] is not placed:
            pods = self._overlay.snapshot.pods
            shapes = self._overlay.snapshot.shapes
            amounts = [
                (int(pods.node[row]), self.shape_request(shapes[int(pods.shape[row])]))
                for row in placed.running_rows
                if pods.shape[row] >= 0
            ]
            assumed = (placement.assumed for placement in placed.placed)
            amounts += [(pod.node, self.row_request(pod.row)) for pod in assumed]
            cached = self._by_workload[key] = (placed, self._sum_by_node(amounts))
        return cached[1]

    def held_by_planned_start(self, planned: PlannedStart) -> AmountsByNode:
        cached = self._by_planned_start.get(id(planned))
        if cached is None:
            amounts = self._sum_by_node((pod.node, self.row_request(pod.row)) for pod in planned.pods)
            cached = self._by_planned_start[id(planned)] = (planned, amounts)
        return cached[1]

    def shape_request(self, shape: Shape) -> Ints:
        """What one pod takes, as a row of the matrix."""
        amounts = np.zeros(self.width, dtype=np.int64)
        for name, amount in shape.requests:
            amounts[self._overlay.snapshot.resources.column(name)] += amount
        # MIG instances are a resource with a column of its own; their GPUs have no share to give.
        if shape.gpu is not None and not shape.gpu.profile:
            # A share by memory depends on the device, which is not known here: a whole one is on the safe side.
            amounts[-1] = shape.gpu.count * (shape.gpu.milli or WHOLE_MILLI)
        return amounts

    def row_request(self, row: int) -> Ints:
        """The same for a row of the score table."""
        shape = self._overlay.table.shapes[row]
        amounts = np.zeros(self.width, dtype=np.int64)
        for j in range(int(shape[REQUEST_COUNT])):
            amounts[shape[FIRST_REQUEST + 2 * j]] += shape[FIRST_REQUEST + 2 * j + 1]
        if shape[GPUS] and shape[MIG_REQUEST] < 0:
            amounts[-1] = shape[GPUS] * (shape[GPU_MILLI] or WHOLE_MILLI)
        return amounts

    def held_by_planned_pods(self, planned_pods: Iterable[PlannedPod]) -> AmountsByNode:
        return self._sum_by_node((pod.node, self.row_request(pod.row)) for pod in planned_pods)

    def _sum_by_node(self, amounts_by_pod: Iterable[tuple[int, Ints]]) -> AmountsByNode:
        total: dict[int, Ints] = {}
        for node, amounts in amounts_by_pod:
            total[node] = total[node] + amounts if node in total else amounts
        rows = np.array(sorted(total), dtype=np.int64)
        sums = np.array([total[node] for node in sorted(total)], dtype=np.int64)
        return rows, sums.reshape(len(rows), self.width)


class SpareCapacityProfile:
    """What planned starts leave free: computed once for a set of them, asked for many spans of time.

    Running workloads that end only add capacity. So the minimum over a span is found at its start or where a planned
    start begins within it, and only the nodes of planned starts have to be compared.
    """

    def __init__(
        self,
        plans: Sequence[PlannedStart],
        held_by: Callable[[PlannedStart], AmountsByNode],
        free: Callable[[int], Ints],
    ) -> None:
        """`free`: by node at a moment, planned starts not counted."""
        self._free = free
        held = [held_by(planned) for planned in plans]
        self._rows: Ints = np.unique(np.concatenate([rows for rows, _ in held]))
        self._held: Ints = np.zeros((len(plans), len(self._rows), held[0][1].shape[1]), dtype=np.int64)
        for matrix, (rows, amounts) in zip(self._held, held, strict=True):
            matrix[np.searchsorted(self._rows, rows)] = amounts
        self._from = np.array([planned.start for planned in plans], dtype=np.int64)
        ends = [FOREVER if planned.end is None else planned.end for planned in plans]
        self._until = np.array(ends, dtype=np.int64)
        self._starts: list[int] = np.unique(self._from).tolist()
        self._left: dict[int, Ints] = {}
        """Moment → what is left on the rows of planned starts then."""

    def spare(self, start: int, end: int | None) -> Ints:
        """By node, the minimum that is free from the start until the end."""
        least = self._free(start).copy()
        lowest = self._left_at(start)
        # The start itself was looked at; a plan that begins at the end is no conflict.
        first = bisect_right(self._starts, start)
        last = len(self._starts) if end is None else bisect_left(self._starts, end)
        for moment in self._starts[first:last]:
            lowest = np.minimum(lowest, self._left_at(moment))
        least[self._rows] = np.minimum(least[self._rows], lowest)
        return least

    def _left_at(self, moment: int) -> Ints:
        left = self._left.get(moment)
        if left is None:
            # Ends are exclusive: what ends now is free now.
            active = (self._from <= moment) & (self._until > moment)
            left = self._left[moment] = self._free(moment)[self._rows] - self._held[active].sum(axis=0)
        return left
