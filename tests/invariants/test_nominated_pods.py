"""Nodes freed for a nominated pod are not taken again by its victims, whatever else waits."""

from __future__ import annotations

from random import Random

import pytest
from tests.invariants.objects import (
    EPOCH,
    GROUP,
    POOL,
    QUEUE,
    cluster_queue,
    flavor,
    local_queue,
    node,
    pod,
    pod_group,
    pod_spec,
)
from tests.invariants.steps import come_to_rest
from tests.invariants.world import World

from windlass.engine import EngineConfig
from windlass.model.unstructured import Unstructured

QUOTA = {"cpu": {"nominalQuota": "64"}, "nvidia.com/gpu": {"nominalQuota": "4"}}


def work(name: str, gpus: int, priority: int, **metadata: object) -> Unstructured:
    return pod(name, pod_spec(1, gpus, priority=priority), created=EPOCH, **metadata)


@pytest.mark.parametrize("is_gang", [False, True])
def test_a_queue_whose_head_is_more_urgent_does_not_take_it_back(is_gang: bool) -> None:
    """The head of the queue can't start; behind it waits the victim of a pod that is in no queue."""
    world = World(EngineConfig(), termination=5)
    for tree in (
        flavor("gpus", {POOL: "gpus"}),
        cluster_queue("team", {"gpus": QUOTA}),
        local_queue("team", "team"),
        node("n", 64, 4, "gpus", "r"),
        work("low", 4, 0, labels={QUEUE: "team"}),
    ):
        world.put(tree)
    come_to_rest(world, Random(1))
    assert world.pods["team/low"]["spec"].get("nodeName") == "n"
    world.put(work("head", 9, 10, labels={QUEUE: "team"}))
    if is_gang:
        world.put(pod_group("gang", 2, EPOCH))
        for number in range(2):
            world.put(work(f"urgent{number}", 2, 5, labels={GROUP: "gang"}))
    else:
        world.put(work("urgent0", 4, 5))
    come_to_rest(world, Random(1))
    assert world.pods["team/urgent0"]["spec"].get("nodeName") == "n"
    assert not world.pods["team/low"]["spec"].get("nodeName")
