"""Every hold of a random cluster can be explained, in both forms, and explaining changes nothing."""

from __future__ import annotations

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference.park import Desk, gpu_node, pod
from reference.parks import parks, queues, running
from windlass.model.plan import Plan
from windlass.placement.explain.advisor import MAX_EXPLAINED_HOLDS


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_hold_can_be_explained(data):
    nodes = data.draw(parks())
    objects = (*nodes, *data.draw(running(nodes)), *data.draw(queues()))
    plain, plan = Desk(*objects).plan(), Desk(*objects, explain=MAX_EXPLAINED_HOLDS).plan()
    assert [hold.workload for hold in plan.holds] == [hold.workload for hold in plain.holds]
    for hold, other in zip(plan.holds, plain.holds, strict=True):
        assert hold.verdict.is_explained
        assert not other.verdict.is_explained
        assert hold.verdict.code == other.verdict.code
        assert hold.verdict.message
        assert hold.verdict.public_message
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_what_is_tried_for_one_is_undone_before_the_next():
    waiting = [pod("a", 8), pod("b", 8, cpu="2")]
    desk = Desk(gpu_node("n0", 8), pod("p", 1, on="n0"), *waiting, explain=MAX_EXPLAINED_HOLDS)
    texts = [hold.verdict.changes[0].text for hold in desk.plan().holds]
    assert texts == ["with 7 GPUs per pod instead of 8"] * 2


def test_only_the_first_holds_are_explained_and_equal_ones_alike():
    waiting = [pod(f"w{i:02}", 8, cpu=f"{100 + i % 2}m") for i in range(MAX_EXPLAINED_HOLDS + 2)]
    plan = Desk(gpu_node("n0", 8), pod("p", 1, on="n0"), *waiting, explain=MAX_EXPLAINED_HOLDS).plan()
    explained = [hold.verdict for hold in plan.holds]
    assert all(verdict.changes == explained[0].changes for verdict in explained[:MAX_EXPLAINED_HOLDS])
    assert not any(verdict.limits or verdict.changes for verdict in explained[MAX_EXPLAINED_HOLDS:])
    assert [verdict.is_explained for verdict in explained] == [True] * MAX_EXPLAINED_HOLDS + [False] * 2
    assert {verdict.code for verdict in explained} == {"GPU_FULL"}
