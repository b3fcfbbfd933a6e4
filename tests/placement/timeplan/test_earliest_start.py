"""The earliest start of a waiting workload: by ends of what runs, plans before it, quota and topology."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.placement.offices import CELL, gang, make_occupancy, make_overlay, plan, runs
from tests.queueing.builders import NOW, cell, queue, system

from reference.park import node, pod
from windlass.model.names.windlass import RACK_LABEL
from windlass.model.queue import QueueSystem
from windlass.model.reservation import ReservationSubjects
from windlass.model.workload import TopologyRequest, Workload
from windlass.placement.timeplan import earliest_start
from windlass.placement.timeplan.earliest_start import EarliestStartSearch
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.planned_start import PlannedStart
from windlass.placement.timeplan.run_limits import PlannedStartSettings
from windlass.queueing.config import QueueConfig

NO_QUEUES = QueueSystem()
TEAM = system([queue("a", cell(8), cohort="c"), queue("b", cell(8), cohort="c")])


def office(*sizes: int, cpu: int = 8, queues: QueueSystem = NO_QUEUES, queue: str = "", lead: int = 1000) -> Occupancy:
    """Node `n<i>` runs a workload of so many CPUs that ends `100 * (i + 1)` seconds from now."""
    pods = [
        pod(f"p{number}", cpu=str(size), on=f"n{number}", namespace="team") for number, size in enumerate(sizes) if size
    ]
    workloads = [
        runs(
            own.metadata.name,
            [own],
            queue=queue,
            usage={"cpu": int(own.spec.containers[0].resources.limits["cpu"]) * 1000} if queue else None,
            max_run_seconds=100 * (int(own.spec.node_name[1:]) + 1),
            started_at=NOW,
        )
        for own in pods
    ]
    racks = [node(f"n{number}", cpu=cpu, labels={RACK_LABEL: f"r{number // 2}"}) for number in range(len(sizes))]
    settings = PlannedStartSettings(reservation_lead=lead)
    return make_occupancy(make_overlay(*racks, *pods), workloads, queues, settings)


def earliest(
    occupancy: Occupancy, workload: Workload, *plans: PlannedStart, turn: int = 0, not_before: int = 0, **more: object
) -> PlannedStart | None:
    return EarliestStartSearch(occupancy, QueueConfig()).earliest(workload, plans, turn, not_before, **more)  # type: ignore[arg-type]


def wide(cpus: int, count: int = 1, **more: object) -> Workload:
    return gang("w", pod("t", cpu=str(cpus)), count, **more)  # type: ignore[arg-type]


def after(found: PlannedStart | None) -> int | None:
    """Seconds from now."""
    return None if found is None else found.start - NOW


def test_it_starts_when_enough_has_ended() -> None:
    sizes = (6, 4, 2)
    assert [after(earliest(office(*sizes), wide(cpus))) for cpus in (4, 7, 9)] == [100, 100, None]
    assert after(earliest(office(*sizes), wide(8, 2))) == 200
    assert after(earliest(office(*sizes), wide(8, 3))) == 300
    found = earliest(office(*sizes), wide(8, 2, max_run_seconds=50), turn=7)
    assert found is not None
    assert (found.key, found.end, found.turn, found.queue, found.usage, found.borrows) == (
        "team/w",
        NOW + 250,
        7,
        "",
        {},
        False,
    )
    assert found.nodes == {0, 1}
    endless = earliest(office(*sizes), wide(8))
    assert endless is not None
    assert endless.end is None


def test_without_a_known_end_there_is_no_start() -> None:
    assert earliest(office(0), wide(9)) is None
    assert earliest(office(0), wide(8)) is None, "no moment to try"
    assert after(earliest(office(0), wide(8), not_before=NOW + 5)) == 5


def test_it_does_not_start_before_those_ahead() -> None:
    assert after(earliest(office(6, 4), wide(2), not_before=NOW + 150)) == 150
    assert after(earliest(office(6, 4), wide(2), not_before=NOW + 200)) == 200
    assert after(earliest(office(6, 4), wide(8), not_before=NOW + 300)) == 300
    assert after(earliest(office(6, 4), wide(2), not_before=NOW)) == 100, "only moments after now"


def test_a_plan_before_it_is_left_its_room() -> None:
    found = office(6)
    first = plan(found.overlay, NOW + 100, NOW + 400, (0, 8))
    assert after(earliest(found, wide(2), first)) == 400
    assert after(earliest(found, wide(2), plan(found.overlay, NOW + 100, None, (0, 7)))) is None
    later = plan(found.overlay, NOW + 150, NOW + 400, (0, 8))
    assert after(earliest(found, wide(8, max_run_seconds=50), later)) == 100
    assert after(earliest(found, wide(8, max_run_seconds=51), later)) == 400
    assert after(earliest(found, wide(8), later)) == 400


def test_a_reservation_that_is_far_off_closes_nothing_yet() -> None:
    found = office(6, lead=1000)
    who = ReservationSubjects(("vip",))
    reserved = replace(plan(found.overlay, NOW + 1100, NOW + 2000, (0, 8)), reserved_for=who)
    assert after(earliest(found, wide(8), reserved)) == 2000
    later = replace(reserved, start=NOW + 1101)
    assert after(earliest(found, wide(8), later)) == 100


def test_workloads_that_are_thought_away_are_not_in_the_way() -> None:
    assert after(earliest(office(6, 6, 6), wide(8, 2), without=["team/p1"])) == 100
    assert after(earliest(office(6, 6, 6), wide(8, 2), without=["team/p2"])) == 100
    assert after(earliest(office(6, 6, 6), wide(8, 3), without=["team/p0", "team/p1", "team/p2"])) == 100


def test_quota_counts_as_well_as_room() -> None:
    """The queue of 8 CPUs, and as many to borrow, on nodes with room for all."""
    found = office(8, 6, 2, cpu=30, queues=TEAM, queue="a")
    start = earliest(found, wide(5, queue_name="a"))
    assert start is not None
    assert (after(start), start.queue, start.usage, start.borrows) == (100, "a", {CELL: 5000}, True)
    within = earliest(found, wide(8, queue_name="a"), not_before=NOW + 300)
    assert within is not None
    assert (after(within), within.borrows) == (300, False)
    assert after(earliest(found, wide(9, queue_name="a"))) == 200
    assert after(earliest(found, wide(15, queue_name="a"))) == 300
    assert after(earliest(found, wide(17, queue_name="a"))) is None
    assert after(earliest(found, wide(17))) == 100, "in no queue"
    assert after(earliest(found, wide(1, queue_name="unknown"))) is None


def test_quota_of_plans_is_kept() -> None:
    found = office(8, cpu=30, queues=TEAM, queue="a")
    planned = plan(found.overlay, NOW + 50, NOW + 500, queue="b", usage=10_000)
    assert after(earliest(found, wide(6, queue_name="a"), planned)) == 100
    assert after(earliest(found, wide(7, queue_name="a"), planned)) == 500
    later = plan(found.overlay, NOW + 150, NOW + 500, queue="b", usage=10_000)
    assert after(earliest(found, wide(6, queue_name="a"), later)) == 100
    assert after(earliest(found, wide(7, queue_name="a"), later)) == 500
    assert after(earliest(found, wide(7, queue_name="a", max_run_seconds=50), later)) == 100
    assert after(earliest(found, wide(7, queue_name="a"), later, without=["team/p0"])) == 500


def test_its_topology_is_kept() -> None:
    request = TopologyRequest("required", RACK_LABEL)
    sizes = (8, 8, 8, 0)
    assert after(earliest(office(*sizes), gang("w", pod("t", cpu="8"), 2))) == 100
    assert after(earliest(office(*sizes), gang("w", pod("t", cpu="8"), 2, topology=request))) == 200
    found = earliest(office(*sizes), gang("w", pod("t", cpu="8"), 2, topology=request), not_before=NOW + 300)
    assert found is not None
    assert len({number // 2 for number in found.nodes}) == 1


def test_far_off_moments_are_tried_with_gaps_and_the_last_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends at 100, 200, … 900; a plan keeps all out until its end."""
    monkeypatch.setattr(earliest_start, "MAX_EXACT_MOMENTS", 2)
    found = office(*[1] * 9, cpu=1)
    starts = {}
    for end in range(100, 1000, 100):
        wall = plan(found.overlay, NOW, NOW + end, *((number, 1) for number in range(9)))
        starts[end] = after(earliest(found, wide(1), wall))
    # The first two moments, then every fourth of the rest, counted back from the last.
    assert starts == {100: 100, 200: 200, 300: 500, 400: 500, 500: 500, 600: 900, 700: 900, 800: 900, 900: 900}
