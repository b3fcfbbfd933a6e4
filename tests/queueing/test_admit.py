"""Quota, order, flavors and victims, one rule at a time."""

from __future__ import annotations

import msgspec
from tests.queueing.builders import (
    NOW,
    admitted,
    cell,
    decide,
    evicted,
    held,
    queue,
    running,
    system,
    waiting,
)

from windlass.model.meta import LabelSelector
from windlass.model.node import Taint
from windlass.model.queue import (
    Cohort,
    Fungibility,
    LocalQueue,
    PreemptionPolicy,
    QueueSystem,
    ResourceFlavor,
)
from windlass.model.workload import PodSet, Workload
from windlass.queueing.config import QueueConfig, UsageHistoryConfig
from windlass.queueing.outcome import Admitted

RECLAIM = PreemptionPolicy(reclaim_within_cohort="Any")
BY_PRIORITY = PreemptionPolicy(within_cluster_queue="LowerPriority")
FAIR = QueueConfig(fair_sharing=True)
STOPS = Fungibility("MayStopSearch", "MayStopSearch")


def test_quota_is_given_by_priority_then_age() -> None:
    queues = system([queue("q", cell(2))])
    crowd = [
        waiting("late", "q", 1, created=3),
        waiting("first", "q", 1, created=1),
        waiting("urgent", "q", 1, priority=1, created=9),
    ]
    outcomes = decide(queues, crowd)
    assert list(admitted(outcomes)) == ["urgent", "first"]
    assert held(outcomes)["late"].code == "KUEUE_QUOTA_INSUFFICIENT"
    assert held(outcomes)["late"].message == (
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed"
    )


def test_strict_queue_waits_behind_its_head_and_best_effort_does_not() -> None:
    crowd = [waiting("big", "q", 3), waiting("small", "q", 1, created=2), running("old", "q", 1)]
    strict = decide(system([queue("q", cell(3), strategy="StrictFIFO")]), crowd)
    assert admitted(strict) == {}
    assert held(strict)["small"].code == "QUEUE_BEHIND_HEAD"
    assert "team/big" in held(strict)["small"].message
    assert list(admitted(decide(system([queue("q", cell(3))]), crowd))) == ["small"]


def test_a_request_above_the_maximum_says_so() -> None:
    outcomes = decide(system([queue("q", cell(2))]), [waiting("huge", "q", 3)])
    assert "current podset request (3) > maximum capacity (2)" in held(outcomes)["huge"].message


def test_borrowing_stops_at_both_limits() -> None:
    for borrowing, lending, expected in [(None, None, 1), (0, None, 0), (None, 0, 0), (1, 1, 1)]:
        queues = system(
            [queue("q", cell(1, borrowing), cohort="c"), queue("lender", cell(1, None, lending), cohort="c")]
        )
        assert len(admitted(decide(queues, [waiting("w", "q", 2)]))) == expected, (borrowing, lending)


def test_quota_of_a_cohort_is_shared_by_all_below_it() -> None:
    pool = queue("unused", cell(2)).resource_groups
    queues = system(
        [queue("a", cell(0), cohort="below"), queue("b", cell(0), cohort="above")],
        [Cohort("below", "above"), Cohort("above", "", pool)],
    )
    outcomes = decide(queues, [waiting("one", "a", 1), waiting("two", "b", 1), waiting("three", "b", 1, created=2)])
    assert sorted(admitted(outcomes)) == ["one", "two"]


def test_lent_quota_is_reclaimed_with_as_few_victims_as_needed() -> None:
    queues = system([queue("owner", cell(3), cohort="c", preemption=RECLAIM), queue("guest", cell(0), cohort="c")])
    guests = [running(f"g{index}", "guest", 1, reserved_at=NOW - index) for index in range(3)]
    outcomes = decide(queues, [*guests, waiting("w", "owner", 2)])
    assert evicted(outcomes) == {"g0": "InCohortReclamation", "g1": "InCohortReclamation"}
    assert admitted(outcomes)["w"].after == ("team/g0", "team/g1")


def test_the_one_that_loses_least_work_goes() -> None:
    queues = system([queue("q", cell(3), preemption=BY_PRIORITY)])

    def busy(name: str, checkpoint: int, reserved_at: int) -> Workload:
        made = running(name, "q", 1, reserved_at=reserved_at, checkpoint_at=checkpoint)
        pod_set = msgspec.structs.replace(made.pod_sets[0], pod_keys=(f"team/{name}-0",))
        return msgspec.structs.replace(made, pod_sets=(pod_set,))

    crowd = [busy("saved", NOW - 5, NOW - 900), busy("new", 0, NOW - 100), busy("old", 0, NOW - 800)]
    outcomes = decide(queues, [*crowd, waiting("w", "q", 1, priority=1)])
    assert evicted(outcomes) == {"saved": "InClusterQueue"}
    capped = decide(queues, [*crowd, waiting("w", "q", 1, priority=1)], QueueConfig(lost_seconds_cap=1))
    assert evicted(capped) == {"new": "InClusterQueue"}
    # A cap of its own queue counts in place of the general one.
    own = decide(queues, [*crowd, waiting("w", "q", 1, priority=1)], QueueConfig(lost_seconds_caps={"q": 1}))
    assert evicted(own) == {"new": "InClusterQueue"}


def test_a_declared_restart_counts_within_the_cap_and_a_configured_one_besides() -> None:
    config = QueueConfig(lost_seconds_cap=100, restart_seconds=30)
    assert config.seconds_lost(20, None) == 50
    assert config.seconds_lost(500, None) == 130
    assert config.seconds_lost(20, 60) == 80
    assert config.seconds_lost(20, 10_000) == 100


def test_who_may_not_be_evicted() -> None:
    queues = system([queue("q", cell(1), preemption=BY_PRIORITY)])
    ask = waiting("w", "q", 1, priority=1)
    assert evicted(decide(queues, [running("r", "q", 1), ask]))
    assert not evicted(decide(queues, [running("r", "q", 1, evictable=False), ask]))
    assert not evicted(decide(queues, [running("r", "q", 1)], QueueConfig(min_run_seconds=101)))
    assert not evicted(decide(queues, [running("r", "q", 1), ask], QueueConfig(min_run_seconds=101)))
    gated = msgspec.structs.replace(ask, preemption_policy="Never")
    assert not evicted(decide(queues, [running("r", "q", 1), gated]))


def test_an_eviction_under_way_is_waited_for_and_not_ordered_again() -> None:
    queues = system([queue("q", cell(1), preemption=BY_PRIORITY)])
    outcomes = decide(queues, [running("r", "q", 1, evicting=True), waiting("w", "q", 1, priority=1)])
    assert evicted(outcomes) == {}
    assert admitted(outcomes)["w"].after == ("team/r",)


def test_a_workload_preempted_too_often_evicts_only_within_its_own_quota() -> None:
    policy = PreemptionPolicy("LowerPriority", "Any", "LowerPriority")
    queues = system([queue("q", cell(1), cohort="c", preemption=policy), queue("lender", cell(1), cohort="c")])
    guest = running("guest", "q", 2)
    tired = msgspec.structs.replace(waiting("w", "q", 2, priority=1), evictions=3)
    assert evicted(decide(queues, [guest, waiting("w", "q", 2, priority=1)]))
    assert not evicted(decide(queues, [guest, tired]))
    assert evicted(decide(queues, [guest, msgspec.structs.replace(waiting("w", "q", 1, priority=1), evictions=3)]))


def test_who_was_promised_room_goes_first() -> None:
    queues = system([queue("q", cell(1))])
    older, promised = waiting("older", "q", 1), waiting("promised", "q", 1, created=5, nominated=True)
    assert list(admitted(decide(queues, [older, promised]))) == ["promised"]


def test_what_was_just_admitted_is_taken_back_not_evicted() -> None:
    """The borrower sorts first, but the owner behind a head that can't be admitted has nominal quota."""
    queues = system([queue("guest", cell(0), cohort="c"), queue("owner", cell(1), cohort="c", preemption=RECLAIM)])
    crowd = [
        waiting("visitor", "guest", 1),
        waiting("hopeless", "owner", 5, priority=9),
        waiting("resident", "owner", 1),
    ]
    outcomes = decide(queues, crowd)
    assert evicted(outcomes) == {}
    assert list(admitted(outcomes)) == ["resident"]
    assert admitted(outcomes)["resident"].after == ()
    assert "team/resident" in held(outcomes)["visitor"].message


def test_a_workload_that_waits_for_its_own_quota_keeps_later_ones_from_borrowing_it() -> None:
    """StrictFIFO queues only: the head reserves its quota in every cycle."""
    owner = queue("owner", cell(2), cohort="c", strategy="StrictFIFO")
    queues = system([owner, queue("guest", cell(0), cohort="c")])
    crowd = [running("r", "guest", 1), waiting("head", "owner", 2), waiting("visitor", "guest", 1)]
    assert admitted(decide(queues, crowd)) == {}
    patient = system([queue("owner", cell(2), cohort="c"), queue("guest", cell(0), cohort="c")])
    assert list(admitted(decide(patient, crowd))) == ["visitor"]


def test_who_loses_a_flavor_to_others_goes_on_with_the_next() -> None:
    """The strict head reserves the last of `one` in every cycle; the other queue's own `two` is free."""
    owner = queue("q", {"one": cell(1), "two": cell(1)}, cohort="c", fungibility=STOPS, preemption=RECLAIM)
    strict = queue("strict", {"one": cell(2), "two": cell(0)}, cohort="c", fungibility=STOPS, strategy="StrictFIFO")
    crowd = [
        running("r", "q", 1, flavor="one"),
        running("s", "strict", 1, flavor="one"),
        waiting("other", "q", 2),
        waiting("head", "strict", 2),
        waiting("w", "q", 1, created=4),
    ]
    outcomes = decide(system([owner, strict]), crowd, FAIR)
    assert admitted(outcomes)["w"].choices[0].flavors == {"cpu": "two"}


def test_flavors_are_tried_in_order_and_by_fungibility() -> None:
    quotas = {"one": cell(1), "two": cell(2)}
    busy = running("busy", "q", 1, flavor="one")
    flavors_of = lambda outcomes: admitted(outcomes)["w"].choices[0].flavors  # noqa: E731
    ask = waiting("w", "q", 1, priority=1)
    going_on = decide(system([queue("q", quotas, preemption=BY_PRIORITY)]), [busy, ask])
    assert flavors_of(going_on) == {"cpu": "two"}
    stops = Fungibility(when_can_preempt="MayStopSearch")
    stopping = decide(system([queue("q", quotas, preemption=BY_PRIORITY, fungibility=stops)]), [busy, ask])
    assert flavors_of(stopping) == {"cpu": "one"}
    assert evicted(stopping) == {"busy": "InClusterQueue"}


def test_an_untolerated_taint_is_named() -> None:
    tainted = ResourceFlavor("default", node_taints=(Taint(key="gpu", value="yes", effect="NoSchedule"),))
    queues = system([queue("q", cell(1))], flavors={"default": tainted})
    hold = held(decide(queues, [waiting("w", "q", 1)]))["w"]
    assert hold.code == "KUEUE_FLAVOR_MISMATCH"
    assert "untolerated taint gpu=yes:NoSchedule in flavor default" in hold.message


def test_fewer_pods_start_where_the_workload_allows_it() -> None:
    queues = system([queue("q", cell(5))])
    outcomes = decide(queues, [waiting("w", "q", 1, count=8, min_count=2)])
    assert admitted(outcomes)["w"].choices[0].count == 5
    assert not admitted(decide(queues, [waiting("w", "q", 1, count=8, min_count=6)]))
    gang = msgspec.structs.replace(waiting("w", "q", 1, count=8), min_pods=3)
    assert admitted(decide(queues, [gang]))["w"].choices[0].count == 5


def test_the_leading_set_of_an_elastic_gang_is_not_reduced() -> None:
    workers = waiting("w", "q", 1, count=6)
    leader = PodSet("leader", 1, workers.pod_sets[0].template)
    gang = msgspec.structs.replace(workers, pod_sets=(leader, workers.pod_sets[0]), min_pods=3)
    start = admitted(decide(system([queue("q", cell(4))]), [gang]))["w"]
    assert [(choice.name, choice.count) for choice in start.choices] == [("leader", 1), ("main", 3)]


def test_fair_sharing_serves_the_smaller_share_first() -> None:
    queues = system([queue(name, cell(1), cohort="c") for name in ("a", "b", "spare")])
    crowd = [
        running("a0", "a", 1),
        running("a1", "a", 1),
        waiting("a2", "a", 1),
        waiting("b0", "b", 1, created=9),
    ]
    assert list(admitted(decide(queues, crowd, FAIR))) == ["b0"]


def test_of_two_borrowers_the_one_with_the_smaller_share_goes_first() -> None:
    queues = system([queue(name, cell(nominal), cohort="c") for name, nominal in (("a", 0), ("b", 0), ("pool", 4))])
    crowd = [
        running("a0", "a", 2),
        running("b0", "b", 1),
        waiting("a1", "a", 1, priority=9),
        waiting("b1", "b", 1),
    ]
    assert list(admitted(decide(queues, crowd, FAIR))) == ["b1"]
    assert list(admitted(decide(queues, crowd))) == ["a1"]


def test_fair_sharing_takes_from_the_larger_share() -> None:
    policy = PreemptionPolicy(reclaim_within_cohort="Any")
    names = ("a", "b", "spare")
    queues = system([queue(name, cell(2), cohort="c", preemption=policy) for name in names])
    greedy = [running(f"a{index}", "a", 1, reserved_at=index) for index in range(4)]
    own = [running("b0", "b", 2)]
    outcomes = decide(queues, [*greedy, *own, waiting("b1", "b", 1)], FAIR)
    assert evicted(outcomes) == {"a3": "InCohortFairSharing"}
    heavy = system(
        [
            queue(name, cell(2), cohort="c", preemption=policy, weight_milli=w)
            for name, w in zip(names, (9000, 1000, 1000), strict=True)
        ]
    )
    assert not evicted(decide(heavy, [*greedy, *own, waiting("b1", "b", 1)], FAIR))


def test_usage_history_puts_the_quiet_queue_first() -> None:
    def lines(consumed: int, weight: int = 1000) -> QueueSystem:
        local = {
            "team/busy": LocalQueue("team/busy", "q", "None", weight, {"cpu": consumed}, NOW - 60),
            "team/quiet": LocalQueue("team/quiet", "q"),
        }
        return system([queue("q", cell(1), usage_based=True)], local_queues=local)

    crowd = [waiting("x", "busy", 1, priority=5), waiting("y", "quiet", 1)]
    history = QueueConfig(history=UsageHistoryConfig(half_life_seconds=60))
    assert list(admitted(decide(lines(8000), crowd, history))) == ["y"]
    assert list(admitted(decide(lines(0), crowd, history))) == ["x"]
    assert list(admitted(decide(lines(0, weight=0), crowd, history))) == ["y"]
    assert list(admitted(decide(lines(8000), crowd))) == ["x"]


def test_queues_that_admit_nothing_say_why() -> None:
    queues = system(
        [
            queue("stopped", cell(1), stop_policy="Hold"),
            queue("odd", cell(1), inactive_reason="spec.x: not implemented"),
            queue("picky", cell(1), namespace_selector=LabelSelector(match_labels={"team": "red"})),
        ],
        namespaces={"team": {"team": "blue"}},
    )
    local = {**queues.local_queues, "team/lost": LocalQueue("team/lost", "nowhere")}
    queues = msgspec.structs.replace(queues, local_queues=local)
    names = ("stopped", "odd", "picky", "lost", "missing")
    holds = held(decide(queues, [waiting(name, name, 1) for name in names]))
    assert {hold.code for hold in holds.values()} == {"KUEUE_QUEUE_MISSING"}
    assert holds["stopped"].message == "ClusterQueue stopped is stopped"
    assert holds["odd"].message == "ClusterQueue odd is inactive: spec.x: not implemented"
    assert (
        holds["picky"].message
        == "Workload namespace doesn't match ClusterQueue selector: namespace team, ClusterQueue picky"
    )
    assert holds["lost"].message == "ClusterQueue nowhere doesn't exist"
    assert holds["missing"].message == "LocalQueue team/missing doesn't exist"


def test_a_queue_that_is_drained_evicts_what_runs() -> None:
    queues = system([queue("q", cell(2), stop_policy="HoldAndDrain"), queue("other", cell(1))])
    outcomes = decide(queues, [running("r", "q", 1), running("s", "other", 1)])
    assert evicted(outcomes) == {"r": "ClusterQueueStopped"}


def test_what_somebody_deactivates_goes() -> None:
    queues = system([queue("q", cell(2))])
    stopped = msgspec.structs.replace(running("r", "q", 1), active=False)
    outcomes = decide(queues, [stopped, running("s", "q", 1)])
    assert evicted(outcomes) == {"r": "Deactivated"}
    leaving = msgspec.structs.replace(stopped, evicting=True)
    assert evicted(decide(queues, [leaving])) == {}, "once is enough"


def test_what_is_in_no_queue_gets_no_answer() -> None:
    assert decide(system([queue("q", cell(1))]), [waiting("w", "", 1)]) == []


def test_a_tree_below_itself_is_switched_off() -> None:
    queues = system([queue("q", cell(1), cohort="a")], [Cohort("a", "b"), Cohort("b", "a")])
    assert "inactive" in held(decide(queues, [waiting("w", "q", 1)]))["w"].message


def test_outcomes_name_queue_and_count() -> None:
    start = decide(system([queue("q", cell(2))]), [waiting("w", "q", 1, count=2)])[0]
    assert isinstance(start, Admitted)
    assert (start.cluster_queue, start.choices[0].count, start.choices[0].flavors) == (
        "q",
        2,
        {"cpu": "default"},
    )


def test_where_admission_blocks_one_is_admitted_at_a_time_and_none_before_it_is_ready() -> None:
    queues = system([queue("q", cell(9)), queue("r", cell(9))])
    crowd = [waiting("a", "q", 1), waiting("b", "q", 1, created=2), waiting("c", "r", 1, created=3)]
    blocks = QueueConfig(blocks_admission=True)
    assert sorted(admitted(decide(queues, crowd))) == ["a", "b", "c"]
    first = decide(queues, crowd, blocks)
    assert list(admitted(first)) == ["a"]
    assert {key: hold.code for key, hold in held(first).items()} == dict.fromkeys(("b", "c"), "ADMISSION_DEFERRED")
    unready = running("a", "q", 1, unready_since=NOW - 5)
    blocked = decide(queues, [unready, *crowd[1:]], blocks)
    assert not admitted(blocked)
    assert all("the pods of team/a are ready" in str(hold.message) for hold in held(blocked).values())
    assert {hold.code for hold in held(blocked).values()} == {"ADMISSION_DEFERRED"}
    assert list(admitted(decide(queues, [running("a", "q", 1), *crowd[1:]], blocks))) == ["b"]
