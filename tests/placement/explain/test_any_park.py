"""Whatever waits in whatever park can be explained, in both forms, and nothing is different afterwards."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference.park import Desk, gpu_node, pod
from reference.parks import parks, queues, running
from windlass.placement.explain.advisor import MOST_EXPLAINED


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_hold_can_be_explained(data):
    nodes = data.draw(parks())
    desk = Desk(*nodes, *data.draw(running(nodes)), *data.draw(queues()))
    plan = desk.plan()
    plain, explained = list(plan.holds), list(plan.explained)
    assert [hold.workload for hold in explained] == [hold.workload for hold in plain]
    assert all(one.verdict.code == other.verdict.code for one, other in zip(explained, plain, strict=True))
    for hold in explained:
        assert hold.verdict.message
        assert hold.verdict.public_message
    assert list(plan.holds) == plain
    again = desk.plan()
    assert (list(again.binds), list(again.holds)) == (list(plan.binds), plain)
    count = len(again.holds)
    assert [again.holds.explained(i) for i in reversed(range(count))] == explained[::-1]


def test_what_is_tried_for_one_is_undone_before_the_next():
    waiting = [pod("a", 8), pod("b", 8, cpu="2")]
    desk = Desk(gpu_node("n0", 8), pod("p", 1, on="n0"), *waiting)
    told = [hold.verdict.changes[0].text for hold in desk.plan().explained]
    assert told == ["with 7 GPUs a pod instead of 8"] * 2


def test_only_the_first_holds_are_explained_and_equal_ones_alike():
    waiting = [pod(f"w{i:02}", 8, cpu=f"{100 + i % 2}m") for i in range(MOST_EXPLAINED + 2)]
    plan = Desk(gpu_node("n0", 8), pod("p", 1, on="n0"), *waiting).plan()
    explained = [hold.verdict for hold in plan.explained]
    assert all(verdict.changes == explained[0].changes for verdict in explained[:MOST_EXPLAINED])
    assert not any(verdict.limits or verdict.changes for verdict in explained[MOST_EXPLAINED:])
    assert {verdict.code for verdict in explained} == {"GPU_FULL"}
