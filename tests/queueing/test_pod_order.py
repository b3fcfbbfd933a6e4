"""Who is looked at first, and what stands or falls together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reference.park import Desk, bound, gpu_node, node, pod
from windlass.queueing.order import order


def names(desk):
    """The queue as lists of pod names, unit by unit."""
    snapshot = desk.store.snapshot()
    queue = order(snapshot)
    found = [snapshot.pods.objects[row].metadata.name for row in queue.rows.tolist()]
    return [found[a:b] for a, b in zip(queue.units[:-1].tolist(), queue.units[1:].tolist(), strict=True)]


def test_an_empty_queue_has_no_units():
    assert names(Desk(node("n"))) == []


def test_pods_come_in_the_order_of_priority_then_age_then_arrival():
    desk = Desk(
        pod("young", created="2025-01-02T00:00:00Z"),
        pod("old", created="2025-01-01T00:00:00Z"),
        pod("old-too", created="2025-01-01T00:00:00Z"),
        pod("urgent", priority=10, created="2025-01-03T00:00:00Z"),
        pod("unimportant", priority=-1),
    )
    assert names(desk) == [["urgent"], ["old"], ["old-too"], ["young"], ["unimportant"]]


def test_a_gang_stands_where_its_first_member_stands():
    desk = Desk(
        pod("a"), pod("g1", group=("g", 2)), pod("b"), pod("g2", group=("g", 2)), pod("h", group=("h", 1))
    )
    assert names(desk) == [["a"], ["g1", "g2"], ["b"], ["h"]]


def test_one_urgent_member_takes_its_gang_along():
    desk = Desk(pod("a"), pod("g1", group=("g", 2)), pod("g2", group=("g", 2), priority=5))
    assert names(desk) == [["g2", "g1"], ["a"]]


def test_a_gang_that_lacks_members_is_left_out_and_said_to_be():
    desk = Desk(pod("g1", group=("g", 3)), pod("g2", group=("g", 3)), pod("a"))
    assert names(desk) == [["a"]]
    snapshot = desk.store.snapshot()
    assert order(snapshot).incomplete == ((0, 2),)
    desk.put(pod("g3", group=("g", 3)))
    assert names(desk) == [["g1", "g2", "g3"], ["a"]]


def test_members_that_run_already_count():
    first = pod("g1", group=("g", 2))
    desk = Desk(gpu_node("n", 1), bound(first, "n"), pod("g2", group=("g", 2)))
    assert names(desk) == [["g2"]]
    elsewhere = Desk(bound(first, "a-node-that-is-gone"), pod("g2", group=("g", 2)))
    assert names(elsewhere) == [["g2"]], "it is there, wherever that is"


def test_groups_of_one_name_in_two_namespaces_are_two():
    desk = Desk(pod("a", group=("g", 1)), pod("b", group=("g", 1), namespace="other"))
    assert names(desk) == [["a"], ["b"]]


def test_a_group_that_comes_again_larger_waits_for_all_of_its_members():
    desk = Desk(pod("g1", group=("g", 1)))
    assert names(desk) == [["g1"]]
    desk.put(pod("g1", group=("g", 2)))
    assert names(desk) == []


def test_a_total_that_is_no_number_is_taken_for_one():
    desk = Desk(
        *[pod(f"p{i}", group=(f"g{i}", text)) for i, text in enumerate(("²", "many", "-1", "9" * 5000))]
    )
    assert [unit for unit in names(desk) if len(unit) == 1] == [["p0"], ["p1"], ["p2"], ["p3"]]


@given(st.lists(st.tuples(st.integers(-2, 2), st.sampled_from((None, "g", "h"))), max_size=10))
def test_every_pod_is_in_one_unit_and_gangs_are_whole(wanted):
    totals = {name: sum(1 for _, group in wanted if group == name) for name in ("g", "h")}
    pods = [
        pod(f"p{i}", priority=priority, group=(group, totals[group]) if group else None)
        for i, (priority, group) in enumerate(wanted)
    ]
    units = names(Desk(*pods))
    assert sorted(name for unit in units for name in unit) == sorted(each.metadata.name for each in pods)
    heads = [max(wanted[int(name[1:])][0] for name in unit) for unit in units]
    assert heads == sorted(heads, reverse=True)
    for unit in units:
        groups = {wanted[int(name[1:])][1] for name in unit}
        assert len(groups) == 1
        assert groups == {None} or len(unit) == totals[groups.pop()]
