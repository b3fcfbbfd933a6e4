"""The overlay: everything that is tried on it can be undone exactly."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reference.park import Desk, mig_node, pod
from reference.parks import any_pods, parks, running
from windlass import jit
from windlass.placement.overlay import Overlay
from windlass.placement.policies import POLICIES, SCORERS, PlacementConfig, make_scoring_rule
from windlass.placement.score_table import ScoreTable
from windlass.placement.scorer_selector import ScorerSelector
from windlass.placement.workload_mix import WorkloadMix, mix_arrays


def overlay_of(desk, policy="windlass"):
    snapshot = desk.store.snapshot()
    table = ScoreTable(
        snapshot,
        mix_arrays(WorkloadMix(), snapshot.gpu_models, snapshot.node_state),
        ScorerSelector(SCORERS[policy]),
    )
    with np.errstate(over="ignore"):
        rule = make_scoring_rule(PlacementConfig(policy), snapshot.node_state)
        return Overlay(snapshot, table, rule, jit.kernels(small=True))


def row_of(overlay, pod_object):
    snapshot = overlay.snapshot
    (pod_row,) = [row for row in range(len(snapshot.pods.marks)) if snapshot.pods.objects[row].key == pod_object.key]
    return overlay.table.row(snapshot.shapes[int(snapshot.pods.shape[pod_row])], snapshot)


def observed(overlay, waiting):
    """The state, and the reasons of every waiting pod."""
    reasons = [overlay.reasons(waiting_pod, row_of(overlay, waiting_pod)).tolist() for waiting_pod in waiting]
    return [array.tolist() for array in overlay.state], reasons


@given(nodes=parks(), policy=st.sampled_from(POLICIES), data=st.data())
def test_everything_tried_is_undone(nodes, policy, data):
    bound_pods = data.draw(running(nodes))
    waiting = [data.draw(any_pods(f"w{i}")) for i in range(3)]
    with np.errstate(over="ignore"):
        overlay = overlay_of(Desk(*nodes, *bound_pods, *waiting), policy)
        marks = [(overlay.checkpoint(), overlay.version, observed(overlay, waiting))]
        running_rows, assumed = list(range(len(bound_pods))), []
        removed, forgotten = [], []
        moves = ("assume", "assume unchecked", "remove", "restore", "forget", "assume again", "mark")
        for _ in range(data.draw(st.integers(0, 9))):
            match data.draw(st.sampled_from(moves)):
                case "assume":
                    waiting_pod = data.draw(st.sampled_from(waiting))
                    row = row_of(overlay, waiting_pod)
                    node = overlay.select_node(waiting_pod, row, overlay.reasons(waiting_pod, row), 0)
                    if node >= 0:
                        assumed.append(overlay.assume(waiting_pod, row, node))
                case "assume unchecked":
                    waiting_pod = data.draw(st.sampled_from(waiting))
                    node = data.draw(st.integers(0, len(nodes) - 1))
                    assumed.append(overlay.assume_unchecked(waiting_pod, row_of(overlay, waiting_pod), node))
                case "remove" if running_rows:
                    removed.append(running_rows.pop())
                    overlay.remove_running(removed[-1])
                case "restore" if removed:
                    running_rows.append(removed.pop(data.draw(st.integers(0, len(removed) - 1))))
                    overlay.restore_running(running_rows[-1])
                case "forget" if assumed:
                    forgotten.append(assumed.pop(data.draw(st.integers(0, len(assumed) - 1))))
                    overlay.forget(forgotten[-1])
                case "assume again" if forgotten:
                    assumed.append(forgotten.pop(data.draw(st.integers(0, len(forgotten) - 1))))
                    overlay.assume_again(assumed[-1])
                case "mark":
                    marks.append((overlay.checkpoint(), overlay.version, observed(overlay, waiting)))
        assert overlay.removed_rows() == set(removed)
        for checkpoint, version, before in reversed(marks):
            overlay.rollback(checkpoint)
            assert overlay.version == version
            assert observed(overlay, waiting) == before


@given(nodes=parks(), data=st.data())
def test_who_comes_back_out_of_turn_leaves_things_as_if_it_had_never_gone(nodes, data):
    bound_pods = data.draw(running(nodes))
    waiting = [data.draw(any_pods(f"w{i}")) for i in range(2)]
    with np.errstate(over="ignore"):
        overlay = overlay_of(Desk(*nodes, *bound_pods, *waiting))
        rows = list(range(len(bound_pods)))
        stays = data.draw(st.sets(st.sampled_from(rows))) if rows else set()
        for row in (row for row in rows if row not in stays):
            overlay.remove_running(row)
        expected = observed(overlay, waiting)
        overlay.rollback(0)
        for row in rows:
            overlay.remove_running(row)
        for row in data.draw(st.permutations(sorted(stays))):
            overlay.restore_running(row)
        assert observed(overlay, waiting) == expected


def test_a_pod_seated_where_it_does_not_fit_gives_back_no_more_than_it_got():
    """One instance of three fits; releasing the pod must not release the other two."""
    desk = Desk(mig_node("n", 1), pod("a", mig=("3g.40gb", 1), on="n"), pod("w", mig=("3g.40gb", 3)))
    with np.errstate(over="ignore"):
        overlay = overlay_of(desk)
        waiting = desk.store.snapshot().pods.objects[1]
        before = overlay.state.device_occupancy.tolist()
        overlay.assume_unchecked(waiting, row_of(overlay, waiting), 0)
        assert overlay.state.device_occupancy[0, 1] == 0b11111111
        overlay.rollback(0)
        assert overlay.state.device_occupancy.tolist() == before
