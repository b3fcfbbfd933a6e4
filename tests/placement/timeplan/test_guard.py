"""Who may start beside planned starts and reservations, and who is refused with which words."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.placement.offices import choices, gang, make_occupancy, make_overlay, plan, runs
from tests.queueing.builders import NOW, cell, queue, system

from reference.park import node, pod
from windlass.cluster.shape import make_shape
from windlass.model.queue import PreemptionPolicy
from windlass.model.reservation import ReservationSubjects
from windlass.model.workload import Workload
from windlass.placement.overlay import Overlay
from windlass.placement.timeplan.guard import PlannedStartGuard
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.planned_start import PlannedStart
from windlass.placement.timeplan.run_limits import PlannedStartSettings
from windlass.queueing.placement_interface import PlacementResult

QUEUES = system([queue("a", cell(4), cohort="c"), queue("b", cell(8), cohort="c")])
RUNS = pod("p", cpu="6", on="n0", namespace="team")
RUNNING = runs("p", [RUNS], max_run_seconds=100, started_at=NOW)
VIPS = ReservationSubjects(("vip",))


def office(lead: int = 1000) -> Occupancy:
    """One node of 8 CPUs, of which 6 are in use for 100 seconds more."""
    settings = PlannedStartSettings(reservation_lead=lead)
    return make_occupancy(make_overlay(node("n0", cpu=8), RUNS), [RUNNING], QUEUES, settings)


def waits(cpus: int = 2, name: str = "w", **more: object) -> Workload:
    return gang(name, pod("t", cpu=str(cpus)), **more)  # type: ignore[arg-type]


def _on(overlay: Overlay, planned: PlannedStart) -> PlannedStart:
    """The same plan with rows of this overlay's score table."""
    rows = [overlay.table.row(make_shape(entry.pod), overlay.snapshot) for entry in planned.pods]
    pods = tuple(entry._replace(row=row) for entry, row in zip(planned.pods, rows, strict=True))
    return replace(planned, pods=pods)


def place(occupancy: Occupancy, workload: Workload, *plans: PlannedStart, turn: int | None = 5) -> PlacementResult:
    own = [_on(occupancy.overlay, planned) for planned in plans]
    guard = PlannedStartGuard(occupancy, own, {} if turn is None else {workload.key: turn})
    flavors = {"cpu": "default"} if workload.queue_name else {}
    return guard.place(workload, choices(workload, **flavors))


def whole_node(occupancy: Occupancy, start: int = 100, **more: object) -> PlannedStart:
    return replace(plan(occupancy.overlay, NOW + start, NOW + 500, (0, 8)), turn=4, **more)


def test_one_decided_later_must_not_delay_the_plan() -> None:
    found = office()
    refused = place(found, waits(), whole_node(found))
    assert (refused.ok, refused.code, refused.feasible) == (False, "RESERVED_FOR_OTHERS", False)
    assert str(refused.message).startswith("it would fit now, but it would delay team/plan, ")
    assert "team/w" not in found.placer.placed_workloads
    assert [one.workload.key for one in found.occupants()] == ["team/p"]


def test_one_decided_before_or_with_it_may() -> None:
    assert place(office(), waits(), whole_node(office()), turn=4).ok
    assert place(office(), waits(), whole_node(office()), turn=3).ok
    assert not place(office(), waits(), whole_node(office()), turn=None).ok, "a workload that is new comes last"


def test_one_that_ends_before_it_may() -> None:
    found = office()
    assert place(found, waits(max_run_seconds=100), whole_node(found)).ok
    assert [one.end for one in found.occupants()] == [NOW + 100, NOW + 100]
    assert not place(office(), waits(max_run_seconds=101), whole_node(found)).ok


def test_its_own_plan_keeps_nobody_out() -> None:
    found = office()
    assert place(found, waits(), whole_node(found, key="team/w")).ok


def test_one_that_does_not_fit_anyway_is_told_that() -> None:
    found = office()
    refused = place(found, waits(3), whole_node(found))
    assert (refused.ok, refused.code) == (False, "CPU_MEM_INSUFFICIENT")
    assert refused.feasible


def test_a_reservation_keeps_out_whom_it_is_not_for() -> None:
    found = office()
    reserved = replace(whole_node(found), turn=-1, reserved_for=VIPS, key="reservation/r")
    assert not place(found, waits(), reserved, turn=0).ok
    holder = replace(waits(), key="vip/w")
    assert place(found, holder, reserved, turn=0).ok
    far = replace(reserved, start=NOW + 1001)
    assert place(office(), waits(), far).ok
    assert not place(office(), waits(), replace(far, start=NOW + 1000, end=NOW + 2000)).ok


def test_a_plan_for_the_end_of_a_reservation_does_not_keep_its_holders_out() -> None:
    found = office()
    reserved = replace(plan(found.overlay, NOW, NOW + 300, (0, 2)), reserved_for=VIPS, key="reservation/r")
    behind = replace(whole_node(found), start=NOW + 300)
    holder = replace(waits(), key="vip/w")
    assert not place(found, waits(), reserved, behind).ok
    assert place(found, holder, reserved, behind).ok
    assert not place(office(), holder, reserved, replace(behind, start=NOW + 299)).ok


def test_a_plan_on_borrowed_quota_does_not_delay_another_queue_within_its_own() -> None:
    borrows = whole_node(office(), borrows=True, queue="a")
    assert place(office(), waits(queue_name="b"), borrows).ok
    assert not place(office(), waits(queue_name="b"), replace(borrows, borrows=False)).ok
    assert not place(office(), waits(queue_name="a"), borrows).ok, "its own queue"
    assert not place(office(), waits(), borrows).ok, "in no queue"
    both = (borrows, whole_node(office(), key="team/other"))
    assert not place(office(), waits(queue_name="b"), *both).ok


def test_one_that_borrows_too_must_not_delay_it() -> None:
    from_b = whole_node(office(), borrows=True, queue="b")
    assert place(office(), waits(2, queue_name="a"), from_b).ok, "2 of 4"
    small = system([queue("a", cell(1), cohort="c"), queue("b", cell(8), cohort="c")])
    borrower = make_occupancy(make_overlay(node("n0", cpu=8), RUNS), [RUNNING], small)
    assert not place(borrower, waits(2, queue_name="a"), from_b).ok, "2 of 1"


@pytest.mark.parametrize(
    ("rules", "priority", "threshold", "may"),
    [
        (("Any", "LowerPriority"), 10, None, True),
        (("LowerPriority", "LowerPriority"), 10, None, True),
        (("Any", "Never"), 10, None, False),
        (("Never", "LowerPriority"), 10, None, False),
        (("Any", "LowerPriority"), 5, None, False),
        (("Any", "LowerPriority"), 10, 4, False),
        (("Any", "LowerPriority"), 10, 5, True),
    ],
)
def test_one_that_could_evict_the_planned_one_does_not_wait_for_it(
    rules: tuple[str, str], priority: int, threshold: int | None, may: bool
) -> None:
    """Else it would wait for the plan, evict what runs then, and wait for the same plan again."""
    policy = PreemptionPolicy(
        reclaim_within_cohort=rules[0], borrow_within_cohort=rules[1], max_priority_threshold=threshold
    )
    queues = system([queue("a", cell(1), cohort="c", preemption=policy), queue("b", cell(8), cohort="c")])
    found = make_occupancy(make_overlay(node("n0", cpu=8), RUNS), [RUNNING], queues)
    planned = whole_node(found, borrows=True, queue="b", priority=5)
    assert place(found, waits(queue_name="a", priority=priority), planned).ok is may


@pytest.mark.parametrize(("policy", "may"), [("LowerPriority", True), ("Never", False)])
def test_one_of_the_same_queue_that_could_evict_the_planned_one_does_not_wait_for_it(policy: str, may: bool) -> None:
    own = queue("a", cell(8), preemption=PreemptionPolicy(within_cluster_queue=policy))
    found = make_occupancy(make_overlay(node("n0", cpu=8), RUNS), [RUNNING], system([own]))
    planned = whole_node(found, queue="a", priority=5)
    assert place(found, waits(queue_name="a", priority=10), planned).ok is may
    assert not place(found, waits(queue_name="a", priority=5, name="equal"), planned).ok


def test_evicting_others_for_it_is_no_excuse() -> None:
    """Its victims would be gone, and it would wait for the plan all the same."""
    found = office()
    found.placer.remove(RUNNING)
    assert not place(found, waits(8), whole_node(found)).ok
    assert place(found, waits(8)).ok


def test_a_refusal_holds_for_its_like_until_something_is_removed() -> None:
    found = office()
    guard = PlannedStartGuard(found, [whole_node(found)], {})
    first = guard.place(waits(), choices(waits()))
    assert guard.place(waits(name="v"), choices(waits(name="v"))) is first
    for unlike in (
        waits(1),
        waits(name="v", max_run_seconds=200),
        waits(queue_name="b"),
        gang("w", pod("t", cpu="1"), 2),
        replace(waits(), key="other/w"),
    ):
        assert guard.place(unlike, choices(unlike)) is not first
    guard.on_workload_removed()
    again = guard.place(waits(), choices(waits()))
    assert not again.ok
    assert again is not first


def test_a_workload_that_starts_in_this_pass_leaves_nothing_of_its_plan() -> None:
    """What it takes now is not kept for it a second time."""
    found = office()
    own = waits(2, "planned")
    planned = replace(_on(found.overlay, plan(found.overlay, NOW + 100, None, (0, 2), key=own.key)), turn=4)
    guard = PlannedStartGuard(found, [planned], {own.key: 4, "team/w": 5})
    large = waits(6, "w")
    assert guard.place(own, choices(own)).ok
    found.placer.remove(RUNNING)
    assert guard.place(large, choices(large)).ok


def test_the_plan_that_is_in_the_way_is_named_with_its_queue() -> None:
    """Not the earliest of all plans, which is elsewhere."""
    overlay = make_overlay(node("n0", cpu=8), node("n1", cpu=8))
    occupancy = make_occupancy(overlay, [], QUEUES)
    elsewhere = replace(plan(overlay, NOW + 50, NOW + 500, (1, 8), key="team/elsewhere"), turn=1)
    here = replace(plan(overlay, NOW + 100, NOW + 500, (0, 8), key="team/here", queue="b"), turn=2)
    first_node = gang("w", pod("t", cpu="2", node_selector={"kubernetes.io/hostname": "n0"}))
    refused = place(occupancy, first_node, elsewhere, here)
    assert "it would delay team/here of ClusterQueue b, which is planned for" in str(refused.message)
