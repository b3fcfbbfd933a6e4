"""What the overlay remembers of its steps, which node it selects, and how it explains that there is none."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from reference.builders import HOST, near, pod_anti_affinity, selector, taint
from reference.overlays import overlay_on, pod_of, pod_row, snapshot_of, table_row
from reference.park import H100, Desk, gpu_node, layout_node, node, pod
from windlass import jit
from windlass.cluster.delta import Deleted
from windlass.model.reasons import WHY_BIND_REFUSED, WHY_EXISTING_ANTI_AFFINITY, insufficient_bit
from windlass.model.refusal import BIND, Refusal, Refusals
from windlass.placement import overlay as overlay_module
from windlass.placement.overlay import AssumedPod, Overlay


@pytest.fixture(autouse=True)
def _hashes_wrap_around() -> Iterator[None]:
    with np.errstate(over="ignore"):
        yield


def three_nodes(*pods: object, policy: str = "pack", seed: int = 0) -> Overlay:
    return overlay_on(snapshot_of(*[gpu_node(f"n{i}", 2) for i in range(3)], *pods), policy, seed)


def assume(overlay: Overlay, name: str, at: int) -> AssumedPod:
    row = table_row(overlay, name)
    overlay.refresh(row)
    return overlay.assume(pod_of(overlay, name), row, at)


def free_gpu(overlay: Overlay) -> list[int]:
    state = overlay.state
    return [int(state.device_occupancy[list(state.devices(n)), 0].sum()) for n in range(len(state.free))]


def names(pods: list) -> list[str]:
    return [found.metadata.name for found in pods]


# Steps


def test_assumed_pods_are_those_that_were_not_forgotten_in_order() -> None:
    overlay = three_nodes(*[pod(name, 1) for name in "abc"])
    a, b, c = (assume(overlay, name, 0 if name < "c" else 1) for name in "abc")
    assert overlay.assumed_pods() == [a, b, c]
    overlay.forget(a)
    assert overlay.assumed_pods() == [b, c]
    overlay.assume_again(a)
    assert overlay.assumed_pods() == [b, c, a]
    assert free_gpu(overlay) == [0, 1000, 2000]
    assert overlay.checkpoint() == 5


def test_equal_assumptions_are_two() -> None:
    overlay = three_nodes(pod("a", share="0.2"))
    first, second = assume(overlay, "a", 0), assume(overlay, "a", 0)
    assert first == second
    overlay.forget(first)
    assert overlay.assumed_pods() == [second]


def test_removed_pods_are_those_that_were_not_restored_in_order() -> None:
    overlay = three_nodes(*[pod(name, 1, on="n0" if name < "c" else "n1") for name in "abc"])
    rows = {name: pod_row(overlay.snapshot, name) for name in "abc"}
    for name in "cab":
        overlay.remove_running(rows[name])
    assert names(overlay.removed_pods()) == ["c", "a", "b"]
    overlay.restore_running(rows["c"])
    assert names(overlay.removed_pods()) == ["a", "b"]
    assert overlay.removed_rows() == {rows["a"], rows["b"]}
    assert free_gpu(overlay) == [2000, 1000, 2000]


def test_versions_are_equal_only_for_equal_state() -> None:
    overlay = three_nodes(*[pod(name, 1) for name in "ab"])
    assert overlay.version == 0
    assume(overlay, "a", 0)
    first = overlay.version
    checkpoint = overlay.checkpoint()
    assume(overlay, "b", 1)
    second = overlay.version
    overlay.rollback(checkpoint)
    assert overlay.version == first
    assume(overlay, "b", 1)
    assert len({0, first, second, overlay.version}) == 4, "a number is never used again"


def test_versions_of_pods_placed_in_one_call_go_on_from_there() -> None:
    overlay = three_nodes(*[pod(name, 1) for name in "abc"])
    pods = [pod_of(overlay, name) for name in "abc"]
    placed = overlay.place_all_or_none(pods, [table_row(overlay, name) for name in "abc"])
    assert isinstance(placed, list)
    assert [found.pod for found in placed] == pods
    assert overlay.assumed_pods() == placed
    seen = [overlay.version]
    overlay.rollback(2)
    seen.append(overlay.version)
    assume(overlay, "c", 2)
    seen.append(overlay.version)
    assert len(set(seen)) == 3
    overlay.rollback(0)
    assert free_gpu(overlay) == [2000, 2000, 2000]


def test_pods_are_placed_all_or_none() -> None:
    overlay = three_nodes(pod("a", 2), pod("b", 1))
    assume(overlay, "a", 0)
    a, b = (pod_of(overlay, name) for name in "ab")
    rows = [table_row(overlay, name) for name in "ab"]
    before = free_gpu(overlay)
    assert overlay.place_all_or_none([b, a, a, b], [rows[1], rows[0], rows[0], rows[1]]) == 2
    assert free_gpu(overlay) == before
    assert overlay.checkpoint() == 1
    shape = overlay.snapshot.shapes[int(overlay.snapshot.pods.shape[0])]
    verdict = overlay.no_node_found_by_kernel(shape).verdict()
    assert (verdict.nodes, verdict.code) == (3, overlay.no_node_found_by_kernel(shape).code)
    assert {count.kube: count.nodes for count in verdict.counts}["Insufficient nvidia.com/gpu"] == 3
    placed = overlay.place_all_or_none([a, b], rows)
    assert isinstance(placed, list)
    assert [found.node for found in placed] == [1, 2]
    assert [found.row for found in placed] == rows


def test_a_blocked_node_takes_no_pods_until_every_block_is_undone() -> None:
    overlay = three_nodes(pod("a", 1))
    row = table_row(overlay, "a")

    def open_nodes() -> list[int]:
        return np.flatnonzero(overlay.reasons(pod_of(overlay, "a"), row) == 0).tolist()

    overlay.block_node(1)
    overlay.block_node(1)
    overlay.block_node(1, -1)
    assert open_nodes() == [0, 2]
    overlay.rollback(2)
    assert open_nodes() == [0, 2]
    overlay.rollback(1)
    overlay.block_node(1, -1)
    assert open_nodes() == [0, 1, 2]
    overlay.rollback(0)
    assert open_nodes() == [0, 1, 2]


def test_a_rollback_undoes_what_was_undone_since() -> None:
    overlay = three_nodes(pod("a", 1), pod("r", 2, on="n2"), pod("b", 1, labels={"app": "x"}), lonely("l", on="n1"))
    removed, alone = (pod_row(overlay.snapshot, name) for name in ("r", "l"))
    assumed = assume(overlay, "a", 0)
    overlay.remove_running(removed)
    overlay.remove_running(alone)
    b, row = pod_of(overlay, "b"), table_row(overlay, "b")
    assert (free_gpu(overlay), overlay.reasons(b, row).tolist()) == ([1000, 2000, 2000], [0, 0, 0])
    checkpoint = overlay.checkpoint()
    overlay.restore_running(removed)
    overlay.restore_running(alone)
    overlay.forget(assumed)
    assert free_gpu(overlay) == [2000, 1000, 0]
    overlay.rollback(checkpoint)
    assert (free_gpu(overlay), overlay.reasons(b, row).tolist()) == ([1000, 2000, 2000], [0, 0, 0])
    overlay.forget(assumed)
    overlay.assume_again(assumed)
    overlay.rollback(checkpoint + 1)
    assert free_gpu(overlay) == [2000, 2000, 2000]
    overlay.rollback(0)
    assert free_gpu(overlay) == [2000, 1000, 0]


def test_the_log_of_changed_nodes_grows_without_losing_entries() -> None:
    overlay = three_nodes(pod("a", 1))
    for i in range(150):
        overlay.block_node(i % 3, 1 if i < 75 else -1)
    assert overlay.changed_nodes_end == 150
    assert overlay.changed_nodes[:150].tolist() == [i % 3 for i in range(150)]
    size = len(overlay.changed_nodes)
    overlay.grow_changed_nodes(size - 150)
    assert len(overlay.changed_nodes) == size, "there is room"
    overlay.grow_changed_nodes(size - 150 + 1)
    assert len(overlay.changed_nodes) == 2 * size
    overlay.grow_changed_nodes(10 * size)
    assert len(overlay.changed_nodes) >= 150 + 10 * size
    assert overlay.changed_nodes[:150].tolist() == [i % 3 for i in range(150)]


def test_a_fork_has_the_state_and_leaves_the_original_alone() -> None:
    overlay = three_nodes(pod("a", 1), pod("r", 1, on="n2"))
    assume(overlay, "a", 0)
    overlay.remove_running(pod_row(overlay.snapshot, "r"))
    fork = overlay.fork()
    assert (fork.version, fork.checkpoint(), free_gpu(fork)) == (overlay.version, 2, [1000, 2000, 2000])
    assert names(fork.removed_pods()) == ["r"]
    version = overlay.version
    assume(fork, "a", 1)
    assert fork.version > version
    assert (overlay.version, free_gpu(overlay)) == (version, [1000, 2000, 2000])
    assert fork.has_affinity_terms is False
    overlay.has_affinity_terms = True
    assert overlay.fork().has_affinity_terms is True


def test_many_node_checks_load_the_compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    overlay = three_nodes()
    compiled = object()
    monkeypatch.setattr(jit, "kernels", lambda small: None if small else compiled)
    most = overlay_module.MAX_INTERPRETED_NODE_CHECKS
    overlay.expect_node_checks(most - 1)
    overlay.expect_node_checks(1)
    assert overlay.kernels is jit.interpreted()
    overlay.expect_node_checks(1)
    assert overlay.kernels is compiled


# Choosing


def test_the_best_node_is_selected_among_those_that_are_allowed_the_first_of_equals() -> None:
    overlay = three_nodes(pod("a", 1), pod("x", 1, on="n1"))
    a, row = pod_of(overlay, "a"), table_row(overlay, "a")
    why = overlay.reasons(a, row)
    assert overlay.select_node(a, row, why, 0) == 1, "packing fills the node in use"
    allowed = np.array([True, False, True])
    assert overlay.select_node(a, row, why, 0, allowed) == 0
    assert overlay.select_node(a, row, why, 0, np.array([False, False, True])) == 2
    assert overlay.select_node(a, row, why, 0, np.zeros(3, dtype=np.bool_)) == -1
    why[1] = 1
    assert overlay.select_node(a, row, why, 0) == 0


def test_random_draws_anew_for_every_pod_among_the_feasible_nodes() -> None:
    overlay = three_nodes(pod("a", 1), policy="random", seed=3)
    a, row = pod_of(overlay, "a"), table_row(overlay, "a")
    why = overlay.reasons(a, row)
    drawn = [overlay.select_node(a, row, why, turn) for turn in range(40)]
    assert set(drawn) == {0, 1, 2}
    assert drawn == [overlay.select_node(a, row, why, turn) for turn in range(40)]
    allowed = np.array([True, False, True])
    assert {overlay.select_node(a, row, why, turn, allowed) for turn in range(40)} == {0, 2}


def test_soft_taints_are_avoided_before_the_policy_is_asked() -> None:
    soft = gpu_node("n0", 1, taints=[taint("x", effect="PreferNoSchedule")])
    overlay = overlay_on(snapshot_of(soft, gpu_node("n1", 8), pod("a", 1)))
    a, row = pod_of(overlay, "a"), table_row(overlay, "a")
    assert overlay.select_node(a, row, overlay.reasons(a, row), 0) == 1
    assert not overlay.is_plain(a)
    assert three_nodes(pod("a", 1)).is_plain(pod("a", 1))
    hard = overlay_on(snapshot_of(gpu_node("n0", 1, taints=[taint("x")]), pod("a", 1)))
    assert hard.is_plain(pod_of(hard, "a"))


def lonely(name: str, **options: object) -> object:
    rule = pod_anti_affinity(near(HOST, selector(app="x")))
    return pod(name, 1, labels={"app": "x"}, affinity=rule, **options)


def test_an_assumed_pod_repels_others_until_it_is_undone() -> None:
    overlay = three_nodes(lonely("a"), pod("b", 1, labels={"app": "x"}))
    b, row = pod_of(overlay, "b"), table_row(overlay, "b")
    assert overlay.is_plain(b)
    assert not overlay.is_plain(pod_of(overlay, "a"))
    assert not overlay.has_inter_pod_constraints(b)
    overlay.inter_pod_rules()
    checkpoint = overlay.checkpoint()
    assumed = assume(overlay, "a", 1)
    assert not overlay.is_plain(b)
    assert overlay.has_inter_pod_constraints(b)
    repelled = [0, WHY_EXISTING_ANTI_AFFINITY, 0]
    assert overlay.reasons(b, row).tolist() == repelled
    fork = overlay.fork()
    assert fork.reasons(b, table_row(fork, "b")).tolist() == repelled
    overlay.forget(assumed)
    assert not overlay.reasons(b, row).any()
    overlay.assume_again(assumed)
    assert overlay.reasons(b, row).tolist() == repelled
    overlay.rollback(checkpoint)
    assert not overlay.reasons(b, row).any()


@pytest.mark.parametrize("asked_before", [False, True])
def test_a_removed_pod_repels_nobody(asked_before: bool) -> None:
    overlay = three_nodes(lonely("a", on="n1"), lonely("c", on="n2"), pod("b", 1, labels={"app": "x"}))
    b, row = pod_of(overlay, "b"), table_row(overlay, "b")
    if asked_before:
        overlay.inter_pod_rules()
    overlay.remove_running(pod_row(overlay.snapshot, "a"))
    assert overlay.reasons(b, row).tolist() == [0, 0, WHY_EXISTING_ANTI_AFFINITY]
    overlay.restore_running(pod_row(overlay.snapshot, "a"))
    assert overlay.reasons(b, row).tolist() == [0, WHY_EXISTING_ANTI_AFFINITY, WHY_EXISTING_ANTI_AFFINITY]
    overlay.rollback(0)
    assert overlay.reasons(b, row).tolist() == [0, WHY_EXISTING_ANTI_AFFINITY, WHY_EXISTING_ANTI_AFFINITY]


def test_a_pod_that_is_gone_repels_nobody() -> None:
    desk = Desk(gpu_node("n0", 2), gpu_node("n1", 2), lonely("a", on="n1"), lonely("c", on="n0"))
    desk.put(pod("b", 1, labels={"app": "x"})).apply(Deleted("Pod", "default/a"))
    overlay = overlay_on(desk.store.snapshot())
    why = overlay.reasons(pod_of(overlay, "b"), table_row(overlay, "b"))
    assert why.tolist() == [WHY_EXISTING_ANTI_AFFINITY, 0]


@pytest.mark.parametrize(("policy", "grant"), [("windlass", 0x11000), ("pack", 0x11)])
def test_only_windlass_takes_whole_gpus_from_the_island_that_they_fill(policy: str, grant: int) -> None:
    islands = layout_node("n", {"model": H100, "count": 3, "island": 0}, {"model": H100, "count": 2, "island": 1})
    overlay = overlay_on(snapshot_of(islands, pod("a", 2)), policy)
    assert int(assume(overlay, "a", 0).grant) == grant


def test_pods_placed_in_one_call_count_for_rules_between_pods() -> None:
    overlay = three_nodes(lonely("a"), pod("b", 1, labels={"app": "x"}))
    overlay.inter_pod_rules()
    overlay.place_all_or_none([pod_of(overlay, "b")], [table_row(overlay, "b")])
    why = overlay.reasons(pod_of(overlay, "a"), table_row(overlay, "a"))
    assert np.flatnonzero(why).tolist() == [0]


# Refusals and explanations


def refused(overlay: Overlay, name: str, *nodes: str) -> Overlay:
    binds = {f"default/{name}": tuple(Refusal(BIND, f"default/{name}", 0, node=found) for found in nodes)}
    snapshot = msgspec.structs.replace(overlay.snapshot, refusals=Refusals(binds=binds))
    return overlay_on(snapshot)


def test_nodes_to_which_a_bind_was_refused_are_left_out() -> None:
    overlay = refused(three_nodes(pod("a", 1), pod("b", 1)), "a", "n2", "gone", "n0")
    a, b = (pod_of(overlay, name) for name in "ab")
    assert overlay.bind_refused_nodes([b]) == []
    assert overlay.bind_refused_nodes([b, a]) == [2, 0]
    assert overlay.reasons(a, table_row(overlay, "a")).tolist() == [WHY_BIND_REFUSED, 0, WHY_BIND_REFUSED]
    assert not overlay.reasons(b, table_row(overlay, "b")).any(), "the row belongs to all pods of the shape"
    assert not overlay.is_plain(a)
    assert overlay.is_plain(b)
    assert three_nodes(pod("a", 1)).bind_refused_nodes([a]) == []


def test_reasons_of_the_pod_itself_are_explained_with_those_of_its_shape() -> None:
    overlay = refused(three_nodes(pod("a", 2), pod("x", 1, on="n1")), "a", "n0", "n2")
    a, row = pod_of(overlay, "a"), table_row(overlay, "a")
    why = overlay.reasons(a, row)
    shape = overlay.snapshot.shapes[int(overlay.snapshot.pods.shape[pod_row(overlay.snapshot, "a")])]
    cells = overlay.table.cells
    kept = cells.why[row].tolist(), cells.counts[row].tolist()
    counts = {count.kube: count.nodes for count in overlay.explain_no_node(row, shape, why).verdict().counts}
    assert counts["Insufficient nvidia.com/gpu"] == 1
    assert sum(counts.values()) >= 3
    assert 2 in counts.values(), "two nodes refused the bind"
    assert (cells.why[row].tolist(), cells.counts[row].tolist()) == kept
    bare = overlay.explain_no_node(row, shape, cells.why[row]).verdict()
    assert {count.nodes for count in bare.counts} == {1}
    gpu = [name for name, _ in shape.requests].index("nvidia.com/gpu")
    assert int(why[1]) & insufficient_bit(gpu)


def test_rows_by_key_are_those_of_the_snapshot() -> None:
    overlay = overlay_on(Desk(node("n"), pod("a"), pod("b")).store.snapshot())
    assert overlay.pod_rows() == {"default/a": 0, "default/b": 1}
