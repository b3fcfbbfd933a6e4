"""A gang finds a place whenever there is one: small clusters, compared with CP-SAT."""

from __future__ import annotations

from random import Random

import pytest
from tests.invariants.exact import Node, Shape, cheapest
from tests.invariants.objects import (
    DEVICES,
    GROUP,
    HOSTNAME,
    POOL,
    RACK,
    cluster_queue,
    flavor,
    local_queue,
    node,
    pod,
    pod_group,
    pod_set,
    pod_spec,
    topology,
    workload,
)
from tests.invariants.world import World

from windlass.engine import EngineConfig
from windlass.model.unstructured import Unstructured

CASES = 60
TOPOLOGIES = {"rack": {"required": RACK}, "host": {"required": HOSTNAME}, "": {"unconstrained": True}}
SHAPES = (
    Shape(1, 1, 1000),
    Shape(1, 2, 1000),
    Shape(2, 0, 0),
    Shape(3, 1, 1000),
    Shape(1, 0, 0),
    Shape(4, 0, 0),
)
SHARES = (Shape(1, 1, 500), Shape(1, 1, 300), Shape(1, 1, 700))


def half_full(rng: Random) -> tuple[World, list[Node]]:
    """Nodes on which something runs already."""
    world, found = World(EngineConfig()), []
    for number in range(rng.randint(2, 4)):
        name, cpus, gpus = f"n{number}", rng.randint(3, 8), rng.choice((0, 2, 3, 4))
        rack = f"r{number % 2}"
        world.put(node(name, cpus, gpus, "all", rack))
        free = [1000] * gpus
        for index in range(gpus):
            share = rng.choice(("", "", "0.5", "0.3"))
            if share and cpus > 1:
                made = pod(f"there-{name}-{index}", pod_spec(1, nodeName=name), created=world.now, share=share)
                made["metadata"]["annotations"][DEVICES] = str(index)
                world.put(made)
                free[index] -= int(float(share) * 1000)
                cpus -= 1
        found.append(Node(name, rack, cpus, tuple(free)))
    return world, found


def _spec(shape: Shape) -> Unstructured:
    return pod_spec(shape.cpus, shape.gpus if shape.milli == 1000 else 0)


def _share(shape: Shape) -> str:
    return f"0.{shape.milli // 100}" if 0 < shape.milli < 1000 else ""


@pytest.mark.parametrize("seed", range(CASES))
def test_a_gang_is_placed_whenever_that_is_possible(seed: int) -> None:
    rng = Random(seed)
    world, nodes = half_full(rng)
    sets = [(rng.choice(SHAPES + SHARES), rng.randint(1, 3), "") for _ in range(rng.choice((1, 2, 3)))]
    total = sum(count for _, count, _ in sets)
    world.put(pod_group("gang", total, world.now))
    for number, (shape, count, _) in enumerate(sets):
        for member in range(count):
            made = pod(f"g{number}-{member}", _spec(shape), created=world.now, share=_share(shape))
            made["metadata"]["labels"] = {GROUP: "gang"}
            world.put(made)
    plan = world.plan()
    assert len(plan.binds) == (0 if cheapest(nodes, sets) is None else total)


@pytest.mark.parametrize("seed", range(CASES))
def test_a_gang_that_has_to_be_close_is_placed_whenever_that_is_possible(seed: int) -> None:
    rng = Random(seed)
    world, nodes = half_full(rng)
    world.put(topology("near", [RACK, HOSTNAME]))
    world.put(flavor("all", {POOL: "all"}, "near"))
    quota = {"nominalQuota": "1000"}
    world.put(cluster_queue("q", {"all": {"cpu": quota, "nvidia.com/gpu": quota}}))
    world.put(local_queue("q", "q"))
    close = rng.choice(("rack", "host"))
    sets = [(rng.choice(SHAPES), rng.randint(1, 4), close) for _ in range(rng.choice((1, 1, 2)))]
    made = [
        pod_set(f"set-{number}", count, _spec(shape), topologyRequest=TOPOLOGIES[wanted])
        for number, (shape, count, wanted) in enumerate(sets)
    ]
    world.put(workload("gang", "q", made, priority=0, created=world.now))
    plan = world.plan()
    assert len(plan.admits) == (0 if cheapest(nodes, sets) is None else 1)
