"""Plans for everything that waits: in which order, what each start rests on, and who delays whom."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from tests.placement.offices import choices, gang, make_occupancy, make_overlay, runs
from tests.queueing.builders import NOW, cell, queue, system

from reference.park import node, pod
from windlass.model.queue import QueueSystem
from windlass.model.reasons import SCHEDULING_GATED
from windlass.model.reservation import Reservation, ReservationSubjects
from windlass.model.run_time_history import PERIOD_SECONDS, RunTimes
from windlass.model.workload import Workload
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.run_limits import PlannedStartSettings, with_run_estimates
from windlass.placement.timeplan.start_planner import Outlook, StartPlanner
from windlass.queueing.config import QueueConfig
from windlass.queueing.outcome import BEHIND_HEAD, Admitted, Held, Outcome

STRICT = system([queue("strict", cell(99), strategy="StrictFIFO"), queue("loose", cell(99))])
ROOM = 10
FIRST = {"kubernetes.io/hostname": "n0"}
SECOND = {"kubernetes.io/hostname": "n1"}


def run(name: str, cpus: int, on: int, seconds: int | None = None, **more: object) -> Workload:
    """Runs on node `n<on>` for so many seconds more."""
    own = pod(name, cpu=str(cpus), on=f"n{on}", namespace="team")
    return runs(name, [own], max_run_seconds=seconds, started_at=NOW, **more)  # type: ignore[arg-type]


def wait(name: str, cpus: int, count: int = 1, **more: object) -> Workload:
    return gang(name, pod("t", cpu=str(cpus)), count, **more)  # type: ignore[arg-type]


class Office:
    """A planner over nodes of 10 CPUs."""

    def __init__(
        self,
        *workloads: Workload,
        nodes: int = 1,
        queues: QueueSystem = STRICT,
        reservations: Sequence[Reservation] = (),
        settings: PlannedStartSettings = PlannedStartSettings(),  # noqa: B008
    ) -> None:
        pods = [replace_name(workload) for workload in workloads if workload.admission is not None]
        objects = [*(node(f"n{number}", cpu=ROOM) for number in range(nodes)), *pods]
        self.occupancy: Occupancy = make_occupancy(make_overlay(*objects), [], queues, settings)
        self.planner = StartPlanner(self.occupancy, QueueConfig(), workloads, reservations)
        self.by_key = {workload.key: workload for workload in workloads}

    def admit(self, name: str, turn: int, *after: str) -> Admitted:
        """Placed now, as a pass would do it."""
        workload = self.by_key[f"team/{name}"]
        assert self.occupancy.placer.place(workload, choices(workload)).ok
        self.occupancy.add_placed(workload, choices(workload))
        return Admitted(workload.key, "", choices(workload), (), after, turn)

    def plan(self, *outcomes: Outcome) -> dict[str, int]:
        """Workload → seconds from now until its planned start."""
        self.planner.plan(outcomes)
        found = self.planner.planned_outcomes(list(outcomes))
        return {planned.key.partition("/")[2]: planned.start - NOW for planned in found.planned_starts}

    def outlooks(self, *outcomes: Outcome) -> dict[str, Outlook]:
        self.planner.plan(outcomes)
        found = self.planner.planned_outcomes(list(outcomes)).outlooks
        return {key.partition("/")[2]: outlook for key, outlook in found.items()}


def replace_name(workload: Workload) -> object:
    return workload.pod_sets[0].template


def held(name: str, turn: int = 0, code: str = "CPU_MEM_INSUFFICIENT") -> Held:
    return Held(f"team/{name}", code, "", turn)


# Who gets a plan


def test_each_is_planned_around_those_before_it() -> None:
    office = Office(run("r", 8, 0, 100), wait("a", 10, max_run_seconds=50), wait("b", 10), wait("c", 2))
    assert office.plan(held("b", 2), held("a", 1), held("c", 0)) == {"c": 100}
    assert office.plan(held("b", 2), held("a", 1)) == {"a": 100, "b": 150}
    assert office.plan(held("b", 1), held("a", 1)) == {"a": 100, "b": 150}, "by name where turns are equal"


def test_only_the_first_ones_get_a_plan() -> None:
    workloads = [run("r", 8, 0, 100), *(wait(name, 10, max_run_seconds=10) for name in "abc")]
    holds = [held(name) for name in "abc"]
    assert Office(*workloads, settings=PlannedStartSettings(depth=2)).plan(*holds) == {"a": 100, "b": 110}
    assert Office(*workloads, settings=PlannedStartSettings(depth=0)).plan(*holds) == {}


def test_holds_that_no_end_removes_get_no_plan() -> None:
    office = Office(
        run("r", 8, 0, 100),
        wait("a", 4),
        wait("held", 4, hold="why"),
        wait("idle", 4, active=False),
        replace(wait("g", 4), key="team/g#1"),
    )
    permanent = [
        "KUEUE_FLAVOR_MISMATCH",
        "KUEUE_QUEUE_MISSING",
        "KUEUE_QUOTA_MISCONFIGURED",
        "INVALID_OBJECT",
        "REQUEST_EXCEEDS_CLUSTER",
    ]
    for code in permanent:
        assert office.plan(held("a", code=code)) == {}
    assert office.plan(held("held"), held("idle"), held("g#1"), held("unknown")) == {}
    assert office.plan(held("a")) == {"a": 100}


def test_nothing_behind_the_last_of_a_strict_queue_starts_before_it() -> None:
    office = Office(
        run("r", 8, 0, 100),
        run("s", 8, 1, 200),
        wait("first", 10, 2, queue_name="strict", max_run_seconds=10),
        wait("second", 4, queue_name="strict"),
        wait("other", 4, queue_name="loose", max_run_seconds=10),
        nodes=2,
    )
    assert office.plan(held("first", 0), held("other", 1), held("second", 2)) == {
        "first": 200,
        "other": 100,
        "second": 210,
    }
    assert office.plan(held("second", 0), held("other", 1)) == {"second": 100, "other": 100}


def test_nor_where_that_has_no_planned_start() -> None:
    office = Office(
        run("r", 8, 0, 100),
        wait("never", 10, 2, queue_name="strict"),
        wait("second", 4, queue_name="strict"),
        wait("loose", 10, 2, queue_name="loose"),
        wait("behind", 4, queue_name="loose"),
    )
    assert office.plan(held("never", 0), held("second", 1), held("loose", 2), held("behind", 3)) == {"behind": 100}


def test_without_any_end_nothing_is_planned_and_nothing_guarded() -> None:
    office = Office(run("r", 8, 0), wait("a", 10))
    assert office.planner.guard() is None
    assert office.plan(held("a")) == {}
    assert Office(run("r", 8, 0), wait("a", 10, max_run_seconds=5)).planner.guard() is not None
    history = PlannedStartSettings(history={"team/loose": 500})
    assert Office(run("r", 8, 0), wait("a", 10), settings=history).planner.guard() is None
    known = Office(run("r", 8, 0, queue="loose"), wait("a", 10), settings=history)
    assert known.plan(held("a")) == {"a": 500}


def test_the_guard_knows_the_order_of_the_last_pass() -> None:
    office = Office(run("r", 8, 0, 100), wait("large", 10), wait("small", 2))
    office.planner.plan([held("large", 3), held("small", 5)])
    small = office.by_key["team/small"]
    for turn, starts in [(5, False), (4, False), (3, True)]:
        guard = office.planner.guard([held("large", 3), held("small", turn)])
        assert guard is not None
        assert guard.place(small, choices(small)).ok is starts
    new = office.planner.guard()
    assert new is not None
    office.occupancy.placer.remove(small)
    assert not new.place(small, choices(small)).ok


# Who delays whom


def test_one_that_was_decided_later_and_started_delays_it() -> None:
    for turn, after, delayed in [(5, (), True), (1, (), False), (0, (), False), (5, ("team/r",), False)]:
        office = Office(run("r", 8, 0, 100), wait("large", 10), wait("small", 2))
        outcomes = [held("large", 1), office.admit("small", turn, *after)]
        assert office.planner.plan(outcomes) is delayed
        assert office.plan(*outcomes) == ({"large": 100} if delayed else {})


def test_one_that_ends_in_time_delays_nobody() -> None:
    for limit, delayed in [(100, False), (101, True)]:
        office = Office(run("r", 8, 0, 100), wait("large", 10), wait("small", 2, max_run_seconds=limit))
        outcomes = [held("large", 1), office.admit("small", 5)]
        assert office.planner.plan(outcomes) is delayed
        assert office.plan(*outcomes) == {"large": 100}


def test_where_only_the_first_planned_start_is_kept_others_may_be_delayed() -> None:
    """The second start is told as late as it is: the small workload that delays it stays."""
    office = Office(
        run("r", 6, 0, 100),
        run("s", 6, 1, 100),
        gang("first", pod("t", cpu="10", node_selector=FIRST)),
        gang("second", pod("t", cpu="10", node_selector=SECOND)),
        gang("small", pod("t", cpu="2", node_selector=SECOND), max_run_seconds=500),
        nodes=2,
    )
    outcomes = [held("first", 1), held("second", 2), office.admit("small", 5)]
    assert office.planner.plan(outcomes)
    guard = office.planner.guard(outcomes, 1)
    assert guard is not None
    assert not office.planner.plan(outcomes)
    assert office.plan(*outcomes) == {"first": 100, "second": 500}
    small = office.by_key["team/small"]
    office.occupancy.placer.remove(small)
    assert guard.place(small, choices(small)).ok


def test_a_start_that_could_not_be_kept_is_not_planned_as_early_again() -> None:
    """What is guarded and turns out later, for a workload that may delay it, holds nobody for the early moment."""
    office = Office(
        run("r", 8, 0, 100),
        wait("large", 10, queue_name="a"),
        wait("owner", 2, queue_name="b", max_run_seconds=300),
        wait("small", 2, queue_name="a", max_run_seconds=300),
        queues=BORROW,
    )
    assert office.planner.plan([held("large", 1), office.admit("small", 5)])
    guard = office.planner.guard()
    small = office.by_key["team/small"]
    office.occupancy.placer.remove(small)
    assert guard is not None
    assert guard.place(small, choices(small)).code == "RESERVED_FOR_OTHERS"
    kept_off = Held("team/small", "RESERVED_FOR_OTHERS", "", 5)
    assert office.planner.plan([held("large", 1), office.admit("owner", 2), kept_off])
    assert office.planner.guard() is not None
    office.occupancy.placer.remove(office.by_key["team/owner"])
    assert not office.planner.plan([held("large", 1), office.admit("small", 5)])


def test_who_did_not_have_to_respect_a_late_start_is_no_reason_for_another_pass() -> None:
    office = Office(
        run("r", 8, 0, 100),
        wait("large", 10, queue_name="a"),
        wait("owner", 2, queue_name="b", max_run_seconds=300),
        wait("small", 2, queue_name="a", max_run_seconds=300),
        queues=BORROW,
    )
    assert office.planner.plan([held("large", 1), office.admit("small", 5)])
    assert office.planner.guard() is not None
    office.occupancy.placer.remove(office.by_key["team/small"])
    for_another = Held("team/small", "RESERVED_FOR_OTHERS", "", 5)
    assert not office.planner.plan([held("large", 1), office.admit("owner", 2), for_another])


def test_behind_a_head_that_no_end_helps_nothing_of_a_strict_queue_is_planned() -> None:
    head = Held("team/head", "KUEUE_FLAVOR_MISMATCH", "", 1)
    behind = Held("team/behind", BEHIND_HEAD, "", 2)
    for workloads, planned in [((head, behind), {}), ((held("head", 1), behind), {"head": 100, "behind": 100})]:
        office = Office(
            run("r", 8, 0, 100),
            wait("head", 4, queue_name="strict"),
            wait("behind", 4, queue_name="strict"),
        )
        assert office.plan(*workloads) == planned


def test_a_workload_with_a_gate_is_not_planned() -> None:
    office = Office(run("r", 8, 0, 100), wait("gated", 4))
    assert office.plan(Held("team/gated", SCHEDULING_GATED.code, "", 1)) == {}


BORROW = system([queue("a", cell(4), cohort="c"), queue("b", cell(4), cohort="c"), queue("c", cell(92), cohort="c")])


def test_a_start_on_borrowed_quota_is_delayed_only_by_those_that_borrow_or_share_its_queue() -> None:
    for own, delayed in [("b", False), ("a", True), ("", True)]:
        office = Office(
            run("r", 8, 0, 100),
            wait("large", 10, queue_name="a"),
            wait("small", 2, queue_name=own),
            queues=BORROW,
        )
        outcomes = [held("large", 1), office.admit("small", 5)]
        assert office.planner.plan(outcomes) is delayed


# What a start rests on


def test_a_start_rests_on_what_ends_on_its_nodes() -> None:
    office = Office(run("r", 5, 0, 100), run("s", 5, 0, 50), run("t", 9, 1, 20), wait("a", 10), nodes=2)
    assert office.outlooks(held("a"))["a"].basis == ("team/t",)
    both = Office(run("r", 5, 0, 100), run("s", 5, 0, 50), run("t", 9, 1, 300), wait("a", 10), nodes=2)
    assert both.outlooks(held("a"))["a"].basis == ("team/s", "team/r"), "the first to end first"


def test_a_plan_before_it_is_part_of_what_it_rests_on() -> None:
    office = Office(run("r", 8, 0, 100), wait("a", 10, max_run_seconds=50), wait("b", 10))
    found = office.outlooks(held("a", 0), held("b", 1))
    assert found["b"].basis == ("team/r", "team/a")
    assert found["b"].start == NOW + 150


def test_what_was_rolled_back_is_no_part_of_it() -> None:
    office = Office(run("r", 8, 0, 100), wait("large", 10), wait("small", 2, max_run_seconds=100))
    before = office.occupancy.checkpoint()
    started = office.admit("small", 0)
    assert office.outlooks(held("large", 1), started)["large"].basis == ("team/r", "team/small")
    office.occupancy.rollback(before)
    assert office.outlooks(held("large", 1))["large"].basis == ("team/r",)


def test_where_only_quota_lacks_it_rests_on_the_last_to_end() -> None:
    small = system([queue("q", cell(8))])
    office = Office(
        run("r", 4, 1, 100, queue="q", usage={"cpu": 4000}),
        run("s", 4, 1, 200, queue="q", usage={"cpu": 4000}),
        run("t", 1, 2, 150),
        run("u", 1, 2, 300),
        wait("a", 8, queue_name="q"),
        nodes=3,
        queues=small,
    )
    found = office.outlooks(held("a"))["a"]
    assert found.start == NOW + 200
    assert found.basis == ("team/s",)


# What holds say


def test_a_hold_says_when_it_starts_and_who_is_ahead_in_its_queue() -> None:
    office = Office(
        run("r", 8, 0, 100),
        wait("a", 10, queue_name="loose", max_run_seconds=50),
        wait("b", 10, queue_name="strict"),
        wait("c", 10, queue_name="loose"),
        settings=PlannedStartSettings(depth=2),
    )
    found = office.outlooks(held("a", 0), held("b", 1), held("c", 2))
    assert [(name, one.start, one.ahead) for name, one in found.items()] == [
        ("a", NOW + 100, 0),
        ("b", NOW + 150, 0),
        ("c", None, 1),
    ]
    assert found["a"].text.endswith("when team/r ends (by run-time limit)")
    assert found["c"].text == (
        "no planned start: starts are planned for the first 2 waiting workloads only (backfill.depth); "
        "1 workload waits ahead of it"
    )
    assert found["c"].basis == ()


def test_all_that_wait_ahead_in_the_queue_are_counted() -> None:
    office = Office(run("r", 8, 0, 100), *(wait(name, 10, queue_name="loose") for name in "abcd"))
    found = office.outlooks(*(held(name) for name in "abcd"))
    assert [outlook.ahead for outlook in found.values()] == [0, 1, 2, 3]


def test_with_a_depth_of_0_holds_say_nothing_about_time() -> None:
    office = Office(run("r", 8, 0, 100), wait("a", 10), settings=PlannedStartSettings(depth=0))
    assert office.outlooks(held("a")) == {}


def test_a_hold_names_what_has_no_end() -> None:
    office = Office(
        run("r", 8, 0, 100),
        run("endless", 8, 1),
        replace(run("late", 1, 1, 100), started_at=NOW - 1000),
        wait("a", 10, 2, queue_name="strict"),
        wait("new", 1),
        nodes=2,
    )
    stranger = runs("stranger", [pod("s", cpu="1", on="n1", namespace="team")])
    office.occupancy.placer.placed_workloads.track_running([stranger])
    said = office.outlooks(held("a"), office.admit("new", 0))["a"]
    assert said.start is None
    assert said.text.startswith("no planned start: team/endless, team/late and team/new have no run-time limit (")
    with_history = Office(
        run("r", 8, 0, 100),
        replace(run("late", 1, 1, 100), started_at=NOW - 1000),
        wait("a", 10, 2),
        wait("new", 1),
        nodes=2,
        settings=PlannedStartSettings(history={"team/x": 5}),
    )
    said = with_history.outlooks(held("a"), with_history.admit("new", 0))["a"]
    assert said.text.startswith("no planned start: team/late and team/new have no run-time limit")


def test_without_anything_endless_it_says_that_too_little_ends() -> None:
    office = Office(run("r", 8, 0, 100), wait("a", 11))
    assert office.outlooks(held("a"))["a"].text.startswith("no planned start: no running workload with a known end")


def test_an_end_known_from_earlier_runs_says_so() -> None:
    week = NOW // PERIOD_SECONDS
    settings = with_run_estimates(PlannedStartSettings(), {"team/loose": RunTimes({week: {60: 20}})}, NOW)
    office = Office(run("r", 8, 0, queue="loose"), wait("a", 10), settings=settings)
    found = office.outlooks(held("a"))["a"]
    assert found.start == NOW + 60
    assert "95 % of 20 earlier runs of queue team/loose" in found.text


# Reservations


def test_a_reservation_comes_before_all_plans() -> None:
    reserved = Reservation("x", NOW + 50, NOW + 400, 1, pod("t", cpu="10"), ReservationSubjects(("vip",)))
    office = Office(run("r", 8, 0, 50), wait("a", 10), wait("b", 2, max_run_seconds=50), reservations=[reserved])
    assert office.plan(held("a")) == {"x": 50, "a": 400}
    assert office.outlooks(held("a"))["a"].basis == ("team/r", "reservation/x")
    assert Office(wait("a", 1), reservations=[reserved]).planner.guard() is not None
    found = office.planner.planned_outcomes([])
    assert found.shortfalls == []
