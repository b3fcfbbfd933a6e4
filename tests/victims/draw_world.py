"""Small clusters, drawn from a seed, in which something has to be evicted: queued and unqueued work, borrowers, gangs.

`compare` makes Kubernetes objects of them for the engine, and a model for the exact solver.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

NOW = 100_000
"""Seconds since the world began."""
OWN = "own"
HOST, RACK_LEVEL = "host", "rack"


class Member(NamedTuple):
    """A running pod."""

    node: str
    devices: tuple[int, ...]
    milli: int
    """Of each device."""

    @property
    def gpu_milli(self) -> int:
        return len(self.devices) * self.milli


class Running(NamedTuple):
    name: str
    queue: str
    """Empty: in no queue."""
    priority: int
    members: tuple[Member, ...]
    minimum: int
    """Members without which none of them works; those behind them may be evicted alone."""
    age: int
    checkpoint_age: int | None
    restart: int | None
    budget: str

    @property
    def is_gang(self) -> bool:
        return len(self.members) > 1

    @property
    def seconds_lost(self) -> int:
        return (self.age if self.checkpoint_age is None else self.checkpoint_age) + (self.restart or 0)


class Asking(NamedTuple):
    """The gang, or the pod, for which there is no room."""

    queue: str
    priority: int
    pods: int
    gpus: int
    milli: int
    topology: str
    """Empty, `host` or `rack`: all pods in one of them."""
    age: int
    is_group: bool
    """A PodGroup; else a pod on its own."""


class Policy(NamedTuple):
    within_queue: str = "Never"
    reclaim: str = "Never"
    borrow: str = "Never"
    threshold: int | None = None


class VictimWorld(NamedTuple):
    nodes: dict[str, tuple[str, int]]
    """Name → rack and GPUs."""
    nominal: dict[str, int]
    """Queue → GPUs; all are in one cohort."""
    policy: Policy
    is_fair: bool
    running: tuple[Running, ...]
    asking: Asking
    budgets: dict[str, int]
    """Name → evictions that are allowed."""

    @property
    def kind(self) -> str:
        rules = ("fair sharing" if self.is_fair else "queued") if self.asking.queue else "unqueued"
        return f"{rules}, {'gang' if self.asking.pods > 1 else 'one pod'}"


def draw_world(seed: int, most_running: int = 40) -> VictimWorld:
    rng = Random(seed)
    size = rng.choice((4, 8, 8))
    nodes = {f"n{number}": (f"r{number // 3}", size) for number in range(rng.randint(3, 9))}
    asking = _asking(rng, size, len(nodes))
    queues = [f"q{number}" for number in range(rng.randint(1, 3))]
    budgets = {f"b{number}": rng.randint(0, 2) for number in range(rng.choice((0, 0, 1, 2)))}
    running = _running(rng, nodes, queues, sorted(budgets), most_running)
    used = {name: sum(_gpu_milli(one) for one in running if one.queue == name) // 1000 + 1 for name in (*queues, OWN)}
    # Room for everything that runs in the cohort, of which the guests own less than they use.
    nominal = {name: rng.randint(used[name] // 4, used[name]) for name in queues}
    total = max(sum(used.values()), len(nodes) * size) + rng.choice((0, 0, 2))
    nominal[OWN] = max(0, total - sum(nominal.values()))
    if rng.random() < 0.3:  # the owner would have to borrow, too
        moved = rng.randint(0, nominal[OWN])
        nominal[OWN] -= moved
        nominal[queues[0]] += moved
    return VictimWorld(nodes, nominal, _policy(rng), rng.random() < 0.35, running, asking, budgets)


def _asking(rng: Random, size: int, nodes: int) -> Asking:
    pods = rng.choice((1, 1, 1, 2, 2, 3, 4))
    gpus, milli = rng.choice((1, 2, 4, 4, size, size)), 1000
    if pods == 1 and rng.random() < 0.08:
        gpus, milli = 1, 500
    topology = rng.choice(("", "", RACK_LEVEL, HOST)) if pods > 1 else ""
    if topology == HOST and pods * gpus > size:
        topology = RACK_LEVEL
    if topology == RACK_LEVEL:
        pods = min(pods, 3)
    pods = min(pods, nodes * size // gpus)
    queue = OWN if rng.random() < 0.7 else ""
    return Asking(
        queue,
        rng.choice((10, 50, 100)),
        pods,
        gpus,
        milli,
        topology,
        rng.randint(1, 2_000),
        pods > 1 or rng.random() < 0.4,
    )


def _policy(rng: Random) -> Policy:
    reclaim = rng.choice(("Any", "Any", "Any", "Any", "LowerPriority", "LowerPriority", "Never"))
    borrow = rng.choice(("Never", "LowerPriority")) if reclaim != "Never" else "Never"
    threshold = rng.choice((None, 10)) if borrow != "Never" else None
    within = rng.choice(("Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority"))
    return Policy(within, reclaim, borrow, threshold)


def _running(
    rng: Random, nodes: dict[str, tuple[str, int]], queues: list[str], budgets: list[str], most: int
) -> tuple[Running, ...]:
    free = {name: [1000] * gpus for name, (_, gpus) in nodes.items()}
    kinds = rng.choice(((1,), (1, 1, 1, 2), (1, 1, 2), (1, 2, 4), (2, 4)))
    one_priority = rng.random() < 0.5
    found: list[Running] = []
    tries = 3 * most if rng.random() < 0.8 else rng.randint(most // 2, most)
    for number in range(tries):
        if len(found) == most:
            break
        pods = rng.choice((1, 1, 1, 1, 2, 3))
        gpus, milli = (1, 500) if rng.random() < 0.08 else (rng.choice(kinds), 1000)
        members = _members(rng, free, pods, gpus, milli)
        if not members:
            continue
        age = rng.randint(1, 600) * rng.choice((1, 10, 100))
        found.append(
            Running(
                f"w{number}",
                rng.choice((*queues, *queues, OWN, "")),
                rng.choice((0, 0, 0, 10) if one_priority else (0, 10, 50)),
                members,
                rng.randint(2, len(members)) if len(members) > 2 else len(members),
                age,
                rng.randint(1, age) if rng.random() < 0.3 else None,
                rng.randint(1, 3_600) if rng.random() < 0.3 else None,
                rng.choice(budgets) if budgets and rng.random() < 0.3 else "",
            )
        )
    return tuple(found)


def _members(rng: Random, free: dict[str, list[int]], pods: int, gpus: int, milli: int) -> tuple[Member, ...]:
    """Pods on nodes with room, which they take; none where one finds no room."""
    left = {name: list(devices) for name, devices in free.items()}
    members: list[Member] = []
    for _ in range(pods):
        options = [
            (name, tuple(fitting[:gpus]))
            for name, devices in left.items()
            if len(fitting := [index for index, room in enumerate(devices) if room >= milli]) >= gpus
        ]
        if not options:
            return ()
        name, devices = rng.choice(options)
        for index in devices:
            left[name][index] -= milli
        members.append(Member(name, devices, milli))
    free.update(left)
    return tuple(members)


def _gpu_milli(running: Running) -> int:
    return sum(member.gpu_milli for member in running.members)
