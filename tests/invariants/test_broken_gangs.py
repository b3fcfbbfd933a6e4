"""A gang that falls below its minimum is completed within its grace, or stopped whole when it is over."""

from __future__ import annotations

from random import Random

import pytest
from tests.invariants.draws import GRACE
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
from tests.invariants.steps import come_to_rest, step
from tests.invariants.world import World

from windlass.engine import EngineConfig
from windlass.placement.decision_context import GangSettings

QUOTA = {"cpu": {"nominalQuota": "64"}, "nvidia.com/gpu": {"nominalQuota": "8"}}


@pytest.mark.parametrize("queue", ["", "team"])
@pytest.mark.parametrize("returns", [True, False])
@pytest.mark.parametrize("termination", [0, 5])
def test_one_of_two_nodes_is_lost(queue: str, returns: bool, termination: int) -> None:
    rng = Random(1)
    world = World(EngineConfig(gangs=GangSettings(grace_seconds=GRACE)), termination)
    for tree in (
        flavor("gpus", {POOL: "gpus"}),
        cluster_queue("team", {"gpus": QUOTA}),
        local_queue("team", "team"),
        node("n0", 8, 4, "gpus", "r"),
        node("n1", 8, 4, "gpus", "r"),
        pod_group("gang", 2, EPOCH, queue),
    ):
        world.put(tree)
    labels = {GROUP: "gang", **({QUEUE: queue} if queue else {})}
    for number in range(2):
        world.put(pod(f"m{number}", pod_spec(1, 4), created=EPOCH, labels=labels))
    come_to_rest(world, rng)
    assert world.running("team/gang") == 2
    world.lose_node("n1")
    step(world, rng)
    assert world.running("team/gang") == 1, "it has its grace"
    world.pass_time(GRACE // 2)
    if returns:
        world.return_node("n1")
        step(world, rng)
        assert world.running("team/gang") == 2
        return
    step(world, rng)
    assert world.running("team/gang") == 1
    world.pass_time(GRACE)
    step(world, rng)
    world.pass_time(termination)
    assert world.running("team/gang") == 0
