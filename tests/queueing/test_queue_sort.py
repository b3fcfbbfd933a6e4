"""The order of single pods: priority, then age, then name, never the position in the input."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reference.park import Desk, node, pod
from windlass.queueing.queue_sort import sort_pending_pods

DAYS = st.sampled_from(("", "2025-01-01T00:00:00Z", "2025-01-02T00:00:00Z"))


def names(desk):
    snapshot = desk.store.snapshot()
    return [snapshot.pods.objects[row].metadata.name for row in sort_pending_pods(snapshot).tolist()]


def test_an_empty_cluster_has_no_queue():
    assert names(Desk(node("n"))) == []


def test_pods_come_in_the_order_of_priority_then_age_then_name():
    desk = Desk(
        pod("young", created="2025-01-02T00:00:00Z"),
        pod("old-too", created="2025-01-01T00:00:00Z"),
        pod("old", created="2025-01-01T00:00:00Z"),
        pod("urgent", priority=10, created="2025-01-03T00:00:00Z"),
        pod("unimportant", priority=-1),
    )
    assert names(desk) == ["urgent", "old", "old-too", "young", "unimportant"]


@given(st.data(), st.lists(st.tuples(st.integers(-2, 2), DAYS), max_size=12))
def test_the_order_is_the_same_however_they_came(data, wanted):
    pods = [pod(f"p{i:02}", priority=priority, created=day) for i, (priority, day) in enumerate(wanted)]
    found = names(Desk(*pods))
    assert found == names(Desk(*data.draw(st.permutations(pods))))
    ranks = [(-priority, day or "later", f"p{i:02}") for i, (priority, day) in enumerate(wanted)]
    assert found == [name for *_, name in sorted(ranks)]
