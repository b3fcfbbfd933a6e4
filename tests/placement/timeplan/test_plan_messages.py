"""What holds say about time."""

from __future__ import annotations

import pytest
from tests.placement.offices import make_occupancy, make_overlay

from reference.park import node
from windlass.model.pod import Pod
from windlass.model.reservation import ReservationSubjects
from windlass.placement.blocked_capacity import PlannedPod
from windlass.placement.timeplan.messages import (
    StartBasis,
    beyond_depth_message,
    delays_plan_message,
    no_planned_start_message,
    planned_start_message,
    workloads_ahead_message,
)
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.planned_start import PlannedStart
from windlass.queueing.run_time_estimates import RunTimeEstimate

NOON = 1_767_268_800
TEXT = "2026-01-01T12:00:00Z"
LATER = "2026-01-01T13:00:00Z"


@pytest.fixture(scope="module")
def occupancy() -> Occupancy:
    return make_occupancy(make_overlay(node("n0"), node("n1")), now=NOON)


def plan(
    key: str, start: int, *, end: int | None = None, turn: int = 0, on: int = 0, reserved: bool = False
) -> PlannedStart:
    who = ReservationSubjects(("vip",)) if reserved else None
    return PlannedStart(key, start, end, (PlannedPod(Pod(), 0, on),), turn, reserved_for=who)


def test_the_delayed_plan_is_named_with_its_start_and_place(occupancy: Occupancy) -> None:
    said = delays_plan_message([plan("team/a", NOON, on=1)], occupancy)
    assert said == f"it would fit now, but it would delay team/a, which is planned for {TEXT} on n1"


def test_of_several_plans_the_first_is_named_and_the_others_are_counted(occupancy: Occupancy) -> None:
    plans = [plan("team/b", NOON, turn=2), plan("team/a", NOON, turn=1), plan("team/c", NOON + 1)]
    assert delays_plan_message(plans[:2], occupancy).endswith("on n0 (and 1 more planned start)")
    said = delays_plan_message(plans, occupancy)
    assert " delay team/a, " in said
    assert said.endswith(" (and 2 more planned starts)")
    earlier = [*plans, plan("team/z", NOON - 1, turn=9)]
    assert " delay team/z, " in delays_plan_message(earlier, occupancy)
    with_reservation = [*plans[:2], plan("reservation/r", NOON + 9, end=NOON + 10, reserved=True)]
    assert delays_plan_message(with_reservation, occupancy).endswith("(and 1 more planned start)")


def test_a_reservation_says_until_when_it_holds(occupancy: Occupancy) -> None:
    now = plan("reservation/r", NOON, end=NOON + 3600, reserved=True)
    assert delays_plan_message([now], occupancy) == f"it would fit now, but Reservation r holds n0 until {LATER}"
    began = plan("reservation/r", NOON - 5, end=NOON + 3600, reserved=True)
    assert delays_plan_message([began], occupancy).endswith(f" holds n0 until {LATER}")
    later = plan("reservation/r", NOON + 1, end=NOON + 3600, reserved=True)
    assert delays_plan_message([later], occupancy) == (
        f"it would fit now, but Reservation r holds n0 from 2026-01-01T12:00:01Z until {LATER}; "
        "set windlass.dev/duration so that this workload ends before that"
    )


def estimate(queue: str) -> RunTimeEstimate:
    return RunTimeEstimate(queue, 60, 95, 10)


def said(occupancy: Occupancy, keys: list[str], *estimates: RunTimeEstimate, ahead: int = 0) -> str:
    text = planned_start_message(plan("team/a", NOON), StartBasis(keys, estimates), ahead, occupancy)
    prefix = f"planned to start at {TEXT} on n0"
    assert text.startswith(prefix)
    return text.removeprefix(prefix)


def test_a_planned_start_names_what_ends_before_it(occupancy: Occupancy) -> None:
    assert said(occupancy, []) == ""
    assert said(occupancy, ["team/x"]) == ", when team/x ends (by run-time limit)"
    assert said(occupancy, ["team/x", "team/y"]) == ", when team/x and team/y end (by run-time limit)"
    assert said(occupancy, ["a", "b", "c"]) == ", when a, b and c end (by run-time limit)"
    assert said(occupancy, ["a", "b", "c", "d", "e"]) == ", when a, b, c and 2 more end (by run-time limit)"


def test_ends_of_reservations_are_known_by_schedule(occupancy: Occupancy) -> None:
    first, second = "reservation/r", "reservation/s"
    assert said(occupancy, [first]) == ", when Reservation r ends (by its schedule)"
    assert said(occupancy, [first, second]) == ", when Reservation r and Reservation s end (by their schedule)"
    assert said(occupancy, [first, "team/x"]) == ", when Reservation r and team/x end (by run-time limit)"


def test_estimates_are_named_each_once(occupancy: Occupancy) -> None:
    a, b, c, d, e = (estimate(f"team/{name}") for name in "abcde")
    assert said(occupancy, ["x"], a) == f", when x ends ({a.text})"
    assert said(occupancy, ["x", "y"], a) == f", when x and y end (by run-time limit, or {a.text})"
    assert said(occupancy, ["x", "y"], a, a) == f", when x and y end ({a.text})"
    assert said(occupancy, ["x", "y", "z"], a, b, c).endswith(f" ({a.text}, {b.text}, {c.text})")
    assert said(occupancy, list("vwxyz"), a, b, c, d, e).endswith(
        f" ({a.text}, {b.text}, {c.text} and 2 more estimates)"
    )


def test_those_ahead_are_counted(occupancy: Occupancy) -> None:
    assert workloads_ahead_message(0) == ""
    assert workloads_ahead_message(1) == "; 1 workload waits ahead of it"
    assert workloads_ahead_message(2) == "; 2 workloads wait ahead of it"
    assert said(occupancy, [], ahead=2) == "; 2 workloads wait ahead of it"


def test_without_a_planned_start_the_reason_is_given() -> None:
    none = "no planned start: no running workload with a known end frees enough for it"
    assert (
        no_planned_start_message(["a"], 0)
        == "no planned start: a has no run-time limit (windlass.dev/duration sets one)"
    )
    assert no_planned_start_message(["a", "b"], 0).startswith("no planned start: a and b have no run-time limit (")
    assert no_planned_start_message([], 0) == none
    assert no_planned_start_message([], 1) == f"{none} after the workloads ahead of it; 1 workload waits ahead of it"


def test_beyond_the_depth_no_start_is_planned() -> None:
    text = "no planned start: starts are planned for the first"
    assert beyond_depth_message(1, 0) == f"{text} waiting workload only (backfill.depth)"
    assert beyond_depth_message(2, 3) == (
        f"{text} 2 waiting workloads only (backfill.depth); 3 workloads wait ahead of it"
    )
