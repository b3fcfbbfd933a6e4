"""Quota and placement: workloads are evicted only if the preemptor's pods then fit on nodes."""

from __future__ import annotations

import msgspec
from tests.queueing.builders import admitted, cell, decide, evicted, held, queue, running, system, waiting
from tests.queueing.first_fit_placement import FirstFitPlacement

from windlass.model.queue import Fungibility, PreemptionPolicy
from windlass.model.workload import Workload

BY_PRIORITY = PreemptionPolicy(within_cluster_queue="LowerPriority")


def on(node: str, workload: Workload) -> Workload:
    assert workload.admission is not None
    part = msgspec.structs.replace(workload.admission.assignments[0], nodes={node: workload.pod_sets[0].count})
    return msgspec.structs.replace(workload, admission=msgspec.structs.replace(workload.admission, assignments=(part,)))


def test_nobody_goes_for_a_pod_that_would_not_fit_afterwards() -> None:
    """Two free CPUs on each of four nodes don't fit a pod of eight."""
    queues = system([queue("q", cell(32), preemption=BY_PRIORITY)])
    fixed = [on(f"default-{index}", running(f"fixed{index}", "q", 6, priority=9)) for index in range(4)]
    small = [on(f"default-{index}", running(f"small{index}", "q", 2)) for index in range(4)]
    placement = FirstFitPlacement({f"default-{index}": 8 for index in range(4)}, fixed + small)
    outcomes = decide(queues, [*fixed, *small, waiting("w", "q", 8, priority=5)], placement=placement)
    assert evicted(outcomes) == {}
    assert held(outcomes)["w"].code == "GPU_FRAGMENTED"
    assert all(room == 0 for room in placement.free.values())


def test_fragmented_room_is_cleared_on_one_node_only() -> None:
    queues = system([queue("q", cell(32), preemption=BY_PRIORITY)])
    small = [on(f"default-{index % 4}", running(f"small{index}", "q", 4, reserved_at=index)) for index in range(4)]
    placement = FirstFitPlacement({f"default-{index}": 8 for index in range(4)}, small)
    outcomes = decide(queues, [*small, waiting("w", "q", 8, priority=5)], placement=placement)
    assert evicted(outcomes) == {"small3": "InClusterQueue"}
    start = admitted(outcomes)["w"]
    assert start.nodes == ({"default-3": 1},)
    assert start.after == ("team/small3",)


def test_quota_victims_that_do_not_help_are_exchanged_for_others() -> None:
    """By quota the newest would be evicted, but only the other one runs on a node that is big enough."""
    queues = system([queue("q", cell(6), preemption=BY_PRIORITY)])
    crowd = [
        on("default-big", running("older", "q", 4, reserved_at=1)),
        on("default-tiny", running("newer", "q", 2, reserved_at=2)),
    ]
    placement = FirstFitPlacement({"default-big": 4, "default-tiny": 2}, crowd)
    outcomes = decide(queues, [*crowd, waiting("w", "q", 3, priority=1)], placement=placement)
    assert evicted(outcomes) == {"older": "InClusterQueue"}
    assert admitted(outcomes)["w"].nodes == ({"default-big": 1},)


def test_the_next_flavor_is_preferred_to_preemption_where_the_queue_says_so() -> None:
    quotas = {"one": cell(8), "two": cell(8)}
    crowd = [on("one-0", running("r", "q", 2, flavor="one"))]
    ask = waiting("w", "q", 4, priority=1)

    def outcomes(policy: Fungibility) -> list[object]:
        queues = system([queue("q", quotas, preemption=BY_PRIORITY, fungibility=policy)])
        placement = FirstFitPlacement({"one-0": 4, "two-0": 4}, crowd)
        return list(decide(queues, [*crowd, ask], placement=placement))

    calm = outcomes(Fungibility())
    assert not evicted(calm)  # type: ignore[arg-type]
    assert admitted(calm)["w"].choices[0].flavors == {"cpu": "two"}  # type: ignore[arg-type]
    assert evicted(outcomes(Fungibility(when_can_preempt="MayStopSearch")))  # type: ignore[arg-type]


def too_small_flavor(preemption: PreemptionPolicy) -> list[object]:
    """The first flavor has large nodes and no quota left, the second one quota and nodes that are too small."""
    queues = system([queue("q", {"large": cell(4), "small": cell(8)}, preemption=preemption)])
    crowd = [on("large-0", running("r", "q", 4, flavor="large"))]
    placement = FirstFitPlacement({"small-0": 2, "large-0": 8}, crowd)
    return list(decide(queues, [*crowd, waiting("w", "q", 4, priority=1)], placement=placement))


def test_a_flavor_whose_nodes_are_too_small_keeps_nothing_from_preempting_in_another() -> None:
    assert evicted(too_small_flavor(BY_PRIORITY)) == {"r": "InClusterQueue"}  # type: ignore[arg-type]


def test_a_hold_for_quota_is_not_said_to_be_one_for_the_size_of_nodes() -> None:
    assert held(too_small_flavor(PreemptionPolicy()))["w"].code == "KUEUE_QUOTA_INSUFFICIENT"  # type: ignore[arg-type]


def test_fewer_pods_start_where_nodes_are_the_limit() -> None:
    queues = system([queue("q", cell(32))])
    placement = FirstFitPlacement({"default-0": 4, "default-1": 4}, [])
    outcomes = decide(queues, [waiting("w", "q", 3, count=4, min_count=1)], placement=placement)
    assert admitted(outcomes)["w"].choices[0].count == 2
    assert admitted(outcomes)["w"].nodes == ({"default-0": 1, "default-1": 1},)


def test_what_fits_on_no_node_evicts_nobody_and_blocks_nobody() -> None:
    queues = system([queue("q", cell(64), preemption=BY_PRIORITY)])
    crowd = [on("default-0", running("r", "q", 4))]
    placement = FirstFitPlacement({"default-0": 8}, crowd)
    outcomes = decide(
        queues, [*crowd, waiting("huge", "q", 16, priority=9), waiting("small", "q", 4)], placement=placement
    )
    assert evicted(outcomes) == {}
    assert list(admitted(outcomes)) == ["small"]


def test_two_gangs_never_hold_half_of_the_room_each() -> None:
    queues = system([queue("a", cell(8)), queue("b", cell(8))])
    placement = FirstFitPlacement({"default-0": 4, "default-1": 4}, [])
    outcomes = decide(queues, [waiting("x", "a", 4, count=2), waiting("y", "b", 4, count=2)], placement=placement)
    assert len(admitted(outcomes)) == 1
    assert len(held(outcomes)) == 1


def test_a_hundred_useless_candidates_cost_few_placements() -> None:
    queues = system([queue("q", cell(900), preemption=BY_PRIORITY)])
    crowd = [on(f"default-{index:03}", running(f"r{index:03}", "q", 2)) for index in range(300)]
    placement = FirstFitPlacement({f"default-{index:03}": 3 for index in range(300)} | {"default-x": 0}, crowd)
    placement.capacity["default-x"] = 4
    outcomes = decide(queues, [*crowd, waiting("w", "q", 4, priority=1)], placement=placement)
    assert evicted(outcomes) == {}
    assert placement.tries < 60
