"""The table of scores by shape and node, kept from one decision to the next.

A memo beside the snapshot: every cell carries a digest of the node state that it was worked out for, so a stale cell is
noticed and worked out again, and a decision with an empty memo comes to the same plan. Rows are made for the shapes
that are asked about and dropped, the least recently used first, when there are too many.
"""

from __future__ import annotations

import numpy as np

from windlass.cluster.columns import GEOMETRY_NAMES, instance_mask, profile_in
from windlass.cluster.facts import NodeFacts
from windlass.cluster.objects import ClusterObjects
from windlass.cluster.shape import Shape
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.state import Ints, kind_of
from windlass.model.errors import InputError
from windlass.model.mig import mig_resource_name
from windlass.placement.arrays import BLOCK, IMPOSSIBLE, MAX_REQUESTS, Cells, Mix, NodeMemo, ShapeRows
from windlass.placement.filters import static_reasons
from windlass.placement.mix import allowed_models

CELL_BUDGET = 4_000_000
"""Cells kept at the most (about 40 bytes each)."""


class ScoreTable:
    """Rows of cells for one set of nodes, one rule and one mix."""

    def __init__(self, snapshot: Snapshot, mix: Mix) -> None:
        self.facts: NodeFacts = snapshot.facts
        self.objects: ClusterObjects = snapshot.objects
        self.mix = mix
        self._nodes = snapshot.facts.size
        self._models = len(snapshot.models.names)
        self._capacity = max(16, min(512, CELL_BUDGET // max(1, self._nodes)))
        self._rows: dict[bytes, int] = {}
        self._used: dict[int, None] = {}
        size = 16
        self.shapes = _empty_shapes(size, self._models)
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
            if row == len(self.shapes.gpus):
                self._grow(min(2 * row, self._capacity))
        else:
            row = next(iter(self._used))
            self._rows = {key: number for key, number in self._rows.items() if number != row}
        self._rows[shape.key] = row
        _fill_shape(self.shapes, row, shape, snapshot)
        cells = self.cells
        cells.static[row] = static_reasons(shape.pod, snapshot.facts, snapshot.objects)
        cells.why[row], cells.stamp[row], cells.counts[row] = 0, 0, 0
        cells.score[row], cells.block[row], cells.cursor[row] = IMPOSSIBLE, IMPOSSIBLE, -1
        return row

    def _grow(self, size: int) -> None:
        shapes, cells = _empty_shapes(size, self._models), _empty_cells(size, self._nodes)
        for new, old in ((shapes, self.shapes), (cells, self.cells)):
            for fresh, array in zip(new, old, strict=True):
                fresh[: len(array)] = array
        self.shapes, self.cells = shapes, cells


def _empty_shapes(size: int, models: int) -> ShapeRows:
    def ints(*shape: int) -> Ints:
        return np.zeros(shape, dtype=np.int64)

    return ShapeRows(
        req_count=ints(size),
        req_column=ints(size, MAX_REQUESTS),
        req_amount=ints(size, MAX_REQUESTS),
        cpu=ints(size),
        gpus=ints(size),
        milli=ints(size),
        memory=ints(size),
        kind=ints(size),
        allowed=ints(size, max(1, models)),
        mig_request=ints(size),
        mig_slices=ints(size, len(GEOMETRY_NAMES)),
        mig_media=ints(size, len(GEOMETRY_NAMES)),
        mig_starts=ints(size, len(GEOMETRY_NAMES)),
    )


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


def _fill_shape(rows: ShapeRows, row: int, shape: Shape, snapshot: Snapshot) -> None:
    if len(shape.requests) > MAX_REQUESTS:
        raise InputError(
            f"asks for {len(shape.requests)} different resources; {MAX_REQUESTS} is the most",
            object=f"Pod {shape.pod.key}",
            path="spec.containers[*].resources.requests",
        )
    gpu = shape.gpu
    rows.cpu[row] = 0
    rows.req_count[row] = len(shape.requests)
    rows.mig_request[row] = -1
    for j, (name, amount) in enumerate(shape.requests):
        rows.req_column[row, j] = snapshot.resources.column(name)
        rows.req_amount[row, j] = amount
        if name == "cpu":
            rows.cpu[row] = amount
        if gpu and gpu.profile and name == mig_resource_name(gpu.profile):
            rows.mig_request[row] = j
    rows.gpus[row] = gpu.count if gpu else 0
    rows.milli[row] = gpu.milli if gpu else 0
    rows.memory[row] = gpu.memory_mib if gpu else 0
    rows.kind[row] = kind_of(gpu.count, gpu.milli) if gpu else 0
    rows.allowed[row] = allowed_models(["|".join(gpu.models) if gpu else ""], snapshot.models)[0]
    for geometry in range(len(GEOMETRY_NAMES)):
        profile = profile_in(geometry, gpu.profile) if gpu and gpu.profile else None
        rows.mig_slices[row, geometry] = (1 << profile.size) - 1 if profile else 0
        rows.mig_media[row, geometry] = instance_mask(geometry, profile, 0) & ~rows.mig_slices[row, geometry] if profile else 0
        rows.mig_starts[row, geometry] = sum(1 << start for start in profile.starts) if profile else 0
