"""Rules beyond Kueue's, on whole objects: quota with placement and with eviction costs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.invariants.objects import (
    EPOCH,
    GROUP,
    POOL,
    QUEUE,
    RACK,
    cluster_queue,
    flavor,
    local_queue,
    node,
    pod,
    pod_group,
    pod_spec,
    topology,
)

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.decision import Bind, Evict
from windlass.model.unstructured import Unstructured
from windlass.planner import plan_objects

GPU = "nvidia.com/gpu"
WITHIN = {"withinClusterQueue": "LowerPriority"}


def decisions(*trees: Unstructured) -> list[object]:
    plan, _ = plan_objects([decode_object(tree) for tree in trees], Settings(), EPOCH + 600)
    return list(plan.decisions)


def evicted(*trees: Unstructured) -> dict[str, str]:
    return {decision.workload: decision.reason for decision in decisions(*trees) if isinstance(decision, Evict)}


def queue(name: str, cpus: int, gpus: int, **spec: Any) -> list[Unstructured]:
    quota = {"cpu": {"nominalQuota": str(cpus)}, GPU: {"nominalQuota": str(gpus)}}
    return [cluster_queue(name, {"gpus": quota}, **spec), local_queue(name, name)]


def work(
    name: str, spec: Unstructured, *, on: str = "", priority: int = 0, started: int = EPOCH, **more: Any
) -> Unstructured:
    spec = {**spec, "priority": priority, **({"nodeName": on} if on else {})}
    made = pod(name, spec, created=started, labels={QUEUE: "team"}, **more)
    if on:
        made["status"] = {"phase": "Running", "startTime": made["metadata"]["creationTimestamp"]}
    return made


def test_whoever_lacks_quota_of_one_resource_may_need_room_of_another() -> None:
    """Small pods use all GPUs; CPUs are free as quota, but on no node."""
    trees = [
        flavor("gpus", {POOL: "gpus"}),
        *queue("team", 100, 2, preemption=WITHIN),
        *(node(f"n{i}", 8, 1, "gpus", "r") for i in range(2)),
        *(work(f"gpu{i}", pod_spec(1, 1), on=f"n{i}", annotations={"windlass.dev/devices": "0"}) for i in (0, 1)),
        *(work(f"cpu{i}", pod_spec(6), on=f"n{i}") for i in range(2)),
        work("high", pod_spec(5, 1), priority=1),
    ]
    gone = evicted(*trees)
    assert len(gone) == 2
    assert {name.removeprefix("team/")[:3] for name in gone} == {"gpu", "cpu"}
    assert len({name[-1] for name in gone}) == 1, "on one node"


@pytest.mark.parametrize(("nominal", "goes"), [(0, True), (1, False)])
def test_a_queue_that_only_borrows_keeps_its_own_order(nominal: int, goes: bool) -> None:
    """With nominal quota, Kueue's rule holds: a workload that needs more may not preempt."""
    trees = [
        flavor("gpus", {POOL: "gpus"}),
        *queue("team", 100, nominal, cohortName="all", preemption=WITHIN),
        *queue("lender", 100, 2 - nominal, cohortName="all"),
        node("n", 64, 2, "gpus", "r"),
        *(work(f"low{i}", pod_spec(1, 1), on="n", annotations={"windlass.dev/devices": str(i)}) for i in (0, 1)),
        work("high", pod_spec(1, 2), priority=1),
    ]
    assert evicted(*trees) == (dict.fromkeys(("team/low0", "team/low1"), "InClusterQueue") if goes else {})


def test_of_two_ways_that_lose_the_same_the_one_with_fewer_pods_is_taken() -> None:
    """Two halves for 100 s and 300 s, or a whole GPU for 200 s."""
    trees = [
        flavor("gpus", {POOL: "gpus"}),
        *queue("team", 100, 2, preemption=WITHIN),
        node("n", 64, 2, "gpus", "r"),
        work(
            "half0",
            pod_spec(1),
            on="n",
            share="0.5",
            started=EPOCH + 500,
            annotations={"windlass.dev/devices": "0"},
        ),
        work(
            "half1",
            pod_spec(1),
            on="n",
            share="0.5",
            started=EPOCH + 300,
            annotations={"windlass.dev/devices": "0"},
        ),
        work("whole", pod_spec(1, 1), on="n", started=EPOCH + 400, annotations={"windlass.dev/devices": "1"}),
        work("high", pod_spec(1, 1), priority=1),
    ]
    assert evicted(*trees) == {"team/whole": "InClusterQueue"}


def test_pods_of_sets_that_lie_across_each_other_are_bound_where_their_own_place_is() -> None:
    """The first and the last shape are a group, the one between them is not."""
    grouped = {"kueue.x-k8s.io/podset-required-topology": RACK, "kueue.x-k8s.io/podset-group-name": "g"}
    alone = {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
    members = [("a", 1, grouped), ("b", 2, alone), ("c", 3, grouped)]
    found = decisions(
        topology("racks", [RACK]),
        flavor("gpus", {POOL: "gpus"}, "racks"),
        *queue("team", 100, 0),
        *(node(f"n{cpus}", cpus, 0, "gpus", "r") for _, cpus, _ in members),
        pod_group("gang", 3, EPOCH),
        *(
            pod(name, pod_spec(cpus), created=EPOCH, labels={GROUP: "gang", QUEUE: "team"}, annotations=notes)
            for name, cpus, notes in members
        ),
    )
    binds = {decision.pod: decision.node for decision in found if isinstance(decision, Bind)}
    assert binds == {"team/a": "n1", "team/b": "n2", "team/c": "n3"}
