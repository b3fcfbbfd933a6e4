"""Victims: none where none is needed, none that could be spared, and together hardly more lost work than the least.

Small clusters full of borrowed GPUs whose owner asks for some of them back, compared with CP-SAT. All victims are of
one class (another queue's borrowers of equal priority), so lost work alone decides among them.
"""

from __future__ import annotations

from random import Random

from tests.invariants.exact import Node, Shape, Victim, cheapest
from tests.invariants.objects import (
    DEVICES,
    GPU,
    GROUP,
    QUEUE,
    cluster_queue,
    flavor,
    local_queue,
    node,
    pod,
    pod_group,
    pod_spec,
    stamp,
)
from tests.invariants.world import World

from windlass.engine import EngineConfig

CASES = 150
MOST_ABOVE = 1.05


def borrowed_park(rng: Random) -> tuple[World, list[Node], list[Victim]]:
    """Nodes with GPUs, on which single pods and gangs of two run in quota that their queue has borrowed."""
    world = World(EngineConfig())
    world.pass_time(100_000)
    world.put(flavor("all", {}))
    gpus = [rng.choice((2, 4)) for _ in range(rng.randint(2, 3))]
    total, reclaim = {"nominalQuota": str(sum(gpus))}, {"reclaimWithinCohort": "Any"}
    many, none = {"nominalQuota": "500"}, {"nominalQuota": "0"}
    world.put(cluster_queue("owner", {"all": {"cpu": many, GPU: total}}, cohortName="c", preemption=reclaim))
    world.put(cluster_queue("guest", {"all": {"cpu": many, GPU: none}}, cohortName="c"))
    for name in ("owner", "guest"):
        world.put(local_queue(name, name))
    free = {f"n{number}": [1000] * count for number, count in enumerate(gpus)}
    for number, count in enumerate(gpus):
        world.put(node(f"n{number}", 64, count, "all", "r0"))
    victims = []
    for number in range(rng.randint(3, 7)):
        found = _guest(world, rng, f"guest-{number}", free)
        victims += [found] if found is not None else []
    nodes = [Node(name, "r0", 64, tuple(left)) for name, left in free.items()]
    return world, nodes, victims


def _guest(world: World, rng: Random, name: str, free: dict[str, list[int]]) -> Victim | None:
    share = rng.choice(("", "", "", "0.5"))
    size, each = (1, 1) if share else rng.choice(((1, 1), (1, 2), (2, 1)))
    milli = 500 if share else 1000
    places: list[tuple[str, tuple[int, ...]]] = []
    left = {host: list(devices) for host, devices in free.items()}
    for _ in range(size):
        options = [
            (host, tuple(fit[:each]))
            for host, devices in left.items()
            if len(fit := [index for index, room in enumerate(devices) if room >= milli]) >= each
        ]
        if not options:
            return None
        host, indices = rng.choice(options)
        for index in indices:
            left[host][index] -= milli
        places.append((host, indices))
    free.update(left)
    age = rng.randint(1, 50) * 100
    labels = {QUEUE: "guest"}
    if size > 1:
        world.put(pod_group(name, size, world.now - age, "guest"))
        labels[GROUP] = name
    freed: dict[tuple[str, int], int] = {}
    for member, (host, indices) in enumerate(places):
        spec = pod_spec(1, 0 if share else each, nodeName=host)
        made = pod(
            f"{name}-{member}" if size > 1 else name,
            spec,
            created=world.now - age,
            share=share,
            labels=labels,
        )
        made["metadata"]["annotations"] |= {DEVICES: ",".join(map(str, indices))}
        made["status"] = {"phase": "Running", "startTime": stamp(world.now - age)}
        world.put(made)
        for index in indices:
            freed[host, index] = freed.get((host, index), 0) + milli
    return Victim(f"team/{name}", age * milli * each * size, {}, freed)


def ask_back(world: World, rng: Random) -> tuple[Shape, int]:
    """The owner asks for GPUs: one pod, or a gang."""
    shape, count = Shape(1, rng.choice((1, 2, 2, 4)), 1000), rng.choice((1, 1, 2, 3))
    world.put(pod_group("asking", count, world.now, "owner"))
    for member in range(count):
        labels = {QUEUE: "owner", GROUP: "asking"}
        world.put(pod(f"asking-{member}", pod_spec(1, shape.gpus), created=world.now, labels=labels))
    return shape, count


def test_victims_are_needed_and_cost_little_more_than_the_least() -> None:
    ratios = []
    for seed in range(CASES):
        rng = Random(seed)
        world, nodes, victims = borrowed_park(rng)
        shape, count = ask_back(world, rng)
        sets = [(shape, count, "")]
        least = cheapest(nodes, sets, victims)
        plan = world.plan()
        chosen = {evict.workload for evict in plan.evicts}
        comes = {admit.workload for admit in plan.admits}
        assert comes == (set() if least is None else {"team/asking"}), f"seed {seed}"
        assert bool(chosen) == bool(least), f"seed {seed}"
        if not chosen:
            continue
        gone = [victim for victim in victims if victim.key in chosen]
        for spared in gone:
            rest = [victim for victim in gone if victim is not spared]
            assert cheapest(nodes, sets, rest) is None, f"seed {seed}: {spared.key} goes for nothing"
        assert least is not None
        ratios.append(sum(victim.cost for victim in gone) / least)
    assert len(ratios) > CASES // 4, "hardly any instance needs victims"
    assert sum(ratios) / len(ratios) <= MOST_ABOVE
