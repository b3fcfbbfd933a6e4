"""Whatever waits in whatever park can be explained, in both forms, and nothing is different afterwards."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference.park import Desk
from reference.parks import parks, queues, running


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
