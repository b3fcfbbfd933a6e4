"""The table of scores by shape and node, kept from one decision to the next.

A memo beside the snapshot: every cell carries a digest of the node state that it was worked out for, so a stale cell is
noticed and worked out again, and a decision with an empty memo comes to the same plan. Rows are made for the shapes
that are asked about and dropped, the least recently used first, when there are too many.
"""

from __future__ import annotations

import numpy as np

from windlass.cluster.facts import NodeFacts
from windlass.cluster.objects import ClusterObjects
from windlass.cluster.shape import Shape
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.state import Ints, kind_of
from windlass.model.errors import InputError
from windlass.model.gpu import GpuRequest
from windlass.model.mig import GEOMETRIES, mig_resource_name
from windlass.placement.arrays import (
    ASKED,
    BLOCK,
    GPU_MEMORY,
    GPUS,
    IMPOSSIBLE,
    KIND,
    MAX_REQUESTS,
    MIG,
    MIG_REQUEST,
    MILLI,
    MILLI_CPU,
    MODELS,
    REQUESTS,
    Cells,
    Mix,
    NodeMemo,
)
from windlass.placement.filters import static_reasons

CELL_BUDGET = 4_000_000
"""Cells kept at the most (about 40 bytes each)."""

_WIDTH = MIG + 3 * len(GEOMETRIES)


class ScoreTable:
    """Rows of cells for one set of nodes, one rule and one mix."""

    def __init__(self, snapshot: Snapshot, mix: Mix) -> None:
        self.facts: NodeFacts = snapshot.facts
        self.objects: ClusterObjects = snapshot.objects
        self.mix = mix
        self._nodes = snapshot.facts.size
        self._capacity = max(16, min(512, CELL_BUDGET // max(1, self._nodes)))
        self._rows: dict[bytes, int] = {}
        self._used: dict[int, None] = {}
        size = 16
        self.shapes: Ints = np.zeros((size, _WIDTH), dtype=np.int64)
        self.cells = _empty_cells(size, self._nodes)
        self.memo = NodeMemo(
            digest=np.zeros(self._nodes, dtype=np.uint64),
            worth=np.zeros(self._nodes, dtype=np.float64),
            value=np.zeros(self._nodes, dtype=np.int64),
        )

    def begin(self) -> None:
        """A new decision: no row has been compared with the new state yet."""
        self.cells.cursor[:] = -1

    def row(self, shape: Shape, snapshot: Snapshot) -> int:
        """The shape's row, made if it is new."""
        found = self._rows.get(shape.key)
        if found is None:
            found = self._new_row(shape, snapshot)
        self._used.pop(found, None)
        self._used[found] = None
        return found

    def _new_row(self, shape: Shape, snapshot: Snapshot) -> int:
        if len(self._rows) < self._capacity:
            row = len(self._rows)
            if row == len(self.shapes):
                self._grow(min(2 * row, self._capacity))
        else:
            row = next(iter(self._used))
            self._rows = {key: number for key, number in self._rows.items() if number != row}
        self._rows[shape.key] = row
        self.shapes[row] = _shape_row(shape, snapshot)
        cells = self.cells
        cells.static[row] = static_reasons(shape.pod, snapshot.facts, snapshot.objects)
        cells.why[row], cells.stamp[row], cells.counts[row] = 0, 0, 0
        cells.score[row], cells.block[row], cells.cursor[row] = IMPOSSIBLE, IMPOSSIBLE, -1
        return row

    def _grow(self, size: int) -> None:
        self.shapes = np.concatenate(
            [self.shapes, np.zeros((size - len(self.shapes), _WIDTH), dtype=np.int64)]
        )
        cells = _empty_cells(size, self._nodes)
        for fresh, array in zip(cells, self.cells, strict=True):
            fresh[: len(array)] = array
        self.cells = cells


def _empty_cells(size: int, nodes: int) -> Cells:
    blocks = -(-nodes // BLOCK)
    return Cells(
        static=np.zeros((size, nodes), dtype=np.uint64),
        why=np.zeros((size, nodes), dtype=np.uint64),
        score=np.full((size, nodes), IMPOSSIBLE, dtype=np.int64),
        device=np.full((size, nodes), -1, dtype=np.int64),
        stamp=np.zeros((size, nodes), dtype=np.uint64),
        block=np.full((size, blocks), IMPOSSIBLE, dtype=np.int64),
        counts=np.zeros((size, 64), dtype=np.int64),
        cursor=np.full(size, -1, dtype=np.int64),
    )


def _shape_row(shape: Shape, snapshot: Snapshot) -> Ints:
    """The shape as the kernels read it."""
    if len(shape.requests) > MAX_REQUESTS:
        raise InputError(
            f"asks for {len(shape.requests)} different resources; {MAX_REQUESTS} is the most",
            object=f"Pod {shape.pod.key}",
            path="spec.containers[*].resources.requests",
        )
    row = np.zeros(_WIDTH, dtype=np.int64)
    gpu = shape.gpu or GpuRequest(0, 0)
    row[REQUESTS], row[MILLI_CPU] = len(shape.requests), dict(shape.requests).get("cpu", 0)
    row[GPUS], row[MILLI], row[GPU_MEMORY] = gpu.count, gpu.milli, gpu.memory_mib
    row[KIND], row[MODELS] = kind_of(gpu.count, gpu.milli), snapshot.models.mask(gpu.models)
    row[MIG_REQUEST] = -1
    for j, (name, amount) in enumerate(shape.requests):
        row[ASKED + 2 * j], row[ASKED + 2 * j + 1] = snapshot.resources.column(name), amount
        if gpu.profile and name == mig_resource_name(gpu.profile):
            row[MIG_REQUEST] = j
    for geometry in GEOMETRIES:
        profile = geometry.profile(gpu.profile)
        if profile is not None:
            slices = (1 << profile.size) - 1
            starts = sum(1 << start for start in profile.starts)
            media = geometry.mask(profile, 0) & ~slices
            at = MIG + 3 * geometry.number
            row[at : at + 3] = slices, starts, media
    return row
