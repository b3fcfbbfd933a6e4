"""The score table: reasons and scores by shape and node, kept by the engine from one decision to the next.

A cache: every cell has a digest of the node state for which it was computed, so that `placement.kernels` recomputes
stale cells, and a decision with an empty table comes to the same plan. `placement.overlay` asks for the rows of shapes;
when there are too many, the least recently used are dropped.

Its memory is bounded: a tenant can submit thousands of pods, each of a shape of its own. A row that the decision has
asked for keeps its number to the end; its cells, which are what is large, are dropped when others need the space, and
computed again when it is used again. Where all rows have cells, they are those of the same number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import NodeColumns
from windlass.cluster.node_state import Ints, Uint64s, gpu_pod_kind
from windlass.cluster.shape import Shape
from windlass.cluster.snapshot import Snapshot
from windlass.model.gpu import GpuRequest
from windlass.model.mig import GEOMETRIES, mig_resource_name
from windlass.model.pod import Pod
from windlass.placement.filters import static_reasons
from windlass.placement.kernel_arrays import (
    FIRST_MIG,
    FIRST_REQUEST,
    GPU_MEMORY,
    GPU_MILLI,
    GPUS,
    INFEASIBLE_SCORE,
    KIND,
    MAX_REQUESTS,
    MIG_REQUEST,
    MILLI_CPU,
    MODELS,
    NEAREST_NODES,
    NODES_PER_BLOCK,
    REQUEST_COUNT,
    SCORER,
    Cells,
    MixArrays,
    NodeMemo,
    PlacementArrays,
)
from windlass.placement.scorer_selector import ScorerSelector

MAX_BYTES = 96 << 20
"""The most memory for cells: 2,400 shapes on 1,000 nodes, 490 on 5,000."""
MIN_ROWS_WITH_CELLS = 16

BYTES_A_NODE, BYTES_A_ROW = 40, 520
"""What the cells of a row take for each node, and besides."""

KERNEL_CHUNK = 4096
"""The most queue entries of one kernel call, and so the most verdicts that it writes."""

_WIDTH = FIRST_MIG + 3 * len(GEOMETRIES)


class ScoreTable:
    """Valid for one set of nodes, one scoring rule and one mix."""

    def __init__(self, snapshot: Snapshot, mix: MixArrays, scorer_selector: ScorerSelector) -> None:
        self.scorer_selector = scorer_selector
        self.nodes: NodeColumns = snapshot.nodes
        self.listers: Listers = snapshot.listers
        self.mix = mix
        self._node_count = snapshot.nodes.size
        self.capacity = max(MIN_ROWS_WITH_CELLS, MAX_BYTES // (BYTES_A_NODE * self._node_count + BYTES_A_ROW))
        """How many rows can have cells at once."""
        self._rows: dict[tuple[bytes, int], int] = {}
        self._shapes: list[Shape] = []
        """By row."""
        self._slots: list[int] = []
        """By row, where its cells are; -1: it has none now."""
        self._by_last_use: dict[int, None] = {}
        """Rows with cells."""
        self._in_use: set[int] = set()
        self.epoch = 0
        """Counts the decisions that have used the table."""
        size = MIN_ROWS_WITH_CELLS
        self.shapes: Ints = np.zeros((size, _WIDTH), dtype=np.int64)
        """By row."""
        self.cells = _empty_cells(size, self._node_count)
        self.cell_shapes: Ints = np.zeros((size, _WIDTH), dtype=np.int64)
        """The shape of each row of `cells`, for kernels that take both."""
        self._result_buffer = make_result_buffer(64)
        self.memo = NodeMemo(
            digest=np.zeros(self._node_count, dtype=np.uint64),
            worth=np.zeros(self._node_count, dtype=np.float64),
            value=np.zeros(self._node_count, dtype=np.int64),
        )

    def result_buffer(self, size: int) -> PlacementArrays:
        """Arrays into which the kernels write the results of this many queue entries; overwritten by the next call."""
        if size > len(self._result_buffer.node):
            self._result_buffer = make_result_buffer(2 * size)
        return self._result_buffer

    def start_decision(self) -> None:
        """No row has been compared with the new state yet."""
        if len(self._shapes) > self.capacity:
            self._forget_rows_without_cells()
        self.cells.cursor[:] = -1
        self._in_use.clear()
        self.epoch += 1

    def rows_in_use(self) -> frozenset[int]:
        """Rows that this decision has asked for."""
        return frozenset(self._in_use)

    def release_rows_except(self, rows: frozenset[int]) -> None:
        """Allow all other rows to be dropped: they were only needed for a what-if."""
        self._in_use = set(rows)

    def row(self, shape: Shape, snapshot: Snapshot, pod: Pod | None = None) -> int:
        """The row of the shape under the scorer of the pod, added if it is new."""
        scorer = self.scorer_selector.scorer(pod or shape.pod, shape)
        # By key, not by number: shapes of what-ifs are not interned and have none.
        key = (shape.key, scorer)
        row = self._rows.get(key)
        if row is None:
            row = self._new_row(key, shape, snapshot)
        if self._slots[row] >= 0:
            self._use(row)
        self._in_use.add(row)
        return row

    def has_cells(self, row: int) -> bool:
        return self._slots[row] >= 0

    def slot(self, row: int) -> int:
        """Where the cells of the row are, until those of another are asked for. They are of no state yet if it had
        none (`Overlay.slot`)."""
        slot = self._slots[row]
        return slot if slot >= 0 else self._load(row)

    def slots(self, rows: Ints) -> Ints:
        """Where the cells of these rows are, `capacity` different ones at most, for one kernel call."""
        if len(self._shapes) <= self.capacity:
            return rows
        wanted = dict.fromkeys(rows.tolist())
        # Those that have cells first: what is used last is dropped last, so the others don't take theirs.
        for row in wanted:
            if self._slots[row] >= 0:
                self._use(row)
        for row in wanted:
            self.slot(row)
        return np.array([self._slots[row] for row in rows.tolist()], dtype=np.int64)

    def static(self, row: int) -> Uint64s:
        """The row's reasons that don't change within a decision."""
        return self.cells.static[self.slot(row)]

    def _use(self, row: int) -> None:
        # Taken out and put back at the end: the dictionary is in the order of last use.
        self._by_last_use.pop(row, None)
        self._by_last_use[row] = None

    def _new_row(self, key: tuple[bytes, int], shape: Shape, snapshot: Snapshot) -> int:
        row, count = next(iter(self._by_last_use), 0), len(self._shapes)
        # Rows of the current decision are never reused: it may have to undo placements by them.
        if count < self.capacity or row in self._in_use:
            row = count
            self._shapes.append(shape)
            self._slots.append(row if row < self.capacity else -1)
            if row == len(self.shapes):
                self.shapes = _grown(self.shapes, 2 * row, 0)
            if len(self.cell_shapes) <= row < self.capacity:
                self._grow_cells(min(2 * row, self.capacity))
        else:
            self._rows = {key: number for key, number in self._rows.items() if number != row}
            self._shapes[row] = shape
        self._rows[key] = row
        self.shapes[row] = _shape_row(shape, snapshot)
        self.shapes[row, SCORER] = key[1]
        if self._slots[row] >= 0:
            self._start_cells(row)
        return row

    def _load(self, row: int) -> int:
        """Gives the row the cells of the row that was not used for longest."""
        dropped = next(iter(self._by_last_use))
        del self._by_last_use[dropped]
        slot, self._slots[dropped] = self._slots[dropped], -1
        self._slots[row] = slot
        self._start_cells(row)
        self._use(row)
        return slot

    def _start_cells(self, row: int) -> None:
        slot, cells, shape = self._slots[row], self.cells, self._shapes[row]
        self.cell_shapes[slot] = self.shapes[row]
        cells.static[slot] = static_reasons(shape.pod, self.nodes, self.listers)
        # Counts belong to `why`: `count_changes` only adds differences, so both start from 0 together.
        cells.why[slot], cells.stamp[slot], cells.counts[slot] = 0, 0, 0
        cells.score[slot], cells.block[slot], cells.cursor[slot] = INFEASIBLE_SCORE, INFEASIBLE_SCORE, -1

    def _forget_rows_without_cells(self) -> None:
        """From here on every row has the cells of its number again."""
        row_at = {slot: row for row, slot in enumerate(self._slots) if slot >= 0}
        self._shapes = [self._shapes[row_at[slot]] for slot in range(len(row_at))]
        self._rows = {key: self._slots[row] for key, row in self._rows.items() if self._slots[row] >= 0}
        self._by_last_use = {self._slots[row]: None for row in self._by_last_use}
        self._slots = list(range(len(row_at)))
        self.shapes = self.cell_shapes.copy()

    def _grow_cells(self, size: int) -> None:
        self.cell_shapes = _grown(self.cell_shapes, size, 0)
        old, new = list(self.cells), list[Any]()
        self.cells = _empty_cells(0, 0)
        # One by one, so that at most one of the large arrays is there twice.
        for name in Cells._fields:
            new.append(_grown(old.pop(0), size, _EMPTY[name]))
        self.cells = Cells(*new)


_EMPTY = {
    "static": 0,
    "why": 0,
    "score": INFEASIBLE_SCORE,
    "device": -1,
    "stamp": 0,
    "block": INFEASIBLE_SCORE,
    "counts": 0,
    "cursor": -1,
}
"""What the arrays of `Cells` hold before anything is computed."""


def _grown(array: Any, size: int, empty: int) -> Any:
    """The array with so many rows."""
    grown = np.full((size, *array.shape[1:]), empty, dtype=array.dtype)
    grown[: len(array)] = array
    return grown


def _empty_cells(size: int, nodes: int) -> Cells:
    blocks = -(-nodes // NODES_PER_BLOCK)
    width = {"block": (blocks,), "counts": (64,), "cursor": ()}
    unsigned = {"static", "why", "stamp"}
    return Cells(
        *(
            np.full((size, *width.get(name, (nodes,))), empty, dtype=np.uint64 if name in unsigned else np.int64)
            for name, empty in _EMPTY.items()
        )
    )


def _shape_row(shape: Shape, snapshot: Snapshot) -> Ints:
    """The shape as an array, by the column constants of `kernel_arrays`."""
    row = np.zeros(_WIDTH, dtype=np.int64)
    gpu = shape.gpu or GpuRequest(0, 0)
    row[REQUEST_COUNT], row[MILLI_CPU] = len(shape.requests), dict(shape.requests).get("cpu", 0)
    row[GPUS], row[GPU_MILLI], row[GPU_MEMORY] = gpu.count, gpu.milli, gpu.memory_mib
    row[KIND], row[MODELS] = gpu_pod_kind(gpu.count, gpu.milli), snapshot.gpu_models.mask(gpu.models)
    row[MIG_REQUEST] = -1
    for j, (name, amount) in enumerate(shape.requests):
        row[FIRST_REQUEST + 2 * j], row[FIRST_REQUEST + 2 * j + 1] = snapshot.resources.column(name), amount
        if gpu.profile and name == mig_resource_name(gpu.profile):
            row[MIG_REQUEST] = j
    for geometry in GEOMETRIES:
        profile = geometry.profile(gpu.profile)
        if profile is not None:
            slices = (1 << profile.memory_slices) - 1
            starts = sum(1 << start for start in profile.starts)
            media = geometry.mask(profile, 0) & ~slices
            at = FIRST_MIG + 3 * geometry.number
            row[at : at + 3] = slices, starts, media
    return row


def make_result_buffer(size: int) -> PlacementArrays:
    # Verdicts are wide: a call for single pods has no more entries than a chunk, one for a gang writes one.
    verdicts = min(size, KERNEL_CHUNK)
    return PlacementArrays(
        node=np.zeros(size, dtype=np.int64),
        grant=np.zeros(size, dtype=np.uint64),
        verdict=np.zeros(size, dtype=np.int64),
        verdict_entry=np.zeros(verdicts, dtype=np.int64),
        verdict_counts=np.zeros((verdicts, 64), dtype=np.int64),
        verdict_near=np.zeros((verdicts, NEAREST_NODES), dtype=np.int64),
        verdict_near_why=np.zeros((verdicts, NEAREST_NODES), dtype=np.uint64),
        verdict_short=np.zeros((verdicts, NEAREST_NODES, MAX_REQUESTS + 1), dtype=np.int64),
        verdict_free=np.zeros((verdicts, NEAREST_NODES, MAX_REQUESTS + 1), dtype=np.int64),
    )
