"""The score table: rows of shapes are kept, found again, grown, and reused by last use."""

from __future__ import annotations

import numpy as np
import pytest

from reference.overlays import overlay_on, snapshot_of, table_of
from reference.park import A100, H100, T4, gpu_node, mig_node, node, pod
from windlass.cluster.node_state import gpu_pod_kind
from windlass.cluster.shape import Shape, make_shape
from windlass.cluster.snapshot import Snapshot
from windlass.model.configuration import WorkloadClass
from windlass.model.meta import LabelSelector
from windlass.model.mig import GEOMETRIES
from windlass.placement import score_table
from windlass.placement.kernel_arrays import (
    FIRST_MIG,
    FIRST_REQUEST,
    GPU_MEMORY,
    GPU_MILLI,
    GPUS,
    KIND,
    MIG_REQUEST,
    MILLI_CPU,
    MODELS,
    REQUEST_COUNT,
    SCORER,
)
from windlass.placement.kernels import scores
from windlass.placement.score_table import KERNEL_CHUNK, ScoreTable, make_result_buffer

INFEASIBLE = -(2**62)


def shapes_by_cpu(count: int, first: int = 1) -> list[Shape]:
    return [make_shape(pod(f"p{i}", cpu=f"{i}m")) for i in range(first, first + count)]


def small_table(monkeypatch: pytest.MonkeyPatch, rows: int) -> tuple[ScoreTable, Snapshot]:
    """A table with cells for so many rows."""
    monkeypatch.setattr(score_table, "MAX_BYTES", rows * (score_table.BYTES_A_NODE + score_table.BYTES_A_ROW))
    snapshot = snapshot_of(node("n0"))
    return table_of(snapshot), snapshot


def cpu_of(table: ScoreTable, row: int) -> int:
    return int(table.shapes[row, MILLI_CPU])


def test_a_shape_has_one_row_for_each_scorer() -> None:
    labelled = WorkloadClass("s", LabelSelector(match_labels={"kind": "server"}), "spread")
    snapshot = snapshot_of(gpu_node("n", 1))
    table = table_of(snapshot, "windlass", [labelled])
    plain, server = pod("a", 1), pod("b", 1, labels={"kind": "server"})
    shape = make_shape(plain)
    assert table.row(shape, snapshot, plain) == 0
    assert table.row(shape, snapshot, server) == 1
    assert table.row(make_shape(pod("c", 1)), snapshot, pod("c", 1)) == 0
    assert table.row(shape, snapshot) == 0, "without a pod, that of the shape"
    assert table.shapes[:2, SCORER].tolist() == [scores.WINDLASS, scores.SPREAD]


def test_a_row_says_what_the_shape_asks_for() -> None:
    snapshot = snapshot_of(gpu_node("h", 1), gpu_node("a", 1, model=A100), gpu_node("t", 1, model=T4))
    table = table_of(snapshot)
    asked = pod("p", share="0.25", devices=2, models=[A100], cpu="1500m", asks={"memory": "2Gi"})
    shape = make_shape(asked)
    row = table.shapes[table.row(shape, snapshot)]
    assert row[REQUEST_COUNT] == len(shape.requests) == 3
    assert row[MILLI_CPU] == 1500
    assert (row[GPUS], row[GPU_MILLI], row[GPU_MEMORY], row[KIND]) == (2, 250, 0, gpu_pod_kind(2, 250))
    assert row[MODELS] == snapshot.gpu_models.mask([A100])
    assert row[MIG_REQUEST] == -1
    pairs = row[FIRST_REQUEST : FIRST_REQUEST + 6].reshape(3, 2).tolist()
    assert pairs == [[snapshot.resources.column(name), amount] for name, amount in shape.requests]
    assert not row[FIRST_REQUEST + 6 :].any()
    whole = table.shapes[table.row(make_shape(pod("w", 3)), snapshot)]
    assert (whole[GPUS], whole[GPU_MILLI], whole[KIND]) == (3, 1000, 3)
    memory = table.shapes[table.row(make_shape(pod("m", memory_mib=2000)), snapshot)]
    assert (memory[GPUS], memory[GPU_MILLI], memory[GPU_MEMORY]) == (1, 0, 2000)
    none = table.shapes[table.row(make_shape(pod("c")), snapshot)]
    assert (none[GPUS], none[GPU_MILLI], none[GPU_MEMORY], none[KIND]) == (0, 0, 0, 0)
    bare = table.shapes[table.row(make_shape(pod("b", cpu="0")), snapshot)]
    assert bare[MILLI_CPU] == 0


@pytest.mark.parametrize("profile", ["1g.10gb", "3g.40gb", "1g.10gb+me"])
def test_a_row_has_the_masks_of_a_mig_profile_for_every_geometry(profile: str) -> None:
    snapshot = snapshot_of(mig_node("n", 1))
    table = table_of(snapshot)
    resource = profile.replace("+", ".")
    shape = make_shape(pod("p", mig=(resource, 2), asks={"memory": "1Gi"}))
    row = table.shapes[table.row(shape, snapshot)]
    assert shape.requests[int(row[MIG_REQUEST])] == (f"nvidia.com/mig-{resource}", 2)
    for geometry in GEOMETRIES:
        found = geometry.profile(profile)
        slices, starts, media = row[FIRST_MIG + 3 * geometry.number :][:3].tolist()
        if found is None:
            assert (slices, starts, media) == (0, 0, 0)
            continue
        assert [start for start in range(8) if starts >> start & 1] == list(found.starts)
        for start in found.starts:
            assert slices << start | media == geometry.mask(found, start)


def test_a_new_row_starts_from_nothing_but_its_static_reasons() -> None:
    snapshot = snapshot_of(node("a"), node("b", cordoned=True))
    table = table_of(snapshot)
    row = table.row(make_shape(pod("p")), snapshot)
    cells = table.cells
    assert cells.static[row].tolist() == [0, 1]
    assert not cells.why[row].any()
    assert not cells.stamp[row].any()
    assert not cells.counts[row].any()
    assert cells.score[row].tolist() == [INFEASIBLE, INFEASIBLE]
    assert cells.block[row].tolist() == [INFEASIBLE]
    assert cells.device[row].tolist() == [-1, -1]
    assert cells.cursor[row] == -1


@pytest.mark.parametrize(("nodes", "blocks"), [(1, 1), (32, 1), (33, 2), (65, 3)])
def test_there_is_a_block_for_every_32_nodes(nodes: int, blocks: int) -> None:
    table = table_of(snapshot_of(*[node(f"n{i}") for i in range(nodes)]))
    assert table.cells.block.shape == (16, blocks)
    assert table.cells.counts.shape == (16, 64)
    assert table.cells.why.shape == (16, nodes)


def test_the_table_grows_by_doubling_and_keeps_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    table, snapshot = small_table(monkeypatch, 40)
    rows = [table.row(shape, snapshot) for shape in shapes_by_cpu(16)]
    assert rows == list(range(16))
    assert len(table.shapes) == 16
    table.cells.score[3] = 77
    table.row(shapes_by_cpu(1, 17)[0], snapshot)
    assert len(table.shapes) == len(table.cells.why) == 32
    assert [cpu_of(table, row) for row in range(17)] == list(range(1, 18))
    assert table.cells.score[3, 0] == 77
    assert table.cells.cursor[31] == -1
    for shape in shapes_by_cpu(23, 18):
        table.row(shape, snapshot)
    assert len(table.cells.why) == len(table.cell_shapes) == 40, "no more than the table may keep"
    # In use by this decision: all of them keep their number.
    assert table.row(shapes_by_cpu(1, 41)[0], snapshot) == 40
    assert len(table.cells.why) == 40
    assert [cpu_of(table, row) for row in range(41)] == list(range(1, 42))


@pytest.mark.parametrize(("nodes", "rows"), [(1, 4), (40, 30), (1000, 20)])
def test_as_many_rows_have_cells_as_fit_into_the_bytes(monkeypatch: pytest.MonkeyPatch, nodes: int, rows: int) -> None:
    monkeypatch.setattr(score_table, "MAX_BYTES", rows * 40 * nodes + rows * 520)
    snapshot = snapshot_of(*[node(f"n{i}") for i in range(nodes)])
    table = table_of(snapshot)
    assert table.capacity == max(16, rows)
    for shape in shapes_by_cpu(table.capacity + 3):
        table.row(shape, snapshot)
    cells = sum(array.nbytes for array in table.cells)
    # Blocks are not counted exactly: a quarter of a byte for each node.
    assert cells <= max(score_table.MAX_BYTES, 16 * (40 * nodes + 520)) * 1.02
    table.start_decision()
    assert table.row(shapes_by_cpu(1, 999)[0], snapshot) == 0, "the row that was used first is reused"


def test_a_row_without_cells_takes_those_of_the_row_that_was_not_used_for_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, snapshot = small_table(monkeypatch, 16)
    shapes = shapes_by_cpu(18)
    rows = [table.row(shape, snapshot) for shape in shapes]
    assert rows == list(range(18))
    assert [table.has_cells(row) for row in rows] == [True] * 16 + [False] * 2
    table.cells.why[0], table.cells.stamp[0], table.cells.cursor[0] = 5, 5, 5
    assert table.row(shapes[1], snapshot) == 1, "used: not the next to go"
    assert (table.slot(16), table.slot(17)) == (0, 2)
    assert [row for row in rows if not table.has_cells(row)] == [0, 2]
    assert table.cell_shapes[[0, 1, 2], MILLI_CPU].tolist() == [17, 2, 18]
    assert (int(table.cells.why[0, 0]), int(table.cells.stamp[0, 0]), int(table.cells.cursor[0])) == (0, 0, -1)
    assert table.slots(np.array([1, 3, 0, 1])).tolist() == [1, 3, 4, 1], "not those of the same call"
    assert [cpu_of(table, row) for row in rows] == list(range(1, 19)), "numbers and shapes stay"


def test_the_next_decision_knows_the_rows_with_cells_by_the_number_of_these(monkeypatch: pytest.MonkeyPatch) -> None:
    table, snapshot = small_table(monkeypatch, 16)
    shapes = shapes_by_cpu(17)
    for shape in shapes:
        table.row(shape, snapshot)
    table.cells.score[3] = 77
    assert table.slot(16) == 0
    table.start_decision()
    assert [table.row(shapes[number], snapshot) for number in (16, 3, 1)] == [0, 3, 1]
    assert [cpu_of(table, row) for row in range(16)] == [17, *range(2, 17)]
    assert table.cells.score[3, 0] == 77
    assert table.slots(np.array([3, 0])).tolist() == [3, 0]
    assert table.row(shapes[0], snapshot) == 2, "forgotten: as any new one"


def test_the_row_that_was_not_used_for_longest_is_given_to_a_new_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    table, snapshot = small_table(monkeypatch, 16)
    shapes = shapes_by_cpu(16)
    for shape in shapes:
        table.row(shape, snapshot)
    table.cells.why[2], table.cells.counts[2], table.cells.stamp[2] = 5, 5, 5
    table.cells.score[2], table.cells.block[2], table.cells.cursor[2] = 5, 5, 5
    table.start_decision()
    assert table.row(shapes[0], snapshot) == 0
    assert table.row(shapes[1], snapshot) == 1
    assert table.rows_in_use() == {0, 1}
    fresh = shapes_by_cpu(1, 99)[0]
    assert table.row(fresh, snapshot) == 2
    assert cpu_of(table, 2) == 99
    for array in (table.cells.why, table.cells.counts, table.cells.stamp):
        assert not array[2].any()
    assert table.cells.score[2, 0] == table.cells.block[2, 0] == INFEASIBLE
    assert table.cells.cursor[2] == -1
    assert table.row(shapes[2], snapshot) == 3, "its old shape is forgotten"
    assert table.row(fresh, snapshot) == 2
    assert table.rows_in_use() == {0, 1, 2, 3}


def test_rows_of_a_what_if_can_be_dropped_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table, snapshot = small_table(monkeypatch, 16)
    shapes = shapes_by_cpu(16)
    table.row(shapes[0], snapshot)
    before = table.rows_in_use()
    assert before == {0}
    for shape in shapes[1:]:
        table.row(shape, snapshot)
    table.release_rows_except(before)
    assert table.rows_in_use() == {0}
    # Row 0 comes first in the order of use and is in use: the table grows rather than take another.
    assert table.row(shapes_by_cpu(1, 50)[0], snapshot) == 16


def test_a_decision_starts_without_rows_in_use_and_compares_every_row_anew() -> None:
    snapshot = snapshot_of(node("n"))
    table = table_of(snapshot)
    table.row(make_shape(pod("p")), snapshot)
    table.cells.cursor[:] = 4
    assert table.epoch == 0
    table.start_decision()
    assert table.epoch == 1
    assert table.rows_in_use() == frozenset()
    assert (table.cells.cursor == -1).all()


def test_a_result_buffer_grows_with_what_is_asked_of_it() -> None:
    table = table_of(snapshot_of(node("n")))
    assert len(table.result_buffer(64).node) == 64
    first = table.result_buffer(1)
    assert table.result_buffer(64) is first
    assert len(table.result_buffer(65).node) == 130
    assert len(table.result_buffer(5).node) == 130


@pytest.mark.parametrize(("size", "verdicts"), [(3, 3), (KERNEL_CHUNK, KERNEL_CHUNK), (KERNEL_CHUNK + 1, KERNEL_CHUNK)])
def test_a_buffer_has_room_for_a_verdict_of_each_entry_of_one_call(size: int, verdicts: int) -> None:
    buffer = make_result_buffer(size)
    assert len(buffer.node) == len(buffer.grant) == len(buffer.verdict) == size
    assert buffer.verdict_counts.shape == (verdicts, 64)
    assert len(buffer.verdict_entry) == verdicts
    assert buffer.verdict_near.shape == buffer.verdict_near_why.shape == (verdicts, 3)
    assert buffer.verdict_short.shape == buffer.verdict_free.shape == (verdicts, 3, 25)


def test_an_empty_cluster_has_a_table_too() -> None:
    snapshot = snapshot_of()
    table = table_of(snapshot)
    assert table.row(make_shape(pod("p")), snapshot) == 0
    assert table.cells.why.shape[1] == 0


def test_cells_of_a_reused_row_are_computed_for_the_new_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_table, "MAX_BYTES", 0)
    snapshot = snapshot_of(gpu_node("n", 1, model=H100, cpu=1))
    overlay = overlay_on(snapshot)
    large = [make_shape(pod(f"p{i}", cpu=f"{i}")) for i in range(2, 18)]
    with np.errstate(over="ignore"):
        for shape in large:
            overlay.refresh(overlay.table.row(shape, snapshot))
        overlay.table.start_decision()
        row = overlay.table.row(make_shape(pod("small", cpu="1")), snapshot)
        overlay.refresh(row)
    assert row == 0
    assert overlay.table.cells.why[row].tolist() == [0]
    assert not overlay.table.cells.counts[row].any()


def test_cells_that_were_dropped_after_a_refresh_are_refreshed_before_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(score_table, "MAX_BYTES", 0)
    snapshot = snapshot_of(gpu_node("small", 1, cpu=1), gpu_node("large", 1, cpu=64))
    overlay = overlay_on(snapshot)
    asked = pod("asked", 1, cpu="2")
    with np.errstate(over="ignore"):
        row = overlay.table.row(make_shape(asked), snapshot)
        why = overlay.reasons(asked, row)
        for shape in shapes_by_cpu(16):
            overlay.refresh(overlay.table.row(shape, snapshot))
        assert not overlay.table.has_cells(row)
        assert overlay.select_node(asked, row, why, 0) == snapshot.nodes.index["large"]
        for other in range(1, 17):
            overlay.refresh(other)
        assert not overlay.table.has_cells(row)
        assert overlay.table.cells.device[overlay.slot(row)].tolist() == [-1, -1]
        assert overlay.table.cells.score[overlay.slot(row), snapshot.nodes.index["large"]] > INFEASIBLE
        for other in range(1, 17):
            overlay.refresh(other)
        assert overlay.explain_no_node(row, make_shape(asked), why | np.uint64(1)).verdict().counts
