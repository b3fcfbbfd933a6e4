"""A planned start or reservation: when it holds its capacity, for whom, and how its place is named."""

from __future__ import annotations

import pytest
from tests.placement.offices import gang, make_overlay

from reference.park import node, pod
from windlass.cluster.node_columns import NodeColumns
from windlass.model.names.kubernetes import ZONE_LABEL
from windlass.model.names.windlass import RACK_LABEL
from windlass.model.pod import Pod
from windlass.model.reservation import ReservationSubjects
from windlass.model.workload import Workload
from windlass.placement.blocked_capacity import PlannedPod
from windlass.placement.timeplan.planned_start import (
    PlannedStart,
    describe_domain,
    pods_by_node,
    starts_after_own_reservation,
)

VIPS = ReservationSubjects(namespaces=("vip",))


def start(first: int, end: int | None, *nodes: int, **more: object) -> PlannedStart:
    pods = tuple(PlannedPod(Pod(), 0, number) for number in nodes)
    return PlannedStart("team/a", first, end, pods, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "end", "overlaps"),
    [(0, 10, False), (0, 11, True), (19, 30, True), (20, 30, False), (0, None, True), (20, None, False)],
)
def test_spans_overlap_where_they_share_a_second(first: int, end: int | None, overlaps: bool) -> None:
    assert start(10, 20).overlaps(first, end) is overlaps


@pytest.mark.parametrize(
    ("first", "end", "overlaps"), [(0, 10, False), (0, 11, True), (99, 100, True), (99, None, True)]
)
def test_one_without_an_end_overlaps_everything_after_its_start(first: int, end: int | None, overlaps: bool) -> None:
    assert start(10, None).overlaps(first, end) is overlaps


@pytest.mark.parametrize(
    ("moment", "active", "endless"), [(9, False, False), (10, True, True), (19, True, True), (20, False, True)]
)
def test_it_is_active_from_its_start_until_before_its_end(moment: int, active: bool, endless: bool) -> None:
    assert start(10, 20).is_active_at(moment) is active
    assert start(10, None).is_active_at(moment) is endless


def test_a_planned_start_is_for_its_own_workload() -> None:
    assert start(0, 1).is_for(gang("a", Pod()))
    assert not start(0, 1).is_for(gang("b", Pod()))


def test_a_reservation_is_for_whom_it_names() -> None:
    reservation = start(0, 1, reserved_for=ReservationSubjects(("vip",), ("lab/urgent",), {"user": "ada"}))
    assert reservation.is_for(Workload("vip/b", "Job", ()))
    assert not reservation.is_for(Workload("team/a", "Job", ())), "though it has the same key"
    assert reservation.is_for(Workload("lab/b", "Job", (), queue_name="urgent"))
    assert reservation.is_for(gang("b", pod("t", labels={"user": "ada"})))
    assert not reservation.is_for(gang("b", pod("t", labels={"user": "bob"})))


def test_a_reservation_applies_once_it_is_near() -> None:
    reservation = start(100, 200, reserved_for=VIPS)
    assert not reservation.applies_at(49, 50)
    assert reservation.applies_at(50, 50)
    assert start(100, 200).applies_at(0, 50), "a planned start always does"


def test_a_start_binds_everybody_and_borrows_nothing_unless_it_says_so() -> None:
    assert (start(0, 1).turn, start(0, 1).borrows) == (-1, False)


def test_the_nodes_are_those_of_its_pods() -> None:
    assert start(0, 1, 3, 5, 3).nodes == {3, 5}


VIP = Workload("vip/w", "Job", ())
OWN = start(0, 100, 0, 1, reserved_for=VIPS)


@pytest.mark.parametrize(
    ("planned", "reservation", "workload", "after"),
    [
        (start(100, None, 0), OWN, VIP, True),
        (start(100, None, 0, 1), OWN, VIP, True),
        (start(99, None, 0), OWN, VIP, False),
        (start(100, None, 0, 2), OWN, VIP, False),
        (start(100, None, 0), OWN, Workload("team/w", "Job", ()), False),
        (start(100, None, 0), start(51, 100, 0, reserved_for=VIPS), VIP, False),
        (start(100, None, 0), start(0, None, 0, reserved_for=VIPS), VIP, False),
        (start(100, None, 0), PlannedStart("vip/w", 0, 100, OWN.pods), VIP, False),
    ],
    ids=["at its end", "all nodes", "before its end", "elsewhere too", "not a holder", "not yet", "endless", "a plan"],
)
def test_a_start_after_ones_own_reservation(
    planned: PlannedStart, reservation: PlannedStart, workload: Workload, after: bool
) -> None:
    assert starts_after_own_reservation(planned, workload, [start(0, 9, 9), reservation], 50) is after


def test_pods_are_counted_by_node() -> None:
    nodes = make_overlay(node("a"), node("b"), node("c")).snapshot.nodes
    assert pods_by_node(start(0, 1, 2, 0, 2), nodes) == {"c": 2, "a": 1}


def columns(*labels: dict[str, str]) -> NodeColumns:
    return NodeColumns([node(f"n{number}", labels=own) for number, own in enumerate(labels)])


def test_a_place_is_named_by_the_node_where_there_is_one() -> None:
    racks = columns({RACK_LABEL: "r"}, {RACK_LABEL: "r"})
    assert describe_domain([1, 1], racks) == "n1"


def test_otherwise_by_the_narrowest_domain_that_holds_all_of_it() -> None:
    racks = columns(
        {ZONE_LABEL: "z", RACK_LABEL: "r"}, {ZONE_LABEL: "z", RACK_LABEL: "r"}, {ZONE_LABEL: "z", RACK_LABEL: "s"}
    )
    assert describe_domain([0, 1], racks) == f"{RACK_LABEL}=r"
    assert describe_domain([0, 2], racks) == f"{ZONE_LABEL}=z"


def test_otherwise_by_the_first_nodes() -> None:
    plain = columns(*[{}] * 6)
    assert describe_domain([3, 0, 1], plain) == "n0, n1, n3"
    assert describe_domain([0, 1, 2, 3], plain) == "n0, n1, n2, n3"
    assert describe_domain([5, 4, 3, 2, 1, 0], plain) == "n0, n1, n2, n3 and 2 more"
