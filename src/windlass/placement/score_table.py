"""The score table: reasons and scores by shape and node, kept by the engine from one decision to the next.

A cache: every cell has a digest of the node state for which it was computed, so that `placement.kernels` recomputes
stale cells, and a decision with an empty table comes to the same plan. `placement.overlay` asks for the rows of shapes;
when there are too many, the least recently used are dropped.
"""

from __future__ import annotations

import numpy as np

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import NodeColumns
from windlass.cluster.node_state import Ints, gpu_pod_kind
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

MAX_CELLS = 4_000_000
"""The most cells to keep (about 40 bytes each)."""

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
        self._max_rows = max(16, min(512, MAX_CELLS // max(1, self._node_count)))
        self._rows: dict[tuple[bytes, int], int] = {}
        self._by_last_use: dict[int, None] = {}
        self._in_use: set[int] = set()
        self.epoch = 0
        """Counts the decisions that have used the table."""
        size = 16
        self.shapes: Ints = np.zeros((size, _WIDTH), dtype=np.int64)
        self.cells = _empty_cells(size, self._node_count)
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
        # Taken out and put back at the end: the dictionary is in the order of last use.
        self._by_last_use.pop(row, None)
        self._by_last_use[row] = None
        self._in_use.add(row)
        return row

    def _new_row(self, key: tuple[bytes, int], shape: Shape, snapshot: Snapshot) -> int:
        row = next(iter(self._by_last_use), 0)
        # Rows of the current decision are never reused: it may have to undo placements by them.
        if len(self._rows) < self._max_rows or row in self._in_use:
            row = len(self._rows)
            if row == len(self.shapes):
                self._grow(min(2 * row, self._max_rows) if row < self._max_rows else 2 * row)
        else:
            self._rows = {key: number for key, number in self._rows.items() if number != row}
        self._rows[key] = row
        self.shapes[row] = _shape_row(shape, snapshot)
        self.shapes[row, SCORER] = key[1]
        cells = self.cells
        cells.static[row] = static_reasons(shape.pod, snapshot.nodes, snapshot.listers)
        # Counts belong to `why`: `count_changes` only adds differences, so both start from 0 together.
        cells.why[row], cells.stamp[row], cells.counts[row] = 0, 0, 0
        cells.score[row], cells.block[row], cells.cursor[row] = INFEASIBLE_SCORE, INFEASIBLE_SCORE, -1
        return row

    def _grow(self, size: int) -> None:
        self.shapes = np.concatenate([self.shapes, np.zeros((size - len(self.shapes), _WIDTH), dtype=np.int64)])
        cells = _empty_cells(size, self._node_count)
        for fresh, array in zip(cells, self.cells, strict=True):
            fresh[: len(array)] = array
        self.cells = cells


def _empty_cells(size: int, nodes: int) -> Cells:
    blocks = -(-nodes // NODES_PER_BLOCK)
    return Cells(
        static=np.zeros((size, nodes), dtype=np.uint64),
        why=np.zeros((size, nodes), dtype=np.uint64),
        score=np.full((size, nodes), INFEASIBLE_SCORE, dtype=np.int64),
        device=np.full((size, nodes), -1, dtype=np.int64),
        stamp=np.zeros((size, nodes), dtype=np.uint64),
        block=np.full((size, blocks), INFEASIBLE_SCORE, dtype=np.int64),
        counts=np.zeros((size, 64), dtype=np.int64),
        cursor=np.full(size, -1, dtype=np.int64),
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
