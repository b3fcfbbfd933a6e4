"""Worlds at random, and what can happen to them. `rng` is hypothesis' or a seeded one: both drive the same events."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from random import Random

from tests.invariants.objects import (
    GROUP,
    HOSTNAME,
    POOL,
    QUEUE,
    RACK,
    cluster_queue,
    cohort,
    flavor,
    local_queue,
    mig_node,
    node,
    pod,
    pod_group,
    pod_set,
    pod_spec,
    topology,
    with_ill_gpus,
    workload,
)
from tests.invariants.world import World

from windlass.engine import EngineConfig
from windlass.model.unstructured import Unstructured
from windlass.placement.decision_context import GangSettings
from windlass.queueing.config import FINAL_SHARE, INITIAL_SHARE, QueueConfig

GRACE = 60
POOLS = ("big", "small")
SHARES = ("0.5", "0.3", "0.7")
CONFIGS = (
    QueueConfig(),
    QueueConfig(),
    QueueConfig(fair_sharing=True),
    QueueConfig(fair_sharing=True, preemption_strategies=(FINAL_SHARE,)),
    QueueConfig(fair_sharing=True, preemption_strategies=(INITIAL_SHARE,)),
)


def make_world(rng: Random) -> World:
    config = EngineConfig(queues=rng.choice(CONFIGS), gangs=GangSettings(grace_seconds=GRACE))
    world = World(config, termination=rng.choice((0, 0, 5)))
    flavors = list(POOLS[: rng.choice((1, 2))])
    near = rng.random() < 0.3
    if near:
        world.put(topology("near", [RACK, HOSTNAME]))
    for name in flavors:
        # A single flavor may stand for all nodes; two of them part the nodes.
        labels = {POOL: name} if near or len(flavors) > 1 else {}
        world.put(flavor(name, labels, "near" if near else ""))
    for number in range(rng.randint(2, 5)):
        pool = rng.choice(flavors)
        world.put(node(f"n{number}", rng.choice((4, 6, 8)), rng.choice((0, 2, 4)), pool, f"r{number % 2}"))
    if rng.random() < 0.3:
        world.put(mig_node("m0", 8, rng.choice((1, 2)), rng.choice(flavors), "r0"))
    for name, parent in (("left", "root"), ("right", "root"), ("root", "")):
        world.put(cohort(name, parent))
    for number in range(rng.randint(1, 4)):
        name = f"q{number}"
        world.put(random_queue(rng, name, flavors))
        world.put(local_queue(name, name))
    return world


def random_queue(rng: Random, name: str, flavors: list[str]) -> Unstructured:
    inside = rng.choice(("", "left", "right", "root", "root"))
    reclaim = rng.choice(("Never", "LowerPriority", "Any", "Any"))
    borrow = rng.choice(("Never", "Never", "LowerPriority")) if reclaim != "Never" else "Never"
    return cluster_queue(
        name,
        {
            one: {
                "cpu": random_quota(rng, bool(inside), (1, 2, 4, 8)),
                "nvidia.com/gpu": random_quota(rng, bool(inside), (0, 2, 4)),
                "nvidia.com/mig-1g.10gb": random_quota(rng, bool(inside), (2, 4, 8)),
            }
            for one in flavors
        },
        cohortName=inside,
        queueingStrategy=rng.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
        preemption={
            "withinClusterQueue": rng.choice(("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
            "reclaimWithinCohort": reclaim,
            "borrowWithinCohort": {"policy": borrow},
        },
        flavorFungibility={
            "whenCanBorrow": rng.choice(("MayStopSearch", "TryNextFlavor")),
            "whenCanPreempt": rng.choice(("MayStopSearch", "TryNextFlavor")),
        },
        fairSharing={"weight": rng.choice(("1", "2", "0"))},
    )


def random_quota(rng: Random, inside: bool, amounts: tuple[int, ...]) -> Unstructured:
    cell: Unstructured = {"nominalQuota": str(rng.choice(amounts))}
    if inside and rng.random() < 0.5:
        cell["borrowingLimit"] = str(rng.choice((0, 1, 2)))
    if inside and rng.random() < 0.3:
        cell["lendingLimit"] = str(rng.choice((0, 1, 2)))
    return cell


# What can happen


def submit_pod(world: World, rng: Random) -> None:
    spec, share = _shape(world, rng, shares=True)
    spec["priority"] = rng.choice((0, 0, 5))
    queue = _queue(world, rng) if rng.random() < 0.6 else ""
    labels = {QUEUE: queue} if queue else {}
    world.put(pod(f"pod-{world.serial()}", spec, created=_tick(world), share=share, labels=labels))


def submit_gang(world: World, rng: Random) -> None:
    name, queue = f"gang-{world.serial()}", _queue(world, rng) if rng.random() < 0.6 else ""
    size = rng.randint(2, 4)
    spec, share = _shape(world, rng, shares=True)
    spec["priority"] = rng.choice((0, 0, 5))
    minimum = rng.choice((size, rng.randint(1, size)))
    world.put(pod_group(name, minimum, _tick(world), queue))
    labels = {GROUP: name, **({QUEUE: queue} if queue else {})}
    for number in range(size):
        made = pod(f"{name}-{number}", copy.deepcopy(spec), created=world.now, share=share, labels=labels)
        world.put(made)


def submit_workload(world: World, rng: Random) -> None:
    sets = []
    near = ("Topology", "near") in world.queues
    for name in ("leader", "workers")[: rng.choice((1, 1, 2))]:
        count = 1 if name == "leader" else rng.randint(1, 3)
        more: Unstructured = {}
        if count > 1 and rng.random() < 0.3:
            more["minCount"] = count - 1
        if near and rng.random() < 0.6:
            more["topologyRequest"] = rng.choice(
                ({"required": RACK}, {"preferred": RACK}, {"unconstrained": True}, {"required": HOSTNAME})
            )
        sets.append(pod_set(name, count, _shape(world, rng, shares=False)[0], **more))
    tree = workload(
        f"work-{world.serial()}",
        _queue(world, rng),
        sets,
        priority=rng.choice((0, 0, 5)),
        created=_tick(world),
    )
    if rng.random() < 0.3:
        tree["metadata"]["labels"] = {"late-pods": "true"}
    world.put(tree)


def end_something(world: World, rng: Random) -> None:
    if world.everything():
        world.end(rng.choice(world.everything()))


def lose_a_node(world: World, rng: Random) -> None:
    """Rather one with much on it."""
    if len(world.nodes) > 1:
        busy = Counter(pod["spec"].get("nodeName") for pod in world.pods.values())
        world.lose_node(max(rng.choices(sorted(world.nodes), k=2), key=lambda name: busy[name]))


def return_a_node(world: World, rng: Random) -> None:
    if world.away:
        world.return_node(rng.choice(sorted(world.away)))


def hurt_or_heal_a_gpu(world: World, rng: Random) -> None:
    """GPUs fall ill under their pods as well as idle."""
    name = rng.choice(sorted(world.nodes))
    tree = world.nodes[name]
    there = int(tree["status"]["capacity"].get("nvidia.com/gpu", 0))
    if there:
        world.put(with_ill_gpus(tree, sorted(rng.sample(range(there), rng.choice((0, 1, 2)) % (there + 1)))))


def change_a_queue(world: World, rng: Random) -> None:
    """Other quota, other policies, another cohort: everything but its flavors."""
    name = _queue(world, rng)
    group = world.queues["ClusterQueue", name]["spec"]["resourceGroups"][0]
    world.put(random_queue(rng, name, [one["name"] for one in group["flavors"]]))


def stop_or_start_a_queue(world: World, rng: Random) -> None:
    tree = copy.deepcopy(world.queues["ClusterQueue", _queue(world, rng)])
    stopped = tree["spec"].get("stopPolicy", "None") != "None"
    tree["spec"]["stopPolicy"] = "None" if stopped else rng.choice(("Hold", "HoldAndDrain"))
    world.put(tree)


def make_missing_pods(world: World, rng: Random) -> None:
    for key in sorted(world.workloads):
        world.make_pods(key)


def let_time_pass(world: World, rng: Random) -> None:
    world.pass_time(rng.choice((1, 10, GRACE + 1)))


Event = Callable[[World, Random], None]
EVENTS: tuple[tuple[int, Event], ...] = (
    (5, submit_pod),
    (4, submit_gang),
    (5, submit_workload),
    (7, end_something),
    (2, lose_a_node),
    (2, return_a_node),
    (1, hurt_or_heal_a_gpu),
    (1, change_a_queue),
    (1, stop_or_start_a_queue),
    (3, make_missing_pods),
    (3, let_time_pass),
)
"""With how often they happen."""
MOST_AT_ONCE = 14
"""Of what was submitted and has not ended, so that worlds stay small."""


def happen(world: World, rng: Random) -> Event:
    events = [event for weight, event in EVENTS for _ in range(weight)]
    event = rng.choice(events)
    if len(world.everything()) > MOST_AT_ONCE and event in (submit_pod, submit_gang, submit_workload):
        event = end_something
    event(world, rng)
    return event


def _shape(world: World, rng: Random, shares: bool) -> tuple[Unstructured, str]:
    kind = rng.random()
    if shares and rng.random() < (0.5 if "m0" in world.nodes else 0.02):
        return pod_spec(1, mig=rng.choice(("1g.10gb", "3g.40gb", "3g.40gb"))), ""
    if shares and kind < 0.3:
        return pod_spec(1), rng.choice(SHARES)
    if kind < 0.6:
        return pod_spec(1, rng.choice((1, 1, 2))), ""
    return pod_spec(rng.choice((1, 2, 3))), ""


def _queue(world: World, rng: Random) -> str:
    return rng.choice(sorted(name for kind, name in world.queues if kind == "ClusterQueue"))


def _tick(world: World) -> int:
    """No two things are submitted in the same second."""
    world.pass_time(1)
    return world.now
