"""One pass over everything that waits, late pods before it, and the decisions made of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.placement.offices import make_context, make_overlay, runs
from tests.queueing.builders import NOW, cell, queue, system

from reference.park import node, pod
from windlass.model.decision import AdmittedPodSet, Evict, Hold
from windlass.model.disruption import BudgetMeta, BudgetSpec, PodDisruptionBudget
from windlass.model.meta import LabelSelector
from windlass.model.pod import Pod, SchedulingGate
from windlass.model.queue import PreemptionPolicy
from windlass.model.verdict import Verdict
from windlass.model.workload import Admission, PodSet, PodSetAssignment, Workload
from windlass.placement.blocked_capacity import PlannedPod
from windlass.placement.decision_context import DecisionContext
from windlass.placement.decision_pass import run_pass
from windlass.placement.decisions import (
    build_admit,
    build_decisions,
    build_reserve,
    shortfall_holds,
    workload_keys,
)
from windlass.placement.late_pods import LatePods, place_late_pods
from windlass.placement.timeplan.planned_start import PlannedStart
from windlass.placement.timeplan.reservations import ReservationShortfall
from windlass.placement.timeplan.start_planner import Outlook, PlannedOutcomes
from windlass.queueing.outcome import Admitted, Evicted, Held, Outcome
from windlass.queueing.placement_interface import PlacementResult, PodSetChoice

QUEUES = system([queue("q", cell(99)), queue("r", cell(99)), queue("s", cell(99))])
NO_LATE = LatePods([], {}, [], frozenset())


def member(name: str, cpus: int = 1, **more: object) -> Pod:
    return pod(name, cpu=str(cpus), namespace="team", **more)  # type: ignore[arg-type]


def waits(name: str, *pods: Pod, **more: object) -> Workload:
    """A gang of these pods."""
    own = PodSet("main", len(pods), pods[0], pod_keys=tuple(one.key for one in pods))
    more.setdefault("queued_at", 5)
    return Workload(f"team/{name}", "PodGroup", (own,), uid=name, **more)  # type: ignore[arg-type]


def office(
    *workloads: Workload, cpu: int = 8, running: tuple[Pod, ...] = (), pods: tuple[Pod, ...] = (), nodes: int = 1
) -> DecisionContext:
    """The pods of the workloads exist where they are templates."""
    objects = {one.key: one for one in (*running, *pods)}
    for workload in workloads:
        for own in workload.pod_sets:
            if own.template.key in own.pod_keys:
                objects.setdefault(own.template.key, own.template)
    machines = [node(f"n{number}", cpu=cpu) for number in range(nodes)]
    known = {key for workload in workloads for own in workload.pod_sets for key in own.pod_keys}
    single = [replace(runs(one.metadata.name, [one]), kind="Pod") for one in running if one.key not in known]
    overlay = make_overlay(*machines, *objects.values(), queues=QUEUES, workloads=[*workloads, *single])
    return make_context(overlay, workloads)


def short(outcomes: list[Outcome]) -> list[tuple[str, str, int]]:
    """Kind, workload and turn."""
    return [
        (type(outcome).__name__, outcome.workload.partition("/")[2], getattr(outcome, "decided_in_cycle", -1))
        for outcome in outcomes
    ]


# The order of a pass


def test_unqueued_workloads_go_by_priority_before_and_after_the_queued_ones() -> None:
    context = office(
        waits("low", member("l"), priority=-1),
        waits("equal", member("e")),
        waits("high", member("h"), priority=1),
        waits("young", member("y"), queued_at=6),
        waits("queued", member("q"), queue_name="q"),
    )
    assert short(run_pass(context, None)) == [
        ("Admitted", "high", 0),
        ("Admitted", "equal", 1),
        ("Admitted", "queued", 2),
        ("Admitted", "young", 3),
        ("Admitted", "low", 4),
    ]


def test_queued_workloads_are_numbered_in_the_order_of_their_cycles() -> None:
    context = office(
        waits("b", member("b"), queue_name="q", priority=5),
        waits("a", member("a"), queue_name="q"),
        waits("c", member("c"), queue_name="q", priority=5, queued_at=4),
        waits("first", member("f"), priority=9),
        waits("last", member("z"), priority=-9),
    )
    assert short(run_pass(context, None)) == [
        ("Admitted", "first", 0),
        ("Admitted", "c", 1),
        ("Admitted", "b", 2),
        ("Admitted", "a", 3),
        ("Admitted", "last", 4),
    ]


def test_of_one_cycle_what_waits_for_victims_or_completes_a_gang_comes_first() -> None:
    context = office(
        waits("old", member("o"), queue_name="q"),
        waits("part", member("p"), queue_name="r", gang_running=True, queued_at=7),
        waits("heir", member("h"), queue_name="s", nominated=True, queued_at=8, priority=-1),
    )
    assert [name for _, name, _ in short(run_pass(context, None))] == ["heir", "part", "old"]
    by_age = office(
        waits("young", member("y"), queue_name="q", queued_at=6),
        waits("old", member("o"), queue_name="r"),
        waits("urgent", member("u"), queue_name="s", priority=1, queued_at=9),
    )
    assert [name for _, name, _ in short(run_pass(by_age, None))] == ["urgent", "old", "young"]


def test_a_nominated_workload_and_all_before_it_go_before_queued_ones_of_no_higher_priority() -> None:
    heir = waits("heir", member("h"), priority=2, nominated=True, queued_at=9)
    others = [waits("ahead", member("a"), priority=3), waits("behind", member("b"), priority=1)]
    for priority, order in (
        (1, ["ahead", "heir", "behind", "queued"]),
        (2, ["ahead", "heir", "queued", "behind"]),
        (5, ["queued", "ahead", "heir", "behind"]),
    ):
        queued = waits("queued", member("q"), queue_name="q", priority=priority)
        assert [name for _, name, _ in short(run_pass(office(queued, heir, *others), None))] == order, priority
    stopped = waits("queued", member("q"), queue_name="q", priority=5, hold="its class is missing")
    found = short(run_pass(office(stopped, heir, *others), None))
    assert [name for kind, name, _ in found if kind == "Admitted"] == ["ahead", "heir", "behind"]


@pytest.mark.parametrize(("low", "admitted"), [(1, ["high", "heir"]), (2, ["high", "heir"]), (3, ["high", "low"])])
def test_what_was_freed_for_a_nominated_workload_is_not_taken_by_queued_ones_of_its_priority(
    low: int, admitted: list[str]
) -> None:
    """Though queued work of higher priority goes first, and is decided together with all that is queued."""
    context = office(
        waits("high", member("a", 4), queue_name="q", priority=5),
        waits("low", member("b", 4), queue_name="q", priority=low),
        waits("heir", member("h", 4), priority=2, nominated=True, queued_at=9),
    )
    assert sorted(name for kind, name, _ in short(run_pass(context, None)) if kind == "Admitted") == sorted(admitted)


def test_without_queued_workloads_all_go_in_order() -> None:
    context = office(waits("b", member("b"), queued_at=7), waits("a", member("a"), queued_at=6))
    assert short(run_pass(context, None)) == [("Admitted", "a", 0), ("Admitted", "b", 1)]


def test_the_guard_is_asked_during_the_pass_only() -> None:
    class Refuser:
        def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult:
            return PlacementResult(ok=False, message="no", code="RESERVED_FOR_OTHERS", feasible=False)

        def on_workload_removed(self) -> None: ...

    context = office(waits("a", member("a")))
    (held,) = run_pass(context, Refuser())
    assert isinstance(held, Held)
    assert held.code == "RESERVED_FOR_OTHERS"
    assert context.placer.guard is None


# Holds


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        ({"hold": "no queue", "hold_code": "X"}, "X", "no queue"),
        ({"hold": "no queue"}, "JOB_SUSPENDED", "no queue"),
        ({"active": False}, "JOB_SUSPENDED", "the workload is not active"),
        ({"active": False, "hold_code": "X"}, "X", "the workload is not active"),
    ],
)
def test_a_workload_that_is_held_or_not_active_waits(more: dict[str, object], code: str, message: str) -> None:
    (held,) = run_pass(office(waits("a", member("a"), **more)), None)
    assert held == Held("team/a", code, message, 0)


@pytest.mark.parametrize("queue_name", ["", "q"])
def test_a_gate_of_one_pod_holds_its_gang(queue_name: str) -> None:
    gated = member("a1", scheduling_gates=(SchedulingGate("mine"),))
    context = office(
        waits("a", member("a0"), gated, queue_name=queue_name, priority=1), waits("b", member("b")), pods=(gated,)
    )
    first, second = run_pass(context, None)
    assert isinstance(first, Held)
    assert (first.workload, first.code, first.decided_in_cycle) == ("team/a", "SCHEDULING_GATED", 0)
    assert isinstance(second, Admitted)


def test_kueues_own_gate_holds_nobody_in_a_queue() -> None:
    gated = member("a0", scheduling_gates=(SchedulingGate("kueue.x-k8s.io/admission"),))
    (found,) = run_pass(office(waits("a", gated, queue_name="q")), None)
    assert isinstance(found, Admitted)


def test_a_gate_holds_no_workload_that_runs_or_is_held_already() -> None:
    gated = member("a0", scheduling_gates=(SchedulingGate("mine"),))
    assert run_pass(office(admitted("a", gated)), None) == []
    (held,) = run_pass(office(waits("a", gated, queue_name="q", hold="no queue", hold_code="X")), None)
    assert isinstance(held, Held)
    assert held.code == "X"


def test_one_that_finds_no_place_is_held_with_its_turn() -> None:
    context = office(waits("b", member("b", 2)), waits("a", member("a", 9), priority=1), cpu=8)
    first, second = run_pass(context, None)
    assert isinstance(first, Held)
    assert (first.workload, first.code, first.decided_in_cycle) == ("team/a", "REQUEST_EXCEEDS_CLUSTER", 0)
    assert isinstance(second, Admitted)
    assert (second.choices, second.nodes, second.cluster_queue) == ((PodSetChoice("main", 1, {}),), ({"n0": 1},), "")


# Preemption


LOW = member("low", 6, on="n0")


def test_a_workload_evicts_lower_priorities() -> None:
    context = office(waits("a", member("a", 6), priority=5), running=(LOW,))
    assert run_pass(context, None) == [
        Evicted("team/low", "team/a", "Priority"),
        Admitted("team/a", "", (PodSetChoice("main", 1, {}),), ({"n0": 1},), ("team/low",), 0),
    ]
    equal = run_pass(office(waits("a", member("a", 6)), running=(LOW,)), None)
    assert short(equal) == [("Held", "a", 0)]


def test_a_member_above_the_minimum_evicts_nobody() -> None:
    gang = replace(waits("g", member("g0", 1), member("g1", 6), priority=5), min_pods=1)
    sets = (replace(gang.pod_sets[0], template=member("g0", 2)),)
    context = office(replace(gang, pod_sets=sets), running=(LOW,), pods=(member("g0", 2), member("g1", 2)))
    assert short(run_pass(context, None)) == [("Admitted", "g", 0), ("Held", "g#1", 1)]


def test_what_was_admitted_in_this_pass_is_withdrawn_before_anything_is_evicted() -> None:
    """The queue has the older, nominated workload first; the unqueued one of higher priority comes after it."""
    queued = waits("queued", member("q", 4), queue_name="q", priority=1)
    ahead = waits("ahead", member("h", 1), queue_name="q", priority=9)
    urgent = waits("urgent", member("u", 6), priority=5)
    context = office(queued, ahead, urgent, running=(member("low", 1, on="n0"),))
    found = run_pass(context, None)
    assert {outcome.workload: type(outcome).__name__ for outcome in found} == {
        "team/ahead": "Admitted",
        "team/urgent": "Admitted",
        "team/queued": "Held",
    }


@pytest.mark.parametrize(("minimum", "evicted"), [(0, ["team/g#1"]), (1, [])])
def test_the_members_above_a_minimum_count_with_it_against_budgets(minimum: int, evicted: list[str]) -> None:
    """The budget covers only the member above the minimum, which is evicted with it."""
    spec = BudgetSpec(min_available=minimum, selector=LabelSelector(match_labels={"app": "kept"}))
    budget = PodDisruptionBudget(BudgetMeta(name="b", namespace="team"), spec)
    pods = (member("g0", 2, on="n0"), member("g1", 2, on="n0", labels={"app": "kept"}))
    part = PodSetAssignment("main", 2, {"cpu": "default"}, {"cpu": 4000}, {"n0": 2})
    gang = replace(waits("g", *pods, queue_name="tight"), min_pods=1, admission=Admission("tight", (part,)))
    urgent = waits("urgent", member("u", 2), queue_name="tight", priority=5)
    queues = system([queue("tight", cell(4), preemption=PreemptionPolicy(within_cluster_queue="LowerPriority"))])
    objects = (node("n0", cpu=8), *pods, member("u", 2), budget)
    overlay = make_overlay(*objects, queues=queues, workloads=[gang, urgent])
    found = run_pass(make_context(overlay, [gang, urgent]), None)
    assert [outcome.workload for outcome in found if isinstance(outcome, Evicted)] == evicted


# Late pods


def admitted(name: str, *pods: Pod, queue_name: str = "q", **more: object) -> Workload:
    part = PodSetAssignment("main", len(pods), {"cpu": "default"}, {"cpu": 1000 * len(pods)})
    return replace(waits(name, *pods, queue_name=queue_name, **more), admission=Admission("q", (part,), NOW - 10))  # type: ignore[arg-type]


def test_late_pods_are_placed_by_priority_and_age() -> None:
    context = office(
        admitted("a", member("a", 3), queued_at=7),
        admitted("b", member("b", 3), queued_at=6),
        admitted("c", member("c", 3), priority=1, queued_at=8),
    )
    late = place_late_pods(context)
    assert [(piece.key, after) for piece, after in late.placed] == [("team/c", ()), ("team/b", ())]
    assert {key: verdict.code for key, verdict in late.refused.items()} == {"team/a": "CPU_MEM_INSUFFICIENT"}
    assert late.workloads == {"team/a", "team/b", "team/c"}
    assert late.evicted == []


def test_only_admitted_workloads_with_waiting_pods_are_late() -> None:
    context = office(
        waits("new", member("n")),
        replace(admitted("going", member("g")), evicting=True),
        runs("runs", [LOW]),
        running=(LOW,),
    )
    assert place_late_pods(context) == NO_LATE


def test_a_late_pod_that_cannot_be_read_is_refused_and_the_others_are_placed() -> None:
    context = office(admitted("a", member("a"), unreadable="bad cpu"), admitted("b", member("b")))
    late = place_late_pods(context)
    assert late.refused == {"team/a": Verdict("INVALID_OBJECT", 1, detail="bad cpu")}
    assert [piece.key for piece, _ in late.placed] == ["team/b"]


def test_a_late_pod_evicts_lower_priorities() -> None:
    def office_with(priority: int, cpus: int) -> LatePods:
        own = member("a", cpus, priority=priority)
        return place_late_pods(office(admitted("a", own, priority=priority), running=(LOW,)))

    late = office_with(5, 6)
    assert late.evicted == [Evicted("team/low", "team/a", "Priority")]
    assert [after for _, after in late.placed] == [("team/low",)]
    assert office_with(0, 6).evicted == []
    assert office_with(5, 9).refused["team/a"].code == "REQUEST_EXCEEDS_CLUSTER"


# Decisions


def planned(*outcomes: Outcome, outlooks: dict[str, Outlook] | None = None) -> PlannedOutcomes:
    return PlannedOutcomes(list(outcomes), [], outlooks or {}, [])


def test_admitted_pods_are_bound_and_the_admission_is_written() -> None:
    context = office(waits("a", member("a0"), member("a1")), pods=(member("a1"),))
    made = build_decisions(context, planned(*run_pass(context, None)), NO_LATE)
    assert [(bind.pod, bind.node, bind.after) for bind in made.binds] == [("team/a0", "n0", ()), ("team/a1", "n0", ())]
    (admit,) = made.admits
    assert (admit.workload, admit.kind, admit.queue) == ("team/a", "PodGroup", "")
    assert admit.pod_sets == (AdmittedPodSet("main", 2, {}, {"n0": 2}),)
    assert (made.holds, made.evicts, made.reserves) == ((), (), ())


def test_a_single_pod_is_bound_without_an_admission() -> None:
    context = office(replace(waits("a", member("a")), kind="Pod"))
    made = build_decisions(context, planned(*run_pass(context, None)), NO_LATE)
    assert made.admits == ()
    assert [bind.pod for bind in made.binds] == ["team/a"]


def test_pods_that_do_not_exist_yet_are_not_bound() -> None:
    gang = waits("a", member("a0"))
    context = office(replace(gang, pod_sets=(replace(gang.pod_sets[0], count=3),)))
    made = build_decisions(context, planned(*run_pass(context, None)), NO_LATE)
    assert [bind.pod for bind in made.binds] == ["team/a0"]
    assert made.admits[0].pod_sets[0].count == 3


def test_victims_are_evicted_with_their_pods_and_waited_for() -> None:
    context = office(waits("a", member("a", 6), priority=5), running=(LOW,))
    made = build_decisions(context, planned(*run_pass(context, None)), NO_LATE)
    assert made.evicts == (Evict("team/low", ("team/low",), "team/a", "Priority"),)
    assert made.binds[0].after == ("team/low",)
    assert made.victims_by_node == {0: ("team/low",)}


def test_a_hold_has_its_verdict_and_its_outlook() -> None:
    context = office(waits("a", member("a", 9)), waits("b", member("b", 9)))
    outcomes = [Held("team/a", "X", "why", 0), Held("team/b", "Y", "", 1)]
    found = planned(*outcomes, outlooks={"team/a": Outlook(NOW + 5, 3, "soon")})
    made = build_decisions(context, found, NO_LATE)
    assert made.holds == (
        Hold("team/a", Verdict("X", 1, detail="why", planned_start=NOW + 5, ahead=3, outlook="soon")),
        Hold("team/b", Verdict("Y", 1)),
    )
    assert build_decisions(context, found, NO_LATE, with_holds=False).holds == ()


def elastic() -> DecisionContext:
    gang = replace(waits("g", member("g0", 2), member("g1", 2), member("g2", 2)), min_pods=1)
    return office(gang, pods=(member("g1", 2), member("g2", 2)), cpu=4)


def test_members_above_the_minimum_wait_under_their_own_names() -> None:
    context = elastic()
    made = build_decisions(context, planned(*run_pass(context, None)), NO_LATE)
    (admit,) = made.admits
    assert admit.pod_sets == (AdmittedPodSet("main", 2, {}, {"n0": 2}, wanted=3),)
    (hold,) = made.holds
    assert hold.workload == "team/g2"
    assert hold.verdict.detail.startswith(
        "gang team/g runs with its minimum of 1; this pod above the minimum waits: 0/1 nodes"
    )
    quiet = elastic()
    assert build_decisions(quiet, planned(*run_pass(quiet, None)), NO_LATE, with_holds=False).holds == ()


def test_the_hold_of_the_minimum_says_more_than_those_of_its_members() -> None:
    context = elastic()
    held = [Held("team/g", "A", "minimum", 0), Held("team/g#1", "B", "extra", 1)]
    made = build_decisions(context, planned(*held), NO_LATE)
    assert [(hold.workload, hold.verdict.code) for hold in made.holds] == [("team/g", "A")]
    only = build_decisions(elastic(), planned(held[1]), NO_LATE)
    assert [(hold.workload, hold.verdict.code) for hold in only.holds] == [("team/g", "B")]


def running_gang() -> tuple[Workload, tuple[Pod, ...]]:
    """Three pods on two nodes, of which one is the minimum, and a fourth that waits."""
    pods = tuple(member(f"g{number}", 2, on=f"n{min(number, 1)}") for number in range(3))
    part = PodSetAssignment("main", 3, {}, {"cpu": 6000}, {"n0": 1, "n1": 2})
    waiting = member("g3", 2)
    return replace(waits("g", *pods, waiting), min_pods=1, admission=Admission("", (part,))), (*pods, waiting)


def test_without_its_minimum_all_of_a_gang_is_evicted() -> None:
    gang, pods = running_gang()
    context = office(gang, pods=pods, nodes=2)
    made = build_decisions(context, planned(Evicted("team/g", "team/x#1", "Priority")), NO_LATE)
    assert made.evicts == (Evict("team/g", ("team/g0", "team/g1", "team/g2"), "team/x", "Priority"),)
    some = [Evicted("team/g#2", "team/x", "Priority"), Evicted("team/g#1", "team/y", "Other")]
    made = build_decisions(office(gang, pods=pods, nodes=2), planned(*some), NO_LATE)
    assert made.evicts == (Evict("team/g", ("team/g2", "team/g1"), "team/x", "Priority"),)


def test_late_pods_are_bound_unless_their_workload_is_evicted() -> None:
    own = admitted("a", member("a"))
    context = office(own)
    late = place_late_pods(context)
    made = build_decisions(context, planned(), late._replace(placed=[(own, ("team/v#1", "team/v"))]))
    assert [(bind.pod, bind.after) for bind in made.binds] == [("team/a", ("team/v",))]
    again = office(own)
    late = place_late_pods(again)
    made = build_decisions(again, planned(Evicted("team/a", "team/x", "Priority")), late)
    assert made.binds == ()
    assert [evict.workload for evict in made.evicts] == ["team/a"]


def test_late_refusals_and_evictions_are_part_of_the_decision() -> None:
    own = admitted("a", member("a", 6, priority=5), priority=5)
    context = office(own, running=(LOW,))
    made = build_decisions(context, planned(), place_late_pods(context))
    assert made.evicts == (Evict("team/low", ("team/low",), "team/a", "Priority"),)
    large = office(admitted("a", member("a", 7)), running=(LOW,))
    late = place_late_pods(large)
    made = build_decisions(large, planned(), late)
    assert [(hold.workload, hold.verdict.code) for hold in made.holds] == [("team/a", "CPU_MEM_INSUFFICIENT")]


def test_a_workload_whose_time_is_over_is_stopped() -> None:
    own = replace(LOW, status=replace(LOW.status, start_time="1970-01-01T00:10:00Z"))
    limited = replace(runs("low", [own]), max_run_seconds=60, run_limit_enforced=False, started_at=600)
    made = build_decisions(office(limited, running=(own,)), planned(), NO_LATE)
    assert made.evicts == (Evict("team/low", ("team/low",), "", "DurationExceeded"),)


# Parts of decisions


def choice(name: str, count: int) -> PodSetChoice:
    return PodSetChoice(name, count, {"cpu": "f"})


def test_admissions_of_pieces_are_joined() -> None:
    workload = Workload("team/g", "Job", (PodSet("x", 4, Pod()), PodSet("y", 1, Pod())))
    admitted_pieces = [
        Admitted("team/g", "queue", (choice("x", 2), choice("y", 1)), ({"n0": 1, "n1": 1}, {"n0": 1}), ("team/b#1",)),
        Admitted("team/g#1", "other", (choice("x", 1),), ({"n1": 1},), ("team/a", "team/b")),
    ]
    made = build_admit(workload, admitted_pieces)
    assert (made.workload, made.kind, made.queue, made.after) == ("team/g", "Job", "queue", ("team/b", "team/a"))
    assert made.pod_sets == (
        AdmittedPodSet("x", 3, {"cpu": "f"}, {"n0": 1, "n1": 2}, wanted=4),
        AdmittedPodSet("y", 1, {"cpu": "f"}, {"n0": 1}),
    )
    running = replace(workload, admission=Admission("queue"))
    assert [part.wanted for part in build_admit(running, admitted_pieces).pod_sets] == [0, 0]
    nothing = build_admit(running, [Admitted("team/g", "q", (choice("x", 0),))])
    assert nothing.pod_sets == (AdmittedPodSet("x", 0, {"cpu": "f"}, {}),)
    without_nodes = build_admit(workload, [Admitted("team/g", "q", (choice("x", 4),))])
    assert without_nodes.pod_sets == (AdmittedPodSet("x", 4, {"cpu": "f"}, {}),)


def test_workloads_of_pieces_are_named_once_in_order() -> None:
    assert workload_keys(["team/b#1", "team/a", "team/b", "team/a#missing"]) == ("team/b", "team/a")


def test_a_reservation_names_its_place_and_its_pods() -> None:
    nodes = make_overlay(node("n0"), node("n1")).snapshot.nodes
    pods = (PlannedPod(Pod(), 0, 1), PlannedPod(Pod(), 0, 1))
    made = build_reserve(PlannedStart("team/g#missing", 5, 9, pods), nodes)
    assert (made.workload, made.domain, made.start, made.until, made.nodes) == ("team/g", "n1", 5, 9, {"n1": 2})


def test_a_shortfall_is_a_hold() -> None:
    (hold,) = shortfall_holds([ReservationShortfall("reservation/r", 3, 1)], 7)
    assert hold == Hold("reservation/r", Verdict("GPU_FULL", 7, detail="Reservation r found room for 1 of 3 pods"))


def test_plans_without_pods_are_not_reserved() -> None:
    context = office(waits("a", member("a")))
    empty, full = (
        PlannedStart("team/a", 5, 9, ()),
        PlannedStart("team/b", NOW + 5, NOW + 9, (PlannedPod(member("t"), 0, 0),)),
    )
    context.overlay.table.row(context.overlay.snapshot.shapes[0], context.overlay.snapshot)
    found = PlannedOutcomes([], [empty, full], {}, [ReservationShortfall("reservation/r", 3, 1)])
    made = build_decisions(context, found, NO_LATE)
    assert [reserve.workload for reserve in made.reserves] == ["team/b"]
    assert [hold.workload for hold in made.holds] == ["reservation/r"]
