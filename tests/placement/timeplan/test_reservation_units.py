"""Nodes for the units of calendar reservations; what their holders have used of them; and single pods beside them."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from tests.placement.offices import choices, gang, make_occupancy, make_overlay, plan, runs
from tests.queueing.builders import NOW

from reference.park import gpu_node, node, pod
from windlass.model.names.windlass import RACK_LABEL
from windlass.model.pod import Pod
from windlass.model.reasons import RESERVED_FOR_OTHERS
from windlass.model.reservation import Reservation, ReservationSubjects
from windlass.model.workload import Admission, PodSet, PodSetAssignment, Workload
from windlass.placement.single_pod_placer import SinglePodPlacer
from windlass.placement.timeplan import single_pods
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.planned_start import PlannedStart, pods_by_node
from windlass.placement.timeplan.reservations import ReservationShortfall, plan_reservations
from windlass.placement.timeplan.run_limits import PlannedStartSettings
from windlass.placement.timeplan.single_pods import (
    any_run_limit,
    block_planned_capacity,
    mark_reserved_for_others,
    single_pods_to_plan,
)

VIPS = ReservationSubjects(("vip",))
UNIT = pod("unit", cpu="4")


def reservation(start: int = 0, end: int = 100, count: int = 1, name: str = "r", **more: object) -> Reservation:
    return Reservation(name, NOW + start, NOW + end, count, more.pop("unit", UNIT), VIPS, **more)  # type: ignore[arg-type]


def office(*sizes: int, cpu: int = 8) -> Occupancy:
    """Nodes of 8 CPUs in racks of two; node `n<i>` runs a pod of so many CPUs for `10 * (i + 1)` seconds more."""
    pods = [
        pod(f"p{number}", cpu=str(size), on=f"n{number}", namespace="team") for number, size in enumerate(sizes) if size
    ]
    workloads = [
        runs(own.metadata.name, [own], max_run_seconds=10 * (int(own.spec.node_name[1:]) + 1), started_at=NOW)
        for own in pods
    ]
    nodes = [node(f"n{number}", cpu=cpu, labels={RACK_LABEL: f"r{number // 2}"}) for number in range(len(sizes))]
    return make_occupancy(make_overlay(*nodes, *pods), workloads)


def units(
    occupancy: Occupancy, *reservations: Reservation, workloads: tuple[Workload, ...] = ()
) -> tuple[dict[str, dict[str, int]], list[ReservationShortfall]]:
    found, short = plan_reservations(occupancy, reservations, workloads)
    nodes = occupancy.overlay.snapshot.nodes
    return {planned.key.partition("/")[2]: pods_by_node(planned, nodes) for planned in found}, short


def test_units_take_what_is_free_at_the_start() -> None:
    assert units(office(8), reservation(10, 20)) == ({"r": {"n0": 1}}, [])
    assert units(office(8), reservation(9, 20)) == ({"r": {}}, [ReservationShortfall("reservation/r", 1, 0)])
    assert units(office(8), reservation(-5, 20))[0] == {"r": {}}, "one that has begun takes what is free now"
    assert units(office(0), reservation(-5, 20, 3)) == (
        {"r": {"n0": 2}},
        [ReservationShortfall("reservation/r", 3, 2)],
    )


def test_a_plan_has_the_times_and_the_holders_of_the_reservation() -> None:
    (planned,), _ = plan_reservations(office(0), [reservation(5, 20)], ())
    assert (planned.key, planned.start, planned.end, planned.reserved_for) == ("reservation/r", NOW + 5, NOW + 20, VIPS)
    assert planned.turn == -1


def test_the_earliest_gets_its_units_first() -> None:
    late, early = reservation(10, 30, name="a"), reservation(5, 20, 2, name="b")
    assert units(office(0), late, early) == (
        {"b": {"n0": 2}, "a": {}},
        [ReservationShortfall("reservation/a", 1, 0)],
    )
    assert list(units(office(0), reservation(5, 6, name="b"), reservation(5, 6, name="a"))[0]) == ["a", "b"]
    assert units(office(0), replace(late, start=NOW + 20), early)[1] == []


def test_one_that_is_over_is_left_out() -> None:
    assert units(office(0), reservation(-5, 0)) == ({}, [])
    assert units(office(0), reservation(-5, 1)) == ({"r": {"n0": 1}}, [])


def test_units_stay_where_they_were_planned_while_that_is_possible() -> None:
    kept = {"n2": 1, "gone": 1}
    assert units(office(0, 0, 0), reservation(0, 20, 1, nodes=kept))[0] == {"r": {"n2": 1}}
    assert units(office(0, 0, 0), reservation(0, 20, 1, nodes={"n1": 1, "n2": 1}))[0] == {"r": {"n1": 1}}
    assert units(office(0, 0, 5), reservation(0, 20, 1, nodes={"n2": 1}))[0] == {"r": {"n0": 1}}
    assert units(office(0, 0, 0), reservation(0, 20, 5, nodes={"n1": 2}))[0] == {"r": {"n1": 2, "n0": 2, "n2": 1}}


def test_all_units_are_in_one_domain() -> None:
    rack = {"topology": RACK_LABEL}
    assert units(office(0, 0, 5, 0, 0), reservation(0, 5, 2, **rack))[0] == {"r": {"n4": 2}}, "the smallest rack first"
    assert units(office(0, 0, 5, 0, 5), reservation(0, 5, 3, **rack))[0] == {"r": {"n0": 2, "n1": 1}}
    assert units(office(0, 5, 5, 0), reservation(0, 5, 4, **rack)) == (
        {"r": {}},
        [ReservationShortfall("reservation/r", 4, 0)],
    )
    near = units(office(0, 0, 0, 0), reservation(0, 5, 3, nodes={"n3": 1}, **rack))[0]["r"]
    assert set(near) == {"n2", "n3"}
    unlabelled = make_occupancy(make_overlay(node("x", cpu=8)))
    assert units(unlabelled, reservation(0, 5, 1, **rack))[0] == {"r": {}}


def holder(name: str, nodes: dict[str, int], usage: int, *, started: int = 0, namespace: str = "vip") -> Workload:
    """A workload of so many milli-CPU in all on these nodes."""
    count = sum(nodes.values())
    part = PodSetAssignment("main", count, {}, {"cpu": usage}, nodes)
    sets = (PodSet("main", count, Pod()),)
    return Workload(f"{namespace}/{name}", "Job", sets, admission=Admission("", (part,)), started_at=NOW + started)


@pytest.mark.parametrize(
    ("workload", "left"),
    [
        (holder("h", {"n0": 1}, 4000), 3),
        (holder("h", {"n0": 1}, 4001), 2),
        (holder("h", {"n0": 1}, 1000), 3),
        (holder("h", {"n0": 2, "n1": 1}, 12_000), 1),
        (holder("h", {"n0": 1, "gone": 1}, 8000), 3),
        (holder("h", {"n0": 2}, 80_000), 0),
        (holder("h", {"n0": 1}, 4000, started=-10), 3),
        (holder("h", {"n0": 1}, 4000, started=-11), 4),
        (holder("h", {"n0": 1}, 4000, namespace="team"), 4),
        (replace(holder("h", {"n0": 1}, 4000), admission=None), 4),
    ],
    ids=["one", "rounded up", "part", "two nodes", "gone", "more", "at start", "before", "stranger", "waits"],
)
def test_what_holders_have_used_since_the_start_is_subtracted(workload: Workload, left: int) -> None:
    found, short = plan_reservations(office(0, 0, cpu=32), [reservation(-10, 50, 4)], [workload])
    assert len(found[0].pods) == left
    assert short == []
    future, _ = plan_reservations(office(0, 0, cpu=32), [reservation(1, 50, 4)], [workload])
    assert len(future[0].pods) == 4, "nothing is used of one that has not begun"


def test_used_units_count_where_they_were_planned() -> None:
    uses = holder("h", {"n1": 1}, 4000)
    kept = reservation(-10, 50, 3, nodes={"n1": 2, "n0": 1})
    found, short = units(office(0, 0), kept, workloads=(uses,))
    assert (found, short) == ({"r": {"n0": 1, "n1": 1}}, [])
    rack = reservation(-10, 50, 2, topology=RACK_LABEL)
    beside = holder("h", {"n3": 1}, 4000)
    assert set(units(office(0, 0, 0, 0), rack, workloads=(beside,))[0]["r"]) <= {"n2", "n3"}


def test_a_shortfall_counts_what_holders_have() -> None:
    uses = holder("h", {"n0": 1}, 4000)
    _, short = units(office(8), reservation(-10, 50, 3), workloads=(uses,))
    assert short == [ReservationShortfall("reservation/r", 3, 1)]


def test_units_are_measured_by_gpus_first() -> None:
    overlay = make_overlay(gpu_node("n0", 8))
    part = PodSetAssignment("main", 1, {}, {"cpu": 1000, "nvidia.com/gpu": 4000}, {"n0": 1})
    uses = Workload("vip/h", "Job", (PodSet("main", 1, Pod()),), admission=Admission("", (part,)), started_at=NOW)
    reserved = reservation(-10, 50, 8, unit=pod("u", 1, cpu="1"))
    found, _ = plan_reservations(make_occupancy(overlay), [reserved], [uses])
    assert len(found[0].pods) == 4


# Single pods beside plans


def single(name: str, **more: object) -> Workload:
    return replace(gang(name, pod(name, cpu="1")), kind="Pod", **more)


def planned(gangs: list[Workload], pods: list[Workload], *reservations: Reservation, **settings: int) -> list[str]:
    snapshot = replace(make_overlay(node("n0")).snapshot, reservations=reservations)
    return [one.name for one in single_pods_to_plan(snapshot, gangs, pods, PlannedStartSettings(**settings))]  # type: ignore[arg-type]


RUNS = Admission("")
ENDS = single("ends", admission=RUNS, max_run_seconds=5)


def test_few_pods_are_planned_where_something_ends() -> None:
    pods = [single("a"), ENDS, single("b")]
    assert planned([], pods) == ["a", "b"]
    assert planned([], [single("a"), single("b")]) == []
    assert planned([gang("g", Pod(), max_run_seconds=5, admission=RUNS)], [single("a")]) == ["a"]
    assert planned([], pods, depth=0) == []
    assert planned([], [ENDS]) == []
    assert planned([], [single("a")], reservation()) == ["a"]


def test_of_many_only_those_with_an_end_or_a_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_pods, "MAX_PLANNED_PODS", 3)
    four = [single("a"), single("b", max_run_seconds=9), single("c", priority=5), single("d"), ENDS]
    assert planned([], four) == [], "no gang waits"
    waits = gang("g", Pod())
    assert planned([waits], four) == ["b"]
    assert planned([waits], four[1:]) == ["b", "c", "d"], "three are few"
    assert planned([replace(waits, admission=RUNS)], four) == []
    assert planned([], four, reservation()) == ["b", "c"]
    assert planned([replace(waits, priority=5)], four, reservation()) == ["b"]
    assert planned([replace(waits, priority=5, hold="why")], four, reservation()) == ["b", "c"]
    assert planned([replace(waits, priority=5, admission=RUNS)], four, reservation()) == ["b", "c"]
    vip = replace(single("v"), key="vip/v")
    assert planned([], [*four, vip], reservation()) == ["b", "c", "v"]


def test_few_is_also_a_matter_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_pods, "MAX_NODE_CHECKS", 2)
    assert planned([], [single("a"), single("b"), ENDS]) == ["a", "b"]
    assert planned([], [single("a"), single("b"), single("c"), ENDS]) == []


def test_run_limits_of_single_pods() -> None:
    assert any_run_limit([single("a"), ENDS])
    assert not any_run_limit([single("a")])


def fits(occupancy: Occupancy, cpus: int) -> list[bool]:
    """For each node, whether a pod of so many CPUs fits on what is not blocked."""
    own = pod("t", cpu=str(cpus))
    workload = gang("t", own)
    (pending,), _, _ = occupancy.placer.pending_pod_sets(workload, choices(workload))
    row = occupancy.overlay.table.row(pending.shape, occupancy.overlay.snapshot)
    return [not reason for reason in occupancy.overlay.reasons(own, row).tolist()]


def block(occupancy: Occupancy, *plans: PlannedStart) -> list[list[bool]]:
    block_planned_capacity(occupancy, plans)
    return [fits(occupancy, cpus) for cpus in (1, 4, 5)]


def test_the_room_of_plans_is_blocked() -> None:
    """The first node is full for 10 seconds more, the second has 8 CPUs free."""
    free = [[False, True], [False, True], [False, True]]
    found = office(8, 0)
    assert block(found) == free
    assert block(office(8, 0), plan(found.overlay, NOW + 10, None)) == free, "a plan without pods"
    assert block(office(8, 0), plan(found.overlay, NOW - 9, NOW)) == free, "one that is over"
    other = office(8, 0)
    assert block(other, plan(other.overlay, NOW + 10, NOW + 20, (1, 4))) == [
        [False, True],
        [False, True],
        [False, False],
    ]


def test_where_planned_pods_do_not_fit_yet_the_node_is_closed() -> None:
    """The first node has 3 CPUs free now, and 8 in 10 seconds."""
    found = office(5, 0)
    assert block(found, plan(found.overlay, NOW + 10, NOW + 20, (0, 6), (1, 4))) == [
        [False, True],
        [False, True],
        [False, False],
    ]
    beside = office(5, 0)
    open_still = [[True, True], [False, True], [False, True]]
    assert block(beside, plan(beside.overlay, NOW + 10, NOW + 20, (0, 5))) == open_still, "3 are left then as well"


def test_where_enough_is_left_beside_the_plan_nothing_is_blocked() -> None:
    """At the start of the plan the running pod has ended, so that as much is free as now."""
    found = office(4, 0)
    assert block(found, plan(found.overlay, NOW + 10, None, (0, 4))) == [[True, True], [True, True], [False, True]]


def test_a_reservation_that_is_far_off_blocks_nothing() -> None:
    for start, blocked in [(86_400, True), (86_401, False)]:
        found = office(0)
        far = replace(plan(found.overlay, NOW + start, NOW + 99_999, (0, 8)), reserved_for=VIPS)
        assert block(found, far) == ([[False]] * 3 if blocked else [[True]] * 3)


def test_pods_that_would_fit_without_the_plan_are_told_so() -> None:
    waiting = [pod("small", cpu="4"), pod("large", cpu="9"), pod("tiny", cpu="1")]
    overlay = make_overlay(node("n0", cpu=8), *waiting)
    occupancy = make_occupancy(overlay)
    blocked = block_planned_capacity(occupancy, [plan(overlay, NOW, None, (0, 7))])
    rows = overlay.pod_rows()
    queue = np.array([rows[f"default/{name}"] for name in ("small", "large", "tiny")])
    placed = SinglePodPlacer(overlay, queue).run()
    assert placed.node.tolist() == [-1, -1, 0]
    mark_reserved_for_others(overlay, queue, placed, blocked)
    assert placed.held == {0: RESERVED_FOR_OTHERS}


def test_without_blocked_capacity_nobody_is_told_so() -> None:
    overlay = make_overlay(node("n0", cpu=8), pod("a", cpu="8"), pod("b", cpu="8"))
    queue = np.array([0, 1])
    placed = SinglePodPlacer(overlay, queue).run()
    mark_reserved_for_others(overlay, queue, placed, block_planned_capacity(make_occupancy(overlay), ()))
    assert placed.held == {}
