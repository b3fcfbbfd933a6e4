"""Whole decisions: cycles, what waits for which victims, what is held and why, one rule at a time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.queueing.builders import (
    CLASSIC,
    NOW,
    admitted,
    cell,
    decide,
    evicted,
    held,
    queue,
    running,
    system,
    template,
    waiting,
)
from tests.queueing.first_fit_placement import FirstFitPlacement
from tests.queueing.test_placement_and_quota import on

from windlass.model.errors import InputError
from windlass.model.meta import LabelSelector
from windlass.model.queue import Cohort, Fungibility, LocalQueue, PreemptionPolicy, QueueSystem, ResourceFlavor
from windlass.model.workload import PodSet, Workload
from windlass.queueing.admit import admit
from windlass.queueing.config import QueueConfig
from windlass.queueing.outcome import Admitted, Evicted, Held, Outcome
from windlass.queueing.placement_interface import PlacementResult, PodSetChoice, UnlimitedPlacement
from windlass.queueing.quota_cache import QuotaTreeCache
from windlass.queueing.quota_node import AdmittedWorkload, QuotaNode

ANY = PreemptionPolicy(reclaim_within_cohort="Any")
LOWER = PreemptionPolicy(within_cluster_queue="LowerPriority")
FAIR = QueueConfig(fair_sharing=True)


def after(outcomes: Sequence[Outcome]) -> dict[str, tuple[str, ...]]:
    return {name: one.after for name, one in admitted(outcomes).items()}


def test_each_cycle_takes_one_head_of_every_queue() -> None:
    queues = system([queue("a", cell(2)), queue("b", cell(1))])
    crowd = [waiting(f"{name}{number}", name, 1, created=number) for name in "ab" for number in (1, 2, 3)]
    outcomes = decide(queues, crowd)
    cycles = {one.workload: one.decided_in_cycle for one in outcomes if isinstance(one, Admitted | Held)}
    assert cycles == {
        "team/a1": 1,
        "team/b1": 1,
        "team/a2": 2,
        "team/b2": 2,
        "team/a3": 3,
        "team/b3": 2,  # as the second: nothing of its shape is tried again
    }
    assert [one.workload for one in outcomes] == ["team/a1", "team/b1", "team/a2", "team/a3", "team/b2", "team/b3"]


def test_a_decision_stops_after_so_many_cycles() -> None:
    outcomes = decide(
        system([queue("q", cell(9))]),
        [waiting(f"w{n}", "q", 1, created=n) for n in (1, 2, 3)],
        QueueConfig(max_cycles=2),
    )
    assert list(admitted(outcomes)) == ["w1", "w2"]
    hold = held(outcomes)["w3"]
    assert (hold.code, hold.message) == (
        "ADMISSION_DEFERRED",
        "not considered: the decision stopped after 2 admission cycles",
    )


def test_holds_before_the_queue_have_codes_of_their_own() -> None:
    queues = system([queue("q", cell(9)), queue("off", cell(1)), queue("odd", cell(1))])
    local = {
        **queues.local_queues,
        "team/off": LocalQueue("team/off", "off", stop_policy="Hold"),
        "team/odd": LocalQueue("team/odd", "odd", inactive_reason="spec.y: not implemented"),
    }
    queues = msgspec.structs.replace(queues, local_queues=local)
    holds = held(
        decide(
            queues,
            [
                waiting("off", "off", 1),
                waiting("odd", "odd", 1),
                waiting("asleep", "q", 1, active=False),
                waiting("told", "q", 1, hold="for a reason"),
                waiting("coded", "q", 1, hold="for a reason", hold_code="SOME_CODE"),
            ],
        )
    )
    assert {name: (hold.code, hold.message) for name, hold in holds.items()} == {
        "off": ("KUEUE_QUEUE_MISSING", "LocalQueue team/off is stopped (spec.stopPolicy: Hold)"),
        "odd": ("KUEUE_QUEUE_MISSING", "LocalQueue team/odd is inactive: spec.y: not implemented"),
        "asleep": (
            "JOB_SUSPENDED",
            "Workload team/asleep is deactivated (spec.active: false): set spec.active to true",
        ),
        "told": ("KUEUE_QUEUE_MISSING", "for a reason"),
        "coded": ("SOME_CODE", "for a reason"),
    }


class NoRoomTheSecondTime(UnlimitedPlacement):
    """Pods that find no room, then find some, then none again."""

    def __init__(self) -> None:
        self.results = [False, True, False]

    def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult:
        ok = self.results.pop(0) if self.results else False
        return PlacementResult(ok=ok, nodes=({},), code="" if ok else "GPU_FULL", message="" if ok else "no room")


def test_a_workload_without_room_is_not_said_to_be_over_quota() -> None:
    (hold,) = held(
        decide(system([queue("q", cell(9))]), [waiting("w", "q", 1)], placement=NoRoomTheSecondTime())
    ).values()
    assert (hold.code, hold.message) == ("GPU_FULL", "no room")


class Unreadable(UnlimitedPlacement):
    def requests(self, workload: Workload, pod_set: PodSet) -> dict[str, int]:
        if workload.name == "bad":
            raise InputError("can't be read")
        return super().requests(workload, pod_set)


def test_a_request_that_cannot_be_read_holds_only_its_workload() -> None:
    crowd = [waiting("bad", "q", 1), waiting("good", "q", 1)]
    outcomes = decide(system([queue("q", cell(1))]), crowd, placement=Unreadable())
    assert list(admitted(outcomes)) == ["good"]
    assert held(outcomes)["bad"].code == "INVALID_OBJECT"
    assert "can't be read" in held(outcomes)["bad"].message


def test_a_drained_queue_evicts_in_the_order_of_names_and_says_which_was_stopped() -> None:
    queues = system([queue("q", cell(9), stop_policy="HoldAndDrain"), queue("p", cell(9)), queue("o", cell(9))])
    local = {**queues.local_queues, "team/p": LocalQueue("team/p", "p", stop_policy="HoldAndDrain")}
    local["team/o"] = LocalQueue("team/o", "o", stop_policy="Hold")
    queues = msgspec.structs.replace(queues, local_queues=local)
    work = [running("z", "p", 1), running("b", "q", 1), running("a", "q", 1), running("c", "o", 1)]
    work += [running("leaving", "q", 1, evicting=True), running("going", "p", 1, evicting=True)]
    outcomes = decide(queues, work)
    assert outcomes == [
        Evicted("team/a", "", "ClusterQueueStopped", "ClusterQueue q (spec.stopPolicy: HoldAndDrain)"),
        Evicted("team/b", "", "ClusterQueueStopped", "ClusterQueue q (spec.stopPolicy: HoldAndDrain)"),
        Evicted("team/z", "", "LocalQueueStopped", "LocalQueue team/p (spec.stopPolicy: HoldAndDrain)"),
    ]
    only_local = msgspec.structs.replace(queues, queues={**queues.queues, "q": queue("q", cell(9))})
    assert evicted(decide(only_local, work)) == {"z": "LocalQueueStopped"}


def test_what_is_drained_is_no_victim_and_keeps_its_quota_until_it_has_ended() -> None:
    queues = system([queue("q", cell(1), cohort="c", preemption=ANY), queue("g", cell(0), cohort="c")])
    work = [running("r", "g", 1, active=False), waiting("w", "q", 1)]
    outcomes = decide(queues, work)
    assert evicted(outcomes) == {"r": "Deactivated"}
    assert list(held(outcomes)) == ["w"]
    assert [one.message for one in outcomes if isinstance(one, Evicted)] == ["Workload team/r (spec.active: false)"]


def test_an_eviction_says_for_whom_and_why() -> None:
    queues = system(
        [queue("q", cell(1), cohort="low", preemption=ANY), queue("g", cell(0), cohort="top")],
        [Cohort("low", "top"), Cohort("top")],
    )
    outcomes = decide(queues, [running("r", "g", 1), waiting("w", "q", 1)])
    assert outcomes[0] == Evicted(
        "team/r",
        "team/w",
        "InCohortReclamation",
        "Preempted to accommodate a workload (UID: w, JobUID: UNKNOWN) due to reclamation within the cohort; "
        "preemptor path: /top/low/q; preemptee path: /top/g",
    )
    nameless = decide(queues, [running("r", "g", 1), waiting("w", "q", 1, uid="")])
    assert "(UID: UNKNOWN, JobUID: UNKNOWN)" in nameless[0].message  # type: ignore[operator, union-attr]


def test_who_fits_only_when_victims_of_others_have_ended_waits_for_them() -> None:
    queues = system([queue("q", cell(2), preemption=LOWER)])
    crowd = [running("r", "q", 2), waiting("high", "q", 1, priority=5), waiting("next", "q", 1, priority=1)]
    outcomes = decide(queues, crowd)
    assert evicted(outcomes) == {"r": "InClusterQueue"}
    assert after(outcomes) == {"high": ("team/r",), "next": ("team/r",)}


def test_who_fits_beside_victims_that_still_run_starts_at_once() -> None:
    """`high` waits for `r`, so its own quota isn't used yet."""
    queues = system([queue("q", cell(3), preemption=LOWER)])
    crowd = [running("r", "q", 2), waiting("high", "q", 2, priority=5), waiting("next", "q", 1, priority=1)]
    assert after(decide(queues, crowd)) == {"high": ("team/r",), "next": ()}


def test_victims_of_another_tree_are_not_waited_for() -> None:
    queues = system([queue("p", cell(1), preemption=LOWER), queue("q", cell(2), preemption=LOWER)])
    crowd = [
        running("r", "p", 1),
        running("s", "q", 2),
        waiting("x", "p", 1, priority=5),
        waiting("y", "q", 1, priority=5),
        waiting("z", "q", 1, priority=1),
    ]
    assert after(decide(queues, crowd)) == {"x": ("team/r",), "y": ("team/s",), "z": ("team/s",)}


def test_two_that_need_the_same_victim_in_one_cycle_share_it() -> None:
    queues = system(
        [*(queue(name, cell(1), cohort="c", preemption=ANY) for name in "ab"), queue("g", cell(0), cohort="c")]
    )
    crowd = [running("r", "g", 2), waiting("x", "a", 1), waiting("y", "b", 1, created=2)]
    outcomes = decide(queues, crowd)
    assert [(one.workload, one.preemptor) for one in outcomes if isinstance(one, Evicted)] == [("team/r", "team/x")]
    assert after(outcomes) == {"x": ("team/r",), "y": ("team/r",)}
    assert {one.decided_in_cycle for one in admitted(outcomes).values()} == {1}


def test_two_that_need_one_of_two_victims_each_take_one() -> None:
    queues = system(
        [*(queue(name, cell(1), cohort="c", preemption=ANY) for name in "ab"), queue("g", cell(0), cohort="c")]
    )
    crowd = [running("r", "g", 1, reserved_at=NOW - 1), running("s", "g", 1)]
    outcomes = decide(queues, [*crowd, waiting("x", "a", 1), waiting("y", "b", 1, created=2)])
    pairs = {one.workload: one.preemptor for one in outcomes if isinstance(one, Evicted)}
    assert pairs == {"team/r": "team/x", "team/s": "team/y"}
    assert after(outcomes) == {"x": ("team/r",), "y": ("team/s",)}


def test_what_others_took_in_the_same_cycle_is_tried_for_again_and_then_held() -> None:
    queues = system(
        [queue("a", cell(0), cohort="c"), queue("b", cell(0), cohort="c"), queue("pool", cell(1), cohort="c")]
    )
    outcomes = decide(queues, [waiting("x", "a", 1), waiting("y", "b", 1, created=2)])
    assert list(admitted(outcomes)) == ["x"]
    assert held(outcomes)["y"].message.endswith("insufficient unused quota for cpu in flavor default, 1 more needed")
    assert held(outcomes)["y"].decided_in_cycle == 2


def test_who_borrows_less_comes_before_the_more_urgent_and_who_was_promised_before_both() -> None:
    queues = system([queue("a", cell(0), cohort="c"), queue("b", cell(1), cohort="c")])
    crowd = [waiting("x", "a", 1, priority=9), waiting("y", "b", 1)]
    assert list(admitted(decide(queues, crowd))) == ["y"]
    promised = [msgspec.structs.replace(crowd[0], nominated=True), crowd[1]]
    assert list(admitted(decide(queues, promised))) == ["x"]


def test_what_was_promised_is_not_taken_back() -> None:
    queues = system([queue("guest", cell(0), cohort="c"), queue("owner", cell(1), cohort="c", preemption=ANY)])
    crowd = [
        waiting("visitor", "guest", 1, nominated=True),
        waiting("hopeless", "owner", 5, priority=9),
        waiting("resident", "owner", 1),
    ]
    outcomes = decide(queues, crowd)
    assert list(admitted(outcomes)) == ["visitor"]
    taken = decide(queues, [msgspec.structs.replace(crowd[0], nominated=False), *crowd[1:]])
    assert list(admitted(taken)) == ["resident"]
    assert held(taken)["visitor"].message == (
        "fits only in quota that is reserved for team/resident in ClusterQueue owner"
    )
    assert held(taken)["visitor"].code == "KUEUE_QUOTA_INSUFFICIENT"
    assert held(taken)["visitor"].decided_in_cycle == 1


def test_what_was_refused_beside_a_withdrawn_admission_is_tried_again() -> None:
    """Otherwise its quota stays idle: the next decision would do the same again."""
    queues = system([queue("a", cell(4), cohort="c", preemption=ANY), queue("b", cell(4), cohort="c", preemption=ANY)])
    crowd = [
        waiting("large", "a", 6, created=1),
        waiting("small", "a", 2, created=2),
        *(waiting(f"alike{n}", "a", 2, created=2 + n) for n in (1, 2)),
        waiting("first", "b", 1, created=1),
        waiting("owner", "b", 3, created=2),
    ]
    outcomes = decide(queues, crowd)
    assert sorted(admitted(outcomes)) == ["alike1", "first", "owner", "small"]
    assert "reserved for team/owner" in str(held(outcomes)["large"].message)


def test_behind_a_withdrawn_head_of_a_strict_queue_nothing_is_tried_again() -> None:
    queues = system(
        [
            queue("a", cell(4), cohort="c", preemption=ANY, strategy="StrictFIFO"),
            queue("b", cell(4), cohort="c", preemption=ANY),
        ]
    )
    crowd = [
        waiting("large", "a", 6, created=1),
        waiting("small", "a", 2, created=2),
        waiting("first", "b", 1, created=1),
        waiting("owner", "b", 3, created=2),
    ]
    assert sorted(admitted(decide(queues, crowd))) == ["first", "owner"]


def test_of_equal_admissions_the_last_is_withdrawn() -> None:
    queues = system([queue("a", cell(4), cohort="c", preemption=ANY), queue("b", cell(4), cohort="c", preemption=ANY)])
    crowd = [
        waiting("early", "a", 4, created=1, uid="x"),
        waiting("late", "a", 3, created=2, uid="y"),
        waiting("tiny", "b", 1, created=1),
        waiting("hopeless", "b", 9, created=2),
        waiting("owner", "b", 3, created=3),
    ]
    assert sorted(admitted(decide(queues, crowd))) == ["early", "owner", "tiny"]
    swapped = [msgspec.structs.replace(workload, uid={"x": "y", "y": "x"}.get(workload.uid, "")) for workload in crowd]
    assert sorted(admitted(decide(queues, swapped))) == ["early", "owner", "tiny"]


def test_the_same_request_is_refused_without_another_try() -> None:
    """Quota refused the first; the others of its shape get its message, and a smaller one is still admitted."""
    queues = system([queue("q", cell(3))])
    crowd = [
        running("r", "q", 2),
        *(waiting(f"w{n}", "q", 2, created=n) for n in (1, 2)),
        waiting("small", "q", 1, created=3),
    ]
    outcomes = decide(queues, crowd)
    assert list(admitted(outcomes)) == ["small"]
    first, second = held(outcomes)["w1"], held(outcomes)["w2"]
    assert (first.code, first.message) == (second.code, second.message)
    assert admitted(outcomes)["small"].decided_in_cycle == 2, "the second was not tried"


def test_a_blocked_head_is_let_go_when_others_made_room() -> None:
    """StrictFIFO: the head can't reclaim in the first cycle, since the promised one has taken its quota then."""
    queues = system([queue("q", cell(2), strategy="StrictFIFO"), queue("p", cell(1), strategy="StrictFIFO")])
    crowd = [
        waiting("huge", "q", 3, priority=2),
        waiting("small", "q", 1, priority=1),
        waiting("fits", "p", 1),
    ]
    outcomes = decide(queues, crowd)
    assert list(admitted(outcomes)) == ["fits"]
    assert held(outcomes)["small"].message == "waits behind team/huge, the head of ClusterQueue q (StrictFIFO)"


def visits(owner: dict[str, object], quota: dict[str, int], work: list[Workload], asks: int) -> list[int]:
    """Sizes of visitors from one to four CPUs that are admitted, each alone, beside the strict head of `owner`."""
    made = queue("owner", cohort="c", strategy="StrictFIFO", **owner)  # type: ignore[arg-type]
    queues = system([made, *(queue(name, cell(nominal), cohort="c") for name, nominal in quota.items())])
    head = waiting("head", "owner", asks)
    found = []
    for cpus in (1, 2, 3, 4):
        outcomes = decide(queues, [*work, head, waiting("visitor", "guest", cpus, created=2)])
        assert "head" in held(outcomes)
        found += [cpus] if "visitor" in admitted(outcomes) else []
    return found


def test_a_blocked_head_reserves_what_is_left_of_its_nominal_quota() -> None:
    """Five CPUs, of which three are its own; one of those is used, so two are reserved and two are left."""
    work = [running("own", "owner", 1)]
    assert visits({"quota": cell(3, 0)}, {"guest": 0, "lender": 2}, work, 3) == [1, 2]
    more = [running("own", "owner", 2)]
    assert visits({"quota": cell(3, 0)}, {"guest": 0, "lender": 2}, more, 2) == [1, 2]
    over = [running("own", "owner", 4)]
    assert visits({"quota": cell(3, 1)}, {"guest": 0, "lender": 2}, over, 3) == [1]


def test_a_blocked_head_that_would_borrow_reserves_up_to_its_limit() -> None:
    """Six CPUs; the owner may use three, and uses one."""
    policy = PreemptionPolicy("Never", "LowerPriority", "LowerPriority")
    work = [running("own", "owner", 1)]
    assert visits({"quota": cell(1, 2), "preemption": policy}, {"guest": 0, "lender": 5}, work, 3) == [1, 2, 3]


def test_a_head_that_can_always_reclaim_reserves_nothing() -> None:
    work = [running("r", "guest", 1, evictable=False)]
    assert visits({"quota": cell(2, 0), "preemption": ANY}, {"guest": 0}, work, 2) == [1]
    assert visits({"quota": cell(2, 0)}, {"guest": 0}, work, 2) == []


class Rooms(UnlimitedPlacement):
    """Room for so many pods; results may have to wait for others."""

    def __init__(self, pods: int, code: str = "", waits_for: tuple[str, ...] = ()) -> None:
        self.left, self.code, self.waits_for = pods, code, waits_for
        self._log: list[int] = []

    def checkpoint(self) -> int:
        return len(self._log)

    def rollback(self, checkpoint: int) -> None:
        while len(self._log) > checkpoint:
            self.left += self._log.pop()

    def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult:
        pods = sum(choice.count for choice in choices)
        if pods > self.left:
            return PlacementResult(False, message="no room", code=self.code)
        self.left -= pods
        self._log.append(pods)
        return PlacementResult(True, tuple({"n": choice.count} for choice in choices), after=self.waits_for)


def test_where_nodes_have_no_room_the_placement_says_why() -> None:
    queues = system([queue("q", cell(9))])
    for code, expected in (("SOME_CODE", "SOME_CODE"), ("", "KUEUE_TOPOLOGY_NOFIT")):
        hold = held(decide(queues, [waiting("w", "q", 1, count=3)], placement=Rooms(2, code)))["w"]
        assert (hold.code, hold.message) == (expected, "no room")


def test_nodes_of_workloads_that_end_are_waited_for_as_well() -> None:
    queues = system([queue("q", cell(1), preemption=LOWER)])
    crowd = [running("r", "q", 1), waiting("w", "q", 1, priority=1)]
    outcomes = decide(queues, crowd, placement=Rooms(9, waits_for=("team/z", "team/a")))
    assert after(outcomes) == {"w": ("team/a", "team/r", "team/z")}
    assert admitted(outcomes)["w"].nodes == ({"n": 1},)


def test_workloads_in_no_queue_are_evicted_only_for_one_that_has_its_quota() -> None:
    """Two nodes of two CPUs, on one of them a stranger of two; the queue has quota for three."""
    queues = system([queue("q", cell(3), preemption=LOWER)])
    stranger = msgspec.structs.replace(on("default-0", running("stranger", "", 2)), queue_name="")
    asked: list[str] = []

    def outcomes(*crowd: Workload) -> list[Outcome]:
        asked.clear()
        outside = QuotaNode("", {}, 0)
        candidate = AdmittedWorkload(stranger, outside, {}, 1)
        candidate.add_to_tree()

        def candidates(workload: Workload) -> list[AdmittedWorkload]:
            asked.append(workload.name)
            return list(outside.admitted.values()) if workload.priority else []

        work = [workload for workload in crowd if workload.admission is not None]
        room = FirstFitPlacement({"default-0": 2, "default-1": 2}, [stranger, *work])
        return admit(queues, crowd, CLASSIC, NOW, room, unqueued_candidates=candidates)

    found = outcomes(waiting("w", "q", 1, count=3, priority=1))
    assert evicted(found) == {"stranger": "Priority"}
    assert admitted(found)["w"].after == ("team/stranger",)
    refused = outcomes(waiting("v", "q", 1, count=3))
    assert asked == ["v"]
    assert list(held(refused)) == ["v"]
    assert admitted(outcomes(waiting("one", "q", 1, count=1, priority=1)))
    assert asked == [], "there is room"
    outcomes(on("default-1", running("r", "q", 2, priority=9)), waiting("w", "q", 1, count=2, priority=1))
    assert asked == [], "without quota nobody is preempted"
    mixed = outcomes(on("default-1", running("r", "q", 2)), waiting("w", "q", 1, count=3, priority=1))
    assert evicted(mixed) == {"r": "InClusterQueue", "stranger": "Priority"}


@given(
    st.lists(st.tuples(st.integers(1, 6), st.one_of(st.none(), st.integers(1, 6))), min_size=1, max_size=3),
    st.integers(0, 14),
    st.booleans(),
)
def test_as_many_pods_start_as_fit_reduced_in_proportion(
    drawn: list[tuple[int, int | None]], quota: int, partial: bool
) -> None:
    sets = tuple(PodSet(str(number), count, template(1), least) for number, (count, least) in enumerate(drawn))
    outcomes = decide(
        system([queue("q", cell(quota))]), [waiting("w", "q", 1, pod_sets=sets)], QueueConfig(partial_admission=partial)
    )
    counts = [count for count, _ in drawn]
    deltas = [0 if least is None else max(0, count - least) for count, least in drawn]
    total = sum(deltas) if partial else 0
    ways = (
        [count - (delta * less // total if total else 0) for count, delta in zip(counts, deltas, strict=True)]
        for less in range(total + 1)
    )
    expected = next((way for way in ways if sum(way) <= quota), None)
    found = admitted(outcomes).get("w")
    assert (None if found is None else [choice.count for choice in found.choices]) == expected


def test_fewer_pods_may_also_need_victims() -> None:
    queues = system([queue("q", cell(4), preemption=LOWER)])
    crowd = [running("r", "q", 2), running("high", "q", 2, priority=9)]
    outcomes = decide(queues, [*crowd, waiting("w", "q", 1, count=4, min_count=1, priority=1)])
    assert admitted(outcomes)["w"].choices[0].count == 2
    assert evicted(outcomes) == {"r": "InClusterQueue"}


@pytest.mark.parametrize("config", [CLASSIC, FAIR], ids=["classic", "fair"])
def test_a_kept_cache_changes_nothing(config: QueueConfig) -> None:
    queues = system([queue("a", cell(2), cohort="c", preemption=ANY), queue("b", cell(0), cohort="c")])
    crowd: list[Workload] = [running("r", "b", 1), running("s", "b", 1), waiting("x", "a", 2), waiting("y", "b", 1)]
    cache = QuotaTreeCache()
    for now in range(NOW, NOW + 3):
        kept = admit(queues, crowd, config, now, UnlimitedPlacement(), quota_cache=cache)
        assert kept == admit(queues, crowd, config, now, UnlimitedPlacement())
    assert len(cache.pending_by_id) == 2
    fewer = crowd[1:]
    kept = admit(queues, fewer, config, NOW, UnlimitedPlacement(), quota_cache=cache)
    assert kept == admit(queues, fewer, config, NOW, UnlimitedPlacement())
    assert evicted(kept).keys() == {"s"}


def test_a_namespace_is_selected_by_its_labels_and_its_name() -> None:
    by_name = LabelSelector(match_labels={"kubernetes.io/metadata.name": "team"})
    by_label = LabelSelector(match_labels={"color": "red"})
    queues = system([queue("n", cell(1), namespace_selector=by_name), queue("l", cell(1), namespace_selector=by_label)])
    crowd = [waiting("x", "n", 1), waiting("y", "l", 1)]
    assert list(admitted(decide(queues, crowd))) == ["x"]
    labelled: QueueSystem = msgspec.structs.replace(queues, namespaces={"team": {"color": "red"}})
    assert sorted(admitted(decide(labelled, crowd))) == ["x", "y"]


def test_a_search_that_lost_its_flavor_to_others_goes_on_with_the_next() -> None:
    """Both take the last of `one` in the same cycle; the second goes on with `two`."""
    flavors = {"one": cell(0), "two": cell(0)}
    queues = system(
        [
            queue("a", flavors, cohort="c"),
            queue("b", flavors, cohort="c"),
            queue("pool", {"one": cell(1), "two": cell(1)}, cohort="c", fungibility=Fungibility("TryNextFlavor")),
        ]
    )
    outcomes = decide(queues, [waiting("x", "a", 1), waiting("y", "b", 1, created=2)])
    found = {name: one.choices[0].flavors["cpu"] for name, one in admitted(outcomes).items()}
    assert found == {"x": "one", "y": "two"}


def test_who_would_wait_for_the_victims_of_others_tries_the_next_flavor_first() -> None:
    """On `one` it fits only once `r` has ended; on `two` at once."""
    quotas = {"one": cell(3), "two": cell(1)}
    queues = system([queue("q", quotas, preemption=LOWER)])
    flavors = {"one": ResourceFlavor("one", {"kind": "one"}), "two": ResourceFlavor("two", {"kind": "two"})}
    queues = msgspec.structs.replace(queues, flavors=flavors)
    picky = (PodSet("main", 1, template(2, node_selector={"kind": "one"})),)
    crowd = [
        running("r", "q", 3, flavor="one"),
        waiting("high", "q", 2, priority=5, pod_sets=picky),
        waiting("next", "q", 1, priority=1),
    ]
    outcomes = decide(queues, crowd)
    assert after(outcomes) == {"high": ("team/r",), "next": ()}
    assert admitted(outcomes)["next"].choices[0].flavors == {"cpu": "two"}


def test_what_a_blocked_head_reserves_is_refused_to_others_with_a_reason() -> None:
    queues = system(
        [queue("owner", cell(2, 0), cohort="c", strategy="StrictFIFO"), queue("guest", cell(0), cohort="c")]
    )
    crowd = [running("r", "guest", 1), waiting("head", "owner", 2), waiting("visitor", "guest", 1, created=2)]
    hold = held(decide(queues, crowd))["visitor"]
    assert hold.message == "Workload no longer fits after processing another workload"
    assert hold.code == "KUEUE_QUOTA_INSUFFICIENT"


def test_victims_of_the_first_flavor_are_taken_where_the_next_one_lacks_quota() -> None:
    """`two` has room on its node, but its quota is used by what may not be evicted."""
    quotas = {"one": cell(8), "two": cell(2)}
    queues = system([queue("q", quotas, preemption=LOWER)])

    def on(node: str, workload: Workload) -> Workload:
        assert workload.admission is not None
        part = msgspec.structs.replace(workload.admission.assignments[0], nodes={node: 1})
        admission = msgspec.structs.replace(workload.admission, assignments=(part,))
        return msgspec.structs.replace(workload, admission=admission)

    work = [
        on("one-0", running("r", "q", 2, flavor="one")),
        on("two-0", running("high", "q", 2, flavor="two", priority=9)),
    ]
    room = FirstFitPlacement({"one-0": 2, "two-0": 8}, work)
    outcomes = decide(queues, [*work, waiting("w", "q", 2, priority=1)], placement=room)
    assert evicted(outcomes) == {"r": "InClusterQueue"}
    assert admitted(outcomes)["w"].nodes == ({"one-0": 1},)


def test_room_that_another_took_in_the_same_cycle_is_looked_for_again() -> None:
    queues = system([queue("a", cell(2)), queue("b", cell(2))])
    outcomes = decide(
        queues, [waiting("x", "a", 1, count=2), waiting("y", "b", 1, count=2, min_count=1)], placement=Rooms(3)
    )
    assert {name: one.choices[0].count for name, one in admitted(outcomes).items()} == {"x": 2, "y": 1}


def test_victims_for_one_pod_set_do_not_hide_that_another_has_to_be_reduced() -> None:
    """The first set could have the quota of `r`; the second fits only with one pod."""
    queues = system([queue("q", cell(4), preemption=LOWER)])
    sets = (PodSet("a", 3, template(1)), PodSet("b", 5, template(1), 1))
    outcomes = decide(queues, [running("r", "q", 2), waiting("w", "q", 1, priority=1, pod_sets=sets)])
    assert [choice.count for choice in admitted(outcomes)["w"].choices] == [3, 1]
    assert evicted(outcomes) == {"r": "InClusterQueue"}
