"""Dry runs: what would start now, without whom, within which budget; and that nothing of them stays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.placement.staged_overlay import overlay_on

from reference.park import gpu_node, pod
from windlass.model.verdict import Verdict
from windlass.placement.explain.dry_runs import MAX_DRY_RUNS, DryRunBudget, DryRuns
from windlass.placement.explain.held_workload import HeldWorkload
from windlass.placement.explain.post_decision import PostDecisionState, single_pod_state, single_pod_workload
from windlass.placement.timeplan.run_limits import PlannedStartSettings
from windlass.queueing.config import QueueConfig

NOW = 1_800_000_000


@pytest.fixture(autouse=True)
def _overflow() -> Iterator[None]:
    with np.errstate(over="ignore"):  # the hash function of the kernels overflows on purpose
        yield


def state_of(*objects: Any) -> PostDecisionState:
    return single_pod_state(overlay_on(*objects, now=NOW), QueueConfig(), PlannedStartSettings(), NOW)


OBJECTS = (gpu_node("a", 4), gpu_node("b", 2), pod("x", 3, on="a"), pod("y", 1, on="b"), pod("z", 1, on="b"))


@pytest.mark.parametrize(
    ("gpus", "without", "starts"),
    [
        (1, (), True),
        (2, (), False),
        (4, ("x",), True),
        (5, ("x",), False),
        (2, ("y",), False),
        (2, ("y", "z"), True),
    ],
)
def test_what_would_start_without_whom(gpus: int, without: tuple[str, ...], starts: bool) -> None:
    state = state_of(*OBJECTS)
    runs = DryRuns(state)
    before = [array.tolist() for array in state.overlay.state]
    keys = [f"default/{name}" for name in without]
    assert runs.would_start(single_pod_workload(pod("w", gpus)), keys) == starts
    assert [array.tolist() for array in state.overlay.state] == before, "nothing of it stays"
    assert runs.would_start(single_pod_workload(pod("w", gpus)), keys) == starts


def test_a_request_that_cant_be_read_would_not_start() -> None:
    unreadable = pod("w", asks={"nvidia.com/gpu": "0.5"})
    assert not DryRuns(state_of(*OBJECTS)).would_start(single_pod_workload(unreadable))


def test_dry_runs_of_one_hold_are_limited() -> None:
    runs = DryRuns(state_of(*OBJECTS))
    small = single_pod_workload(pod("w", 1))
    assert [runs.would_start(small) for _ in range(MAX_DRY_RUNS)] == [True] * MAX_DRY_RUNS
    assert runs.is_exhausted
    assert not runs.would_start(small)


def test_pods_of_one_hold_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.placement.explain.dry_runs.MAX_PODS", 3)
    runs = DryRuns(state_of(*OBJECTS))
    small = single_pod_workload(pod("w", 1))
    assert [runs.would_start(small) for _ in range(4)] == [True, True, True, False]


def test_nodes_of_one_plan_are_limited_over_all_its_holds() -> None:
    state = state_of(*OBJECTS)
    budget = DryRunBudget(2)
    budget.left = 5
    small = single_pod_workload(pod("w", 1))
    first, second = DryRuns(state, budget), DryRuns(state, budget)
    assert [first.would_start(small), second.would_start(small), first.would_start(small)] == [True] * 3
    assert budget.left == -1
    assert (first.is_exhausted, second.would_start(small)) == (True, False)


def test_a_held_workload_knows_its_tightest_pod_set() -> None:
    held = HeldWorkload(state_of(*OBJECTS), single_pod_workload(pod("w", 2)), Verdict("GPU_FULL", 2))
    assert (held.tightest_pod_set(), held.lacks_quota, held.has_topology_request) == (0, False, False)
    totals = held.gpu_totals()
    assert (totals.requested, totals.free, totals.free_by_node) == (2000, 1000, [1])


# The state after a decision of single pods


def test_the_state_has_what_runs_and_what_waits() -> None:
    state = state_of(*OBJECTS, pod("w", 1))
    assert sorted(occupant.workload.key for occupant in state.running()) == ["default/x", "default/y", "default/z"]
    piece = state.pending_piece("default/w")
    assert piece is not None
    assert (piece.key, piece.kind, piece.pod_sets[0].pod_keys, piece.pod_sets[0].count) == (
        "default/w",
        "Pod",
        ("default/w",),
        1,
    )
    assert state.pending_piece("default/nobody") is None
    unreadable = state_of(*OBJECTS, pod("w", asks={"nvidia.com/gpu": "0.5"}))
    assert unreadable.pending_piece("default/w") is None
    assert state.nodes_of_queue(piece).tolist() == [True, True]


def test_evicted_pods_run_no_more_and_later_decisions_end_the_state() -> None:
    state = state_of(*OBJECTS)
    state.overlay.remove_running(1)
    assert state.evicted_pods() == {"default/y"}
    assert sorted(occupant.workload.key for occupant in state.running()) == ["default/x", "default/z"]
    assert state.is_current
    state.overlay.table.start_decision()
    assert not state.is_current


def test_pods_that_were_placed_now_are_users_like_those_that_run() -> None:
    overlay = overlay_on(*OBJECTS, pod("w", 1), now=NOW)
    state = single_pod_state(overlay, QueueConfig(), PlannedStartSettings(), NOW)
    waits = overlay.snapshot.pods.objects[3]
    shape = overlay.snapshot.shapes[int(overlay.snapshot.pods.shape[3])]
    overlay.assume(waits, overlay.table.row(shape, overlay.snapshot, waits), 0)
    state.count_admitted()
    state.count_admitted()
    keys = sorted(occupant.workload.key for occupant in state.running())
    assert keys == ["default/w", "default/x", "default/y", "default/z"]
    assert DryRuns(state).would_start(single_pod_workload(pod("v", 1)), ["default/w"])
    assert not DryRuns(state).would_start(single_pod_workload(pod("v", 1)))
