"""The order of single pods, and where they come among gangs: priority, age, name, never the position in the input."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.queueing.builders import running, waiting

from reference.park import Desk, node, pod
from windlass.queueing import queue_sort
from windlass.queueing.queue_sort import (
    single_pods_between,
    sort_pending_pods,
    sorts_before_all,
    waiting_sort_keys,
)

DAYS = st.sampled_from(("", "2025-01-01T00:00:00Z", "2025-01-02T00:00:00Z"))
NEW_YEAR = 1_735_689_600


def names(desk, mask=None):
    snapshot = desk.store.snapshot()
    return [snapshot.pods.objects[row].metadata.name for row in sort_pending_pods(snapshot, mask).tolist()]


def nominated(name, **more):
    made = pod(name, **more)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, nominated_node_name="n"))


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


@given(st.data(), st.lists(st.tuples(st.integers(-2, 2), DAYS, st.booleans()), max_size=12))
def test_the_order_is_the_same_however_they_came(data, wanted):
    """A nominated pod comes first among its priority; one that is nominated has victims, so it isn't of the lowest."""
    lowest = pod("running", priority=-3, on="n")
    pods = [
        (nominated if promised else pod)(f"p{i:02}", priority=priority, created=day)
        for i, (priority, day, promised) in enumerate(wanted)
    ]
    found = names(Desk(node("n"), lowest, *pods))
    assert found == names(Desk(node("n"), lowest, *data.draw(st.permutations(pods))))
    ranks = [
        (-priority, not promised, day or "later", f"p{i:02}") for i, (priority, day, promised) in enumerate(wanted)
    ]
    assert found == [name for *_, name in sorted(ranks)]


def test_names_decide_within_each_run_of_equals_only():
    desk = Desk(*(pod(name, priority=int(name[-1])) for name in ("b2", "z1", "a2", "d1", "c2", "y1", "x0")))
    assert names(desk) == ["a2", "b2", "c2", "d1", "y1", "z1", "x0"]
    spaces = Desk(pod("a", namespace="z"), pod("b", namespace="y"))
    assert names(spaces) == ["b", "a"]


def test_a_mask_leaves_pods_out():
    desk = Desk(pod("a"), pod("b", priority=1), pod("c", priority=2))
    snapshot = desk.store.snapshot()
    mask = np.array([one is not None and one.metadata.name != "b" for one in snapshot.pods.objects])
    assert names(desk, mask) == ["c", "a"]


def test_the_keys_of_what_waits_are_those_of_gangs_of_the_first_queued_workload_and_before_the_lowest_priority():
    crowd = [
        waiting("gang", "", 1, priority=1, created=7),
        waiting("other", "", 1, priority=5, created=9),
        waiting("queued", "q", 1, priority=2, created=8),
        waiting("first", "q", 1, priority=3, created=4),
        waiting("late", "q", 1, priority=3, created=5),
        waiting("held", "", 1, priority=9, hold="why"),
        running("runs", "q", 1, priority=9),
    ]
    assert waiting_sort_keys(crowd) == [(-5, 9), (-3, 4), (-2, -1), (-1, 7)]
    assert waiting_sort_keys(crowd[:2]) == [(-5, 9), (-1, 7)]
    assert waiting_sort_keys(crowd[3:5]) == [(-3, 4)], "of one priority: none of them gives way to a pod"
    assert waiting_sort_keys(crowd[5:]) == []


def before(keys, *pods):
    snapshot = Desk(node("n"), *pods).store.snapshot()
    mask = sorts_before_all(snapshot, keys)
    return {snapshot.pods.objects[row].metadata.name for row in snapshot.pods.pending().tolist() if mask[row]}


def test_a_pod_comes_before_all_gangs_if_it_is_more_urgent_or_older():
    gang = [(-5, NEW_YEAR), (0, 1)]
    day = "2025-01-01T00:00:0{}Z"
    assert before(
        gang,
        pod("more", priority=6, created=day.format(9)),
        pod("older", priority=5, created="2024-12-31T23:59:59Z"),
        pod("same", priority=5, created=day.format(0)),
        pod("younger", priority=5, created=day.format(1)),
        pod("unborn", priority=5),
        pod("less", priority=4, created="2024-01-01T00:00:00Z"),
    ) == {"more", "older"}
    assert before([], pod("urgent", priority=1), pod("plain")) == {"urgent"}


def test_nominated_pods_come_before_all_only_if_nothing_is_of_higher_priority():
    pods = [nominated("a", priority=3), nominated("b", priority=1), pod("c", priority=2), pod("d", priority=1)]
    assert before([(-9, 1), (-1, 1)], *pods) == set()
    assert before([(-3, 1), (-1, 1)], *pods) == {"a"}
    assert before([(-1, 1)], *pods) == {"a", "b", "c"}
    assert before([], *pods) == {"a", "b", "c", "d"}


def single(name, priority, created, **more):
    return waiting(name, "", 1, priority=priority, created=created, **more)


def test_pods_between_the_first_and_the_last_gang_wait_for_their_turn():
    keys = [(-5, 10), (-3, 10), (-1, 10)]
    pods = [
        single("after", 1, 10),
        single("last", 1, 9),
        single("b", 3, 5),
        single("a", 3, 5),
        single("first", 5, 10),
        single("before", 5, 9),
        running("runs", "", 1, priority=3, created=5),
    ]
    assert [one.name for one in single_pods_between(keys, pods)] == ["first", "a", "b", "last"]
    assert single_pods_between(keys[:1], pods) == []
    assert single_pods_between([], pods) == []
    assert [one.name for one in single_pods_between(keys[:2], pods)] == ["first", "a", "b"]


def test_nominated_pods_of_the_last_priority_are_decided_between_too():
    keys = [(-5, 10), (-1, 10)]
    pods = [single("plain", 1, 11), single("other", 1, 11, nominated=True), single("less", 0, 1, nominated=True)]
    assert [one.name for one in single_pods_between(keys, pods)] == ["other"]
    assert single_pods_between([(-1, 9), (-1, 10)], pods) == [], "they come before all of these"


def test_only_so_many_pods_are_decided_between_gangs(monkeypatch: pytest.MonkeyPatch):
    pods = [single(f"p{number}", 1, number) for number in range(1, 6)]
    assert queue_sort.MAX_PODS_BETWEEN == 2_000
    monkeypatch.setattr(queue_sort, "MAX_PODS_BETWEEN", 2)
    assert [one.name for one in single_pods_between([(-2, 0), (0, 0)], pods)] == ["p1", "p2"]
