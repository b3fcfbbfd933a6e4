"""The overlay: whatever is tried on it can be taken back to the last number."""

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


def row_of(overlay, made):
    snapshot = overlay.snapshot
    (at,) = [row for row in range(len(snapshot.pods.marks)) if snapshot.pods.objects[row].key == made.key]
    return overlay.table.row(snapshot.shapes[int(snapshot.pods.shape[at])], snapshot)


def picture(overlay, waiting):
    """The state, and what every waiting pod would be told."""
    reasons = [overlay.reasons(each, row_of(overlay, each)).tolist() for each in waiting]
    return [array.tolist() for array in overlay.state], reasons


@given(nodes=parks(), policy=st.sampled_from(POLICIES), data=st.data())
def test_everything_tried_is_undone(nodes, policy, data):
    others = data.draw(running(nodes))
    waiting = [data.draw(any_pods(f"w{i}")) for i in range(3)]
    with np.errstate(over="ignore"):
        overlay = overlay_of(Desk(*nodes, *others, *waiting), policy)
        marks = [(overlay.checkpoint(), overlay.version, picture(overlay, waiting))]
        left, seated = list(range(len(others))), []
        gone, unseated = [], []
        moves = ("take", "seat", "remove", "come back", "unseat", "reseat", "mark")
        for _ in range(data.draw(st.integers(0, 9))):
            match data.draw(st.sampled_from(moves)):
                case "take":
                    each = data.draw(st.sampled_from(waiting))
                    row = row_of(overlay, each)
                    node = overlay.select_node(each, row, overlay.reasons(each, row), 0)
                    if node >= 0:
                        seated.append(overlay.assume(each, row, node))
                case "seat":
                    each = data.draw(st.sampled_from(waiting))
                    node = data.draw(st.integers(0, len(nodes) - 1))
                    seated.append(overlay.assume_unchecked(each, row_of(overlay, each), node))
                case "remove" if left:
                    gone.append(left.pop())
                    overlay.remove_running(gone[-1])
                case "come back" if gone:
                    left.append(gone.pop(data.draw(st.integers(0, len(gone) - 1))))
                    overlay.restore_running(left[-1])
                case "unseat" if seated:
                    unseated.append(seated.pop(data.draw(st.integers(0, len(seated) - 1))))
                    overlay.forget(unseated[-1])
                case "reseat" if unseated:
                    seated.append(unseated.pop(data.draw(st.integers(0, len(unseated) - 1))))
                    overlay.assume_again(seated[-1])
                case "mark":
                    marks.append((overlay.checkpoint(), overlay.version, picture(overlay, waiting)))
        assert overlay.removed_rows() == set(gone)
        for checkpoint, version, before in reversed(marks):
            overlay.rollback(checkpoint)
            assert overlay.version == version
            assert picture(overlay, waiting) == before


@given(nodes=parks(), data=st.data())
def test_who_comes_back_out_of_turn_leaves_things_as_if_it_had_never_gone(nodes, data):
    others = data.draw(running(nodes))
    waiting = [data.draw(any_pods(f"w{i}")) for i in range(2)]
    with np.errstate(over="ignore"):
        overlay = overlay_of(Desk(*nodes, *others, *waiting))
        rows = list(range(len(others)))
        stays = data.draw(st.sets(st.sampled_from(rows))) if rows else set()
        for row in (row for row in rows if row not in stays):
            overlay.remove_running(row)
        expected = picture(overlay, waiting)
        overlay.rollback(0)
        for row in rows:
            overlay.remove_running(row)
        for row in data.draw(st.permutations(sorted(stays))):
            overlay.restore_running(row)
        assert picture(overlay, waiting) == expected


def test_a_pod_seated_where_it_does_not_fit_gives_back_no_more_than_it_got():
    """One instance of three finds a place; the other two must not be given back in its name."""
    desk = Desk(mig_node("n", 1), pod("a", mig=("3g.40gb", 1), on="n"), pod("w", mig=("3g.40gb", 3)))
    with np.errstate(over="ignore"):
        overlay = overlay_of(desk)
        waiting = desk.store.snapshot().pods.objects[1]
        before = overlay.state.device_occupancy.tolist()
        overlay.assume_unchecked(waiting, row_of(overlay, waiting), 0)
        assert overlay.state.device_occupancy[0, 1] == 0b11111111
        overlay.rollback(0)
        assert overlay.state.device_occupancy.tolist() == before
