"""Victims of gangs: the cheapest domain of a required level, nobody who needn't go, and whole gangs or nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.placement.preemption.preemption_cases import NOW, gpu_node, pod, pod_group

from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.placement.preemption.gang import MAX_REPRIEVED
from windlass.planner import plan_objects

RACK = "windlass.dev/rack"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
GROUP, TOTAL = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"


def plan(*objects: Any) -> Plan:
    return plan_objects(objects, Settings(), NOW)[0]


def evicted(found: Plan) -> set[str]:
    return {evict.workload.partition("/")[2] for evict in found.evicts}


def nodes_of(found: Plan) -> list[str]:
    return sorted(bind.node for bind in found.binds)


def gang(count: int, gpus: int, level: str = "", priority: int = 9) -> list[Any]:
    """Members `u0`, `u1`, … of the pod group `u`, in one domain of the level."""
    members = []
    for at in range(count):
        made = pod(f"u{at}", gpus, priority)
        notes = {TOTAL: str(count), **({REQUIRED: level} if level else {})}
        meta = msgspec.structs.replace(made.metadata, labels={GROUP: "u"}, annotations=notes)
        members.append(msgspec.structs.replace(made, metadata=meta))
    return members


def racks(*sizes: int) -> list[Any]:
    """Nodes `n0`, `n1`, … in racks of two."""
    return [gpu_node(f"n{at}", gpus, **{RACK: f"r{at // 2}"}) for at, gpus in enumerate(sizes)]


def test_the_domain_with_the_cheapest_victims_is_cleared() -> None:
    running = [pod(f"a{at}", 4, 0, f"n{at}", 6000) for at in range(2)]
    running += [pod(f"b{at}", 4, 0, f"n{at + 2}", 600) for at in range(2)]
    running += [pod(f"c{at}", 4, 3, f"n{at + 4}", 60) for at in range(2)]
    found = plan(*racks(4, 4, 4, 4, 4, 4), *running, *gang(2, 4, RACK))
    assert (evicted(found), nodes_of(found)) == ({"b0", "b1"}, ["n2", "n3"])


def test_without_a_level_the_cheapest_victims_of_all_nodes_go() -> None:
    running = [pod(f"a{at}", 4, 0, f"n{at}", age) for at, age in enumerate((600, 6000, 6000, 1200))]
    assert evicted(plan(*racks(4, 4, 4, 4), *running, *gang(2, 4))) == {"a0", "a3"}
    found = plan(*racks(4, 4, 4, 4), *running, *gang(2, 4, RACK))
    assert evicted(found) == {"a0", "a1"}, "one domain: 6600 seconds are less than 7200"


def test_a_domain_that_could_never_hold_the_gang_is_left_alone() -> None:
    running = [pod("a", 4, 0, "n0", 60), pod("b", 4, 0, "n2", 6000), pod("c", 4, 0, "n3", 6000)]
    found = plan(*racks(4, 2, 4, 4), *running, *gang(2, 4, RACK))
    assert (evicted(found), nodes_of(found)) == ({"b", "c"}, ["n2", "n3"])
    kept = [pod("kept", 4, 9, "n3", 6000)]
    none = plan(*racks(4, 2, 4, 4), *running[:2], *kept, *gang(2, 4, RACK))
    assert (evicted(none), list(none.binds)) == (set(), [])


def test_free_nodes_of_the_domain_are_used_and_spare_victims() -> None:
    running = [pod("a0", 4, 0, "n0", 600), pod("a1", 4, 0, "n1", 600), pod("b", 4, 0, "n2", 900)]
    found = plan(*racks(4, 4, 4, 4), *running, *gang(2, 4, RACK))
    assert (evicted(found), nodes_of(found)) == ({"b"}, ["n2", "n3"])


def test_a_running_gang_goes_whole_also_where_one_member_would_do() -> None:
    low = [pod_group("low", 2), *(pod(f"low-{at}", 4, 0, f"n{at}", 60, "low") for at in range(2))]
    alone = pod("alone", 4, 0, "n2", 150)
    nodes = [gpu_node(f"n{at}", 4) for at in range(3)]
    found = plan(*nodes, *low, alone, *gang(1, 4))
    assert evicted(found) == {"low"}, "two times a minute are less than two and a half"
    older = pod("alone", 4, 0, "n2", 60)
    assert evicted(plan(*nodes, *low, older, *gang(1, 4))) == {"alone"}


@pytest.mark.parametrize("count", [3, MAX_REPRIEVED + 2])
def test_victims_that_are_not_needed_stay(count: int) -> None:
    """All small pods of the node have to go, and none of the other node."""
    nodes = [gpu_node("n0", count), gpu_node("n1", count + 1)]
    running = [pod(f"s{at:02}", 1, 0, "n0", 600) for at in range(count)]
    running += [pod("large", count + 1, 0, "n1", 30_000)]
    found = plan(*nodes, *running, *gang(1, count))
    assert evicted(found) == {f"s{at:02}" for at in range(count)}
    part = plan(*nodes, *running, *gang(1, count - 1))
    assert len(evicted(part)) == count - 1


def test_larger_members_are_placed_before_smaller_ones() -> None:
    """The large member needs the node of `a`; the small one then fits beside it, and `b` stays."""
    small, large = pod("u0", 1, 9), pod("u1", 3, 9)
    members = [
        msgspec.structs.replace(
            one,
            metadata=msgspec.structs.replace(one.metadata, labels={GROUP: "u"}, annotations={TOTAL: "2"}),
        )
        for one in (small, large)
    ]
    running = [pod("a", 4, 0, "n0", 600), pod("b", 1, 0, "n1", 300)]
    found = plan(gpu_node("n0", 4), gpu_node("n1", 1), *running, *members)
    assert len(found.binds) == 2
    assert evicted(found) == {"a"}


def test_a_gang_that_never_preempts_waits() -> None:
    members = [
        msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, preemption_policy="Never"))
        for one in gang(2, 4)
    ]
    running = [pod(f"a{at}", 4, 0, f"n{at}", 600) for at in range(2)]
    found = plan(*racks(4, 4), *running, *members)
    assert (list(found.binds), evicted(found)) == ([], set())
    assert evicted(plan(*racks(4, 4), *running, *gang(2, 4, priority=0))) == set()
    assert evicted(plan(*racks(4, 4), *running, *gang(2, 4, priority=1))) == {"a0", "a1"}
