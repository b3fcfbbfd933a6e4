"""Pieces of workloads: the minimum, what is missing of it, and each member above it; with their parts of the quota."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from windlass.model.pod import Pod
from windlass.model.queue import (
    ClusterQueue,
    FlavorQuotas,
    LocalQueue,
    QueueSystem,
    ResourceFlavor,
    ResourceGroup,
)
from windlass.model.workload import Admission, PodSet, PodSetAssignment, TopologyRequest, Workload
from windlass.placement.decision_cache import DecisionCache
from windlass.placement.workload_pieces import (
    UNCONSTRAINED_TOPOLOGY,
    admitted_choices,
    drop_without_prerequisites,
    is_above_minimum,
    is_single_pod,
    missing_piece_key,
    pieces_to_decide,
    prerequisite_pieces,
    split_workload,
    unqueued_sort_key,
    workload_key,
)
from windlass.queueing.outcome import PRIORITY, Admitted, Evicted, Held, Outcome
from windlass.queueing.placement_interface import PodSetChoice

KEY = "team/g"


def pod_set(count: int, name: str = "main", **more: object) -> PodSet:
    keys = tuple(f"team/{name}-{number}" for number in range(count))
    return PodSet(name, count, Pod(), pod_keys=keys, **more)  # type: ignore[arg-type]


def part(count: int, cpu: int, name: str = "main", flavor: str = "f") -> PodSetAssignment:
    return PodSetAssignment(name, count, {"cpu": flavor}, {"cpu": cpu}, {"n": count})


def gang(*sets: PodSet, held: tuple[PodSetAssignment, ...] | None = None, **more: object) -> Workload:
    admission = None if held is None else Admission("queue", held, 500)
    return Workload(KEY, "PodGroup", sets, uid="u", queued_at=100, admission=admission, **more)  # type: ignore[arg-type]


def sizes(workload: Workload) -> dict[str, list[tuple[str, int]]]:
    """Piece → (pod set, pods)."""
    return {piece.key: [(own.name, own.count) for own in piece.pod_sets] for piece in split_workload(workload)}


def holdings(workload: Workload) -> dict[str, list[tuple[int, dict[str, int]]] | None]:
    """Piece → (pods, usage) of its assignments."""
    return {
        piece.key: None if piece.admission is None else [(own.count, own.usage) for own in piece.admission.assignments]
        for piece in split_workload(workload)
    }


# Keys


@pytest.mark.parametrize(
    ("piece", "above", "needs"),
    [
        (KEY, False, []),
        (f"{KEY}#missing", False, [KEY]),
        (f"{KEY}#1", True, [KEY, f"{KEY}#missing"]),
        (f"{KEY}#12", True, [KEY, f"{KEY}#missing"]),
        (f"{KEY}#other", False, []),
    ],
)
def test_a_piece_belongs_to_its_workload_and_needs_the_minimum(piece: str, above: bool, needs: list[str]) -> None:
    assert workload_key(piece) == KEY
    assert is_above_minimum(piece) is above
    assert prerequisite_pieces(piece) == needs
    assert missing_piece_key(KEY) == f"{KEY}#missing"


@pytest.mark.parametrize(
    ("kind", "queue", "hold", "single"),
    [("Pod", "", "", True), ("Job", "", "", False), ("Pod", "q", "", False), ("Pod", "", "why", False)],
)
def test_a_single_pod_is_in_no_gang_and_no_queue(kind: str, queue: str, hold: str, single: bool) -> None:
    assert is_single_pod(Workload("team/p", kind, (), queue_name=queue, hold=hold)) is single


# Splitting


def test_a_workload_without_a_minimum_is_one_piece() -> None:
    for workload in (
        gang(pod_set(3)),
        gang(pod_set(2), pod_set(3, "more")),
        gang(pod_set(1)),
        gang(pod_set(3), min_pods=3),
    ):
        assert split_workload(workload) == [workload]


def test_a_workload_without_pods_is_one_piece() -> None:
    assert split_workload(gang()) == [gang()]


def test_members_above_the_minimum_are_pieces_of_one_pod_each() -> None:
    minimum, first, second = split_workload(gang(pod_set(4), min_pods=2))
    assert (minimum.key, first.key, second.key) == (KEY, f"{KEY}#1", f"{KEY}#2")
    assert minimum.pod_sets[0].pod_keys == ("team/main-0", "team/main-1")
    assert first.pod_sets[0].pod_keys == ("team/main-2",)
    assert second.pod_sets[0].pod_keys == ("team/main-3",)
    assert [piece.pod_sets[0].count for piece in (minimum, first, second)] == [2, 1, 1]
    assert [piece.uid for piece in (minimum, first, second)] == ["u", "u#1", "u#2"]
    assert [piece.queued_at for piece in (minimum, first, second)] == [100, 101, 102]
    assert [piece.min_pods for piece in (minimum, first, second)] == [None, None, None]
    assert not any(piece.gang_running for piece in (minimum, first, second))


def test_the_minimum_is_filled_in_the_order_of_the_sets() -> None:
    sets = (pod_set(2, "a"), pod_set(3, "b"))
    assert sizes(gang(*sets, min_pods=3)) == {
        KEY: [("a", 2), ("b", 1)],
        f"{KEY}#1": [("b", 1)],
        f"{KEY}#2": [("b", 1)],
    }
    assert sizes(gang(*sets, min_pods=1)) == {
        KEY: [("a", 1)],
        f"{KEY}#1": [("a", 1)],
        f"{KEY}#2": [("b", 1)],
        f"{KEY}#3": [("b", 1)],
        f"{KEY}#4": [("b", 1)],
    }


def test_a_minimum_is_at_least_one_pod_and_at_most_all() -> None:
    assert sizes(gang(pod_set(2), min_pods=0)) == {KEY: [("main", 1)], f"{KEY}#1": [("main", 1)]}
    assert sizes(gang(pod_set(2), min_pods=9)) == {KEY: [("main", 2)]}


def test_what_a_running_gang_lacks_of_its_minimum_is_a_piece() -> None:
    workload = gang(pod_set(3), min_pods=2, held=(part(1, 10),))
    minimum, missing, extra = split_workload(workload)
    assert (minimum.key, missing.key, extra.key) == (KEY, f"{KEY}#missing", f"{KEY}#2")
    assert [piece.pod_sets[0].pod_keys for piece in (minimum, missing, extra)] == [
        ("team/main-0",),
        ("team/main-1",),
        ("team/main-2",),
    ]
    assert [piece.gang_running for piece in (minimum, missing, extra)] == [False, True, False]
    assert holdings(workload) == {KEY: [(1, {"cpu": 10})], f"{KEY}#missing": None, f"{KEY}#2": None}


def test_a_gang_that_lacks_members_is_split_without_a_declared_minimum_too() -> None:
    assert sizes(gang(pod_set(3), held=(part(1, 10),))) == {KEY: [("main", 1)], f"{KEY}#missing": [("main", 2)]}
    assert sizes(gang(pod_set(3), held=(part(3, 30),))) == {KEY: [("main", 3)]}


def test_each_piece_has_its_part_of_the_quota() -> None:
    workload = gang(pod_set(4), min_pods=2, held=(part(3, 30),))
    assert holdings(workload) == {KEY: [(2, {"cpu": 20})], f"{KEY}#1": [(1, {"cpu": 10})], f"{KEY}#2": None}
    minimum, first, _ = split_workload(workload)
    assert minimum.admission is not None
    assert first.admission is not None
    assert minimum.admission.cluster_queue == "queue"
    assert (minimum.admission.reserved_at, first.admission.reserved_at) == (500, 501), "the newest are evicted first"
    assert first.admission.assignments[0].nodes == {"n": 3}


def test_a_set_on_several_flavors_is_handed_out_in_order() -> None:
    held = (part(1, 7), part(2, 9, "other"), part(2, 10, flavor="g"))
    workload = gang(pod_set(4), pod_set(2, "other"), min_pods=2, held=held)
    assert holdings(workload) == {
        KEY: [(1, {"cpu": 7}), (1, {"cpu": 5})],
        f"{KEY}#1": [(1, {"cpu": 5})],
        f"{KEY}#2": None,
        f"{KEY}#3": [(1, {"cpu": 4})],
        f"{KEY}#4": [(1, {"cpu": 4})],
    }


def test_a_set_admitted_with_fewer_pods_lacks_none_while_it_has_its_least() -> None:
    workload = gang(pod_set(4, min_count=2), held=(part(2, 20),))
    assert split_workload(workload) == [workload]
    more = gang(pod_set(4, min_count=2), held=(part(3, 30),))
    assert split_workload(more) == [more]
    below = gang(pod_set(4, min_count=3), held=(part(2, 20),))
    assert sizes(below) == {KEY: [("main", 2)], f"{KEY}#missing": [("main", 2)]}


def test_a_single_set_of_one_pod_is_split_only_where_it_holds_something_else() -> None:
    one = gang(pod_set(1), held=(part(1, 5),))
    assert split_workload(one) == [one]
    assert list(sizes(gang(pod_set(1), held=()))) == [f"{KEY}#missing"]
    assert list(sizes(gang(pod_set(1), held=(part(1, 5, "old"),)))) == [f"{KEY}#missing"]
    two_flavors = gang(pod_set(1), held=(part(1, 5), part(1, 5, flavor="g")))
    assert split_workload(two_flavors) == [two_flavors]


def test_unreadable_pieces_without_quota_are_held_for_it() -> None:
    workload = gang(pod_set(2), min_pods=1, held=(part(1, 5),), unreadable="bad cpu", hold="", hold_code="X")
    minimum, extra = split_workload(workload)
    assert (minimum.hold, minimum.hold_code) == ("", "X")
    assert (extra.hold, extra.hold_code) == ("bad cpu", "INVALID_OBJECT")
    readable = split_workload(gang(pod_set(2), min_pods=1, hold="why", hold_code="X"))
    assert [(piece.hold, piece.hold_code) for piece in readable] == [("why", "X")] * 2


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.one_of(st.none(), st.integers(0, 8)),
    st.data(),
)
def test_pieces_are_the_whole_workload_once(counts: list[int], minimum: int | None, data: st.DataObject) -> None:
    sets = [pod_set(count, f"s{number}") for number, count in enumerate(counts)]
    held = None
    if data.draw(st.booleans()):
        held = tuple(part(pods, 10 * pods, own.name) for own in sets if (pods := data.draw(st.integers(0, own.count))))
    pieces = split_workload(gang(*sets, held=held, min_pods=minimum))
    pods = [key for piece in pieces for own in piece.pod_sets for key in own.pod_keys]
    assert sorted(pods) == sorted(key for own in sets for key in own.pod_keys)
    assert len({piece.key for piece in pieces}) == len(pieces)
    assert all(own.count == len(own.pod_keys) > 0 for piece in pieces for own in piece.pod_sets)
    assert all(piece.pod_sets for piece in pieces)
    usage = sum(
        own.usage["cpu"] for piece in pieces if piece.admission is not None for own in piece.admission.assignments
    )
    assert usage == sum(10 * own.count for own in held or ())
    total = sum(counts)
    needed = total if minimum is None else max(1, min(minimum, total))
    core = sum(own.count for piece in pieces if not is_above_minimum(piece.key) for own in piece.pod_sets)
    assert core == needed


# Topology that a queue implies


def topology_system(*topologies: str) -> QueueSystem:
    """A queue with one flavor for each of these; "" for a flavor without a topology."""
    names = [f"f{number}" for number in range(len(topologies))]
    group = ResourceGroup(("cpu",), tuple(FlavorQuotas(name, {}) for name in names))
    return QueueSystem(
        queues={"q": ClusterQueue("q", resource_groups=(group,)), "plain": ClusterQueue("plain")},
        local_queues={"team/q": LocalQueue("team/q", "q"), "team/plain": LocalQueue("team/plain", "plain")},
        flavors={name: ResourceFlavor(name, topology=own) for name, own in zip(names, topologies, strict=True)},
    )


REQUEST = TopologyRequest("required", "rack")


def implied(system: QueueSystem, queue: str) -> list[TopologyRequest | None]:
    workload = gang(pod_set(2, "a"), pod_set(2, "b", topology=REQUEST), queue_name=queue)
    (piece,) = pieces_to_decide(system, [workload])
    return [own.topology for own in piece.pod_sets]


def test_a_queue_with_topologies_only_implies_them() -> None:
    assert implied(topology_system("dc", "dc"), "q") == [UNCONSTRAINED_TOPOLOGY, REQUEST]
    assert implied(topology_system("dc", ""), "q") == [None, REQUEST]
    assert implied(topology_system("dc"), "plain") == [None, REQUEST]
    assert implied(topology_system("dc"), "unknown") == [None, REQUEST]
    assert implied(topology_system(), "q") == [None, REQUEST]
    assert TopologyRequest("unconstrained") == UNCONSTRAINED_TOPOLOGY


def test_a_workload_that_says_all_is_left_as_it_is() -> None:
    workload = gang(pod_set(2, topology=REQUEST), queue_name="q")
    (piece,) = pieces_to_decide(topology_system("dc"), [workload])
    assert piece is workload


def test_pieces_are_made_once_for_a_workload() -> None:
    cache, workload = DecisionCache(), gang(pod_set(2), min_pods=1)
    first = pieces_to_decide(QueueSystem(), [workload], cache)
    again = pieces_to_decide(QueueSystem(), [workload], cache)
    assert [piece.key for piece in first] == [KEY, f"{KEY}#1"]
    assert all(one is other for one, other in zip(first, again, strict=True))


def test_a_running_pod_is_not_split_and_a_waiting_one_may_be() -> None:
    runs = Workload("team/p", "Pod", (pod_set(1),), admission=Admission("queue"))
    waits = Workload("team/p", "Pod", (pod_set(2),), min_pods=1)
    found = pieces_to_decide(QueueSystem(), [runs, waits])
    assert found[0] is runs
    assert len(found) == 3


# Order


def test_pieces_in_no_queue_are_ordered_by_these_rules_in_turn() -> None:
    pod = Workload("team/a", "Pod", (), created=5, queued_at=5)
    group = replace(pod, key="team/z", kind="PodGroup")
    ordered = [
        replace(pod, key="team/z9", priority=2),
        replace(pod, key="team/z8", priority=1, nominated=True, queued_at=9),
        replace(pod, key="team/z7", priority=1, gang_running=True, queued_at=9),
        replace(pod, key="team/z6", priority=1, queued_at=4),
        replace(group, priority=1),
        replace(pod, priority=1),
        replace(pod, key="team/b", priority=1),
        replace(pod, key="team/a#1", priority=9),
    ]
    for some in permutations(ordered, 2):
        assert sorted(some, key=unqueued_sort_key) == sorted(some, key=ordered.index)


# Choices


def test_the_admitted_count_and_flavors_of_each_set() -> None:
    held = (part(1, 5), part(2, 9, "other"), part(2, 10, flavor="g"))
    workload = gang(pod_set(4), pod_set(2, "other"), pod_set(1, "none"), held=held)
    assert admitted_choices(workload) == (
        PodSetChoice("main", 3, {"cpu": "f"}),
        PodSetChoice("other", 2, {"cpu": "f"}),
        PodSetChoice("none", 0, {}),
    )
    assert admitted_choices(gang(pod_set(1))) == (PodSetChoice("main", 0, {}),)


# Prerequisites


def admits(key: str, *after: str) -> Admitted:
    return Admitted(key, "", (), (), after, 0)


def pieces_of(*keys: str, running: bool = False) -> dict[str, Workload]:
    admission = Admission("queue") if running else None
    return {key: Workload(key, "PodGroup", (), admission=admission) for key in keys}


def test_a_member_above_the_minimum_waits_with_the_victims_of_the_minimum() -> None:
    outcomes: list[Outcome] = [admits(KEY, "team/v"), admits(f"{KEY}#1", "team/a"), admits("team/x")]
    kept = drop_without_prerequisites(outcomes, pieces_of(KEY, f"{KEY}#1", "team/x"))
    assert [(one.workload, one.after) for one in kept if isinstance(one, Admitted)] == [
        (KEY, ("team/v",)),
        (f"{KEY}#1", ("team/a", "team/v")),
        ("team/x", ()),
    ]


@pytest.mark.parametrize(
    ("minimum", "missing", "stays"),
    [
        (pieces_of(KEY, running=True), {}, True),
        (pieces_of(KEY), {}, False),
        ({}, {}, True),
        (pieces_of(KEY, running=True), pieces_of(f"{KEY}#missing"), False),
    ],
    ids=["runs", "waits", "unknown", "incomplete"],
)
def test_a_member_above_the_minimum_starts_only_with_it(
    minimum: dict[str, Workload], missing: dict[str, Workload], stays: bool
) -> None:
    pieces = {**minimum, **missing, **pieces_of(f"{KEY}#1")}
    assert bool(drop_without_prerequisites([admits(f"{KEY}#1")], pieces)) is stays


def test_nothing_is_added_to_a_gang_that_is_evicted() -> None:
    outcomes: list[Outcome] = [
        Held("team/h", "X", ""),
        admits(f"{KEY}#1"),
        Evicted(KEY, "team/x", PRIORITY),
        admits("team/x"),
    ]
    kept = drop_without_prerequisites(outcomes, pieces_of(KEY, running=True) | pieces_of("team/x", f"{KEY}#1"))
    assert [outcome.workload for outcome in kept] == ["team/h", KEY, "team/x"]
