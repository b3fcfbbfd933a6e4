"""A pending workload, its place in its queue, and what a running one costs to evict."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.queueing.builders import NOW, cell, group, queue, running, system, template, waiting

from windlass.model.queue import LocalQueue, ResourceFlavor
from windlass.model.workload import PodSet, TopologyRequest, Workload
from windlass.queueing.admitted_workload import EvictionCosts, make_admitted_workload, may_be_evicted
from windlass.queueing.config import QueueConfig, UsageHistoryConfig
from windlass.queueing.nominator import reducible_counts
from windlass.queueing.pending_queue import PendingQueue
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import UnlimitedPlacement, hold_message_text
from windlass.queueing.quota_node import AdmittedWorkload, QuotaNode
from windlass.queueing.quota_tree import QuotaTree
from windlass.queueing.usage_history import LocalQueueUsage

FLAVORS = {"default": ResourceFlavor("default")}


def one_queue(**more: object) -> QuotaNode:
    return QuotaTree(system([queue("q", cell(4), **more)])).queues["q"]  # type: ignore[arg-type]


def pending(workload: Workload, node: QuotaNode | None = None) -> PendingWorkload:
    return PendingWorkload(workload, node or one_queue(), UnlimitedPlacement())


@st.composite
def crowds(draw: st.DrawFn) -> list[Workload]:
    return [
        waiting(
            f"w{number}",
            "q",
            1,
            priority=draw(st.integers(0, 2)),
            created=draw(st.integers(1, 3)),
            nominated=draw(st.booleans()),
            gang_running=draw(st.booleans()),
            uid=draw(st.sampled_from(["", "a", "b"])),
        )
        for number in range(draw(st.integers(1, 7)))
    ]


@given(crowds())
def test_a_queue_is_in_order_of_promise_priority_started_gangs_age_and_uid(crowd: list[Workload]) -> None:
    node = one_queue()
    line = PendingQueue(node, None)
    for workload in crowd:
        line.push(pending(workload, node))
    popped = []
    while (head := line.pop()) is not None:
        popped.append(head.key)
    ordered = sorted(crowd, key=lambda one: one.key)
    ordered.sort(key=lambda one: one.uid or one.key)
    ordered.sort(key=lambda one: one.created)
    ordered.sort(key=lambda one: one.gang_running, reverse=True)
    ordered.sort(key=lambda one: one.priority, reverse=True)
    ordered.sort(key=lambda one: one.nominated, reverse=True)
    assert popped == [one.key for one in ordered]


def test_a_head_that_blocks_its_queue_lets_nobody_pass() -> None:
    node = one_queue(queueing_strategy="StrictFIFO")
    line = PendingQueue(node, None)
    assert line.is_strict
    assert not PendingQueue(one_queue(), None).is_strict
    head, other = pending(waiting("head", "q", 1), node), pending(waiting("other", "q", 1), node)
    line.push(other)
    line.blocked_by = head
    assert line.pop() is None
    assert line.pop_ignoring_block() is other
    assert line.pop_ignoring_block() is None


def test_the_local_queue_that_consumed_the_least_goes_first() -> None:
    local = {
        f"team/{name}": LocalQueue(f"team/{name}", "q", consumed={"cpu": consumed})
        for name, consumed in (("busy", 2000), ("quiet", 1000), ("same", 1000))
    }
    history = LocalQueueUsage(UsageHistoryConfig(3600), local, NOW)
    crowd = [
        waiting("b", "busy", 1, priority=9),
        waiting("q1", "quiet", 1, created=5),
        waiting("q2", "quiet", 1, created=1),
        waiting("s", "same", 1, created=3),
    ]
    for by_use, expected in ((True, ["q2", "s", "q1", "b"]), (False, ["b", "q2", "s", "q1"])):
        node = one_queue(usage_based=by_use)
        line = PendingQueue(node, history)
        for workload in crowd:
            line.push(pending(workload, node))
        heads = [line.pop() for _ in range(5)]
        assert [head.workload.name for head in heads[:-1] if head is not None] == expected
        assert heads[-1] is None


def test_pods_are_counted_one_by_one_and_only_where_there_is_quota_for_pods() -> None:
    without = pending(waiting("w", "q", 2))
    assert without.requests == ({"cpu": 2000},)
    node = one_queue(resource_groups=(group({"default": cell(4)}), group({"default": cell(9)}, "pods")))
    assert pending(waiting("w", "q", 2), node).requests == ({"cpu": 2000, "pods": 1},)


def test_the_flavor_search_goes_on_until_all_flavors_were_tried_but_not_for_ever() -> None:
    node = QuotaTree(system([queue("q", {"one": cell(1), "two": cell(1)})])).queues["q"]
    one = pending(waiting("w", "q", 1), node)
    assert not one.has_flavors_left
    one.tried_flavors = ({"cpu": -1},)
    assert not one.has_flavors_left
    one.tried_flavors = ({"cpu": -1}, {"cpu": 0})
    assert one.has_flavors_left
    one.nominations = 2
    assert one.has_flavors_left
    one.nominations = 3
    assert not one.has_flavors_left, "two flavors for one set of pods"
    two_sets = waiting("w", "q", 1, pod_sets=(PodSet("a", 1, template(1)), PodSet("b", 1, template(1))))
    two = pending(two_sets, node)
    two.tried_flavors, two.nominations = ({"cpu": 0},), 4
    assert two.has_flavors_left
    two.nominations = 5
    assert not two.has_flavors_left
    two.pinned_flavors = ({"cpu": "one"},)
    two.reset(UnlimitedPlacement())
    assert (two.nominations, two.tried_flavors, two.pinned_flavors) == (0, (), ())


def test_workloads_on_which_quota_decides_the_same_have_one_shape() -> None:
    node = one_queue()
    base = waiting("w", "q", 1, count=2)
    (pods,) = base.pod_sets
    alike = [base, waiting("other", "q", 1, count=2, created=9), msgspec.structs.replace(base, nominated=True)]
    assert {pending(one, node).shape(FLAVORS) for one in alike} == {0}
    topology = TopologyRequest("required", "rack", group="g")
    grouped = tuple(msgspec.structs.replace(pods, name=name, topology=topology) for name in "ab")
    apart = tuple(msgspec.structs.replace(pods, name=name) for name in "ab")
    different = [
        msgspec.structs.replace(base, priority=1),
        msgspec.structs.replace(base, preemption_policy="Never"),
        msgspec.structs.replace(base, min_pods=1),
        waiting("w", "q", 1, count=3),
        waiting("w", "q", 2, count=2),
        waiting("w", "q", 1, count=2, min_count=1),
        msgspec.structs.replace(base, pod_sets=grouped),
        msgspec.structs.replace(base, pod_sets=apart),
    ]
    assert [pending(one, node).shape(FLAVORS) for one in different] == list(range(1, 9))
    picky = msgspec.structs.replace(base, pod_sets=(PodSet("main", 2, template(1, node_selector={"zone": "b"})),))
    zoned = {"default": ResourceFlavor("default", {"zone": "a"})}
    assert pending(picky, node).shape(zoned) == 9
    known = pending(base, node)
    assert known.shape(FLAVORS) == known.shape(FLAVORS) == 0


def test_pod_sets_of_one_topology_group_belong_together() -> None:
    def named(name: str, group_name: str | None) -> PodSet:
        wish = None if group_name is None else TopologyRequest("required", "rack", group=group_name)
        return PodSet(name, 1, template(1), topology=wish)

    sets = (named("a", "g"), named("b", None), named("c", "h"), named("d", "g"), named("e", ""))
    assert pending(waiting("w", "q", 1, pod_sets=sets)).pod_set_groups == ((0, 3), (1,), (2,), (4,))
    assert pending(waiting("w", "q", 1, count=5)).counts == (5,)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 14))
def test_an_elastic_gang_gives_up_its_last_sets_first_and_keeps_one_pod_of_each(counts: list[int], least: int) -> None:
    sets = tuple(PodSet(str(index), count, template(1)) for index, count in enumerate(counts))
    deltas = reducible_counts(waiting("w", "q", 1, pod_sets=sets, min_pods=least))
    left, spare = list(counts), max(0, sum(counts) - least)
    for index in reversed(range(len(counts))):
        while spare and left[index] > 1:
            left[index] -= 1
            spare -= 1
    assert [count - delta for count, delta in zip(counts, deltas, strict=True)] == left


def test_each_set_may_start_without_what_exceeds_its_minimum() -> None:
    sets = tuple(PodSet(str(number), 5, template(1), minimum) for number, minimum in enumerate((None, 2, 5, 7)))
    assert reducible_counts(waiting("w", "q", 1, pod_sets=sets)) == (0, 3, 0, 0)


def test_settings_without_a_configuration() -> None:
    config = QueueConfig()
    assert (config.lost_seconds_cap, config.max_preemptions_while_borrowing) == (7 * 24 * 3600, 3)
    assert (config.min_run_seconds, config.restart_seconds, config.max_cycles) == (0, 0, 1_000_000)
    assert config.partial_admission
    assert not config.ignore_undeclared
    assert not config.fair_sharing
    assert UsageHistoryConfig() == UsageHistoryConfig(0, 300, {})


def test_a_start_in_the_future_loses_nothing_but_the_restart() -> None:
    config = QueueConfig(lost_seconds_cap=100, restart_seconds=30, lost_seconds_caps={"q": 10})
    assert config.seconds_lost(-50, None) == 30
    assert config.seconds_lost(-50, 7) == 7
    assert config.seconds_lost(1, None) == 31
    assert (config.seconds_lost(50, None, "q"), config.seconds_lost(50, 60, "q")) == (40, 10)


def holding(usage: dict[str, int], **more: object) -> Workload:
    made = running("r", "q", 1, **more)
    assert made.admission is not None
    (part,) = made.admission.assignments
    part = msgspec.structs.replace(part, usage=usage, flavors=dict.fromkeys(usage, "default"))
    pods = (msgspec.structs.replace(made.pod_sets[0], pod_keys=("team/r-0",)),)
    admission = msgspec.structs.replace(made.admission, assignments=(part,))
    return msgspec.structs.replace(made, admission=admission, pod_sets=pods)


def cost(workload: Workload, config: QueueConfig | None = None) -> tuple[int, int]:
    node = one_queue(resource_groups=(group({"default": cell(4)}), group({"default": cell(2)}, "memory")))
    return make_admitted_workload(workload, node, EvictionCosts(config or QueueConfig(), NOW)).eviction_cost


def test_gpus_cost_their_run_time() -> None:
    gpus = {"nvidia.com/gpu": 2500, "cpu": 4000}
    assert cost(holding(gpus)) == (2500 * 100, 0)
    assert cost(holding(gpus, started_at=NOW - 60)) == (2500 * 60, 0)
    assert cost(holding(gpus, started_at=NOW - 60, checkpoint_at=NOW - 7)) == (2500 * 7, 0)
    assert cost(holding(gpus), QueueConfig(restart_seconds=5)) == (2500 * 105, 0)
    assert cost(holding(gpus, restart_seconds=9)) == (2500 * 109, 0)
    assert cost(holding(gpus), QueueConfig(lost_seconds_caps={"q": 11})) == (2500 * 11, 0)


def test_without_gpus_the_largest_part_of_the_quota_counts() -> None:
    assert cost(holding({"cpu": 1000, "memory": 1000})) == (0, 500_000 * 100)
    assert cost(holding({"cpu": 3000, "memory": 1000})) == (0, 750_000 * 100)
    assert cost(holding({"example.com/gone": 3})) == (0, 3_000_000 * 100), "no quota is left of it"
    assert cost(holding({})) == (0, 0)


def test_what_has_no_pods_costs_nothing() -> None:
    assert cost(running("r", "q", 1)) == (0, 0)


def test_costs_are_those_of_the_moment() -> None:
    costs = EvictionCosts(QueueConfig(), NOW)
    one = make_admitted_workload(holding({"nvidia.com/gpu": 1000}), one_queue(), costs)
    assert one.eviction_cost == one.eviction_cost == (100_000, 0)
    costs.reset(QueueConfig(restart_seconds=1), NOW + 10)
    assert one.eviction_cost == (111_000, 0)


def test_usage_adds_up_over_pod_sets() -> None:
    made = holding({"cpu": 1000, "memory": 5})
    assert made.admission is not None
    twice = msgspec.structs.replace(made.admission, assignments=made.admission.assignments * 2)
    (part,) = made.admission.assignments
    bare = msgspec.structs.replace(part, flavors={**part.flavors, "example.com/nic": "default"})
    more = msgspec.structs.replace(twice, assignments=(*twice.assignments, bare))
    one = make_admitted_workload(
        msgspec.structs.replace(made, admission=more), one_queue(), EvictionCosts(QueueConfig(), 0)
    )
    nic = ("default", "example.com/nic")
    assert one.usage == {("default", "cpu"): 3000, ("default", "memory"): 15, nic: 0}
    assert one.reserved_at == NOW - 100


@pytest.mark.parametrize(("least", "goes"), [(0, True), (99, True), (100, True), (101, False)])
def test_a_workload_is_spared_until_it_has_run_for_the_least_time(least: int, goes: bool) -> None:
    config, node = QueueConfig(min_run_seconds=least), one_queue()

    def may(**more: object) -> bool:
        return may_be_evicted(AdmittedWorkload(running("r", "q", 1, **more), node, {}, NOW - 100), node, config, NOW)

    assert may() == goes
    assert may(started_at=NOW - 100) == goes
    assert may(started_at=NOW - 101)
    assert may(evicting=True, evictable=False), "it goes anyway"
    assert not may(evictable=False)
    assumed = AdmittedWorkload(waiting("r", "q", 1, evictable=False), node, {}, NOW)
    assumed.is_assumed = True
    assert may_be_evicted(assumed, node, config, NOW), "it has not started"


def test_an_admission_of_this_decision_has_no_pods_yet() -> None:
    made = holding({"cpu": 1})
    one = AdmittedWorkload(made, one_queue(), {}, NOW)
    assert one.pod_count == 1
    one.is_assumed = True
    assert one.pod_count == 0


def test_unlimited_room_takes_everything() -> None:
    room, work = UnlimitedPlacement(), waiting("w", "q", 2)
    result = room.place(work, (None, None))  # type: ignore[arg-type]
    assert result.ok
    assert result.nodes == ({}, {})
    assert room.could_place(work, (), [])
    assert room.checkpoint() == 0
    assert hold_message_text("why") == "why"
