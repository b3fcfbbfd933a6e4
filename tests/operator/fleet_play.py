"""A driver change on a thousand nodes, some of which fail, with repairs at the same time, on the virtual clock.

`make operator-fleet` plays it and prints what it came to; a small one is a test. Every write is judged (`judge.py`).
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from functools import partial
from random import Random

from tests.operator.play import Play, fleet, is_up
from tests.operator.world import World

from windlass.model.times import format_duration

OLD, NEW = "580.95.05", "590.44.01"


@dataclass
class Outcome:
    phase: str
    message: str
    seconds: int
    most_unavailable: int
    limit: int
    changed: int
    failed: int
    repairs: dict[str, str]
    gpu_hours_lost: float
    evictions: int
    decisions: int
    writes: int
    wall_seconds: float


def play_fleet(count: int, seed: int, repairs: int = 5, failing: float = 0.02) -> Outcome:
    """Raises an AssertionError where a write of the operator breaks an invariant (`judge.py`)."""
    random, began = Random(seed), time.monotonic()
    limit = "5%"
    world = fleet(count, maxUnavailable=limit, repair={"maxNodes": "2%", "breakerPercent": 20})
    names = sorted(world.nodes)
    for number, name in enumerate(names):
        world.nodes[name].labels["windlass.dev/rack"] = f"rack-{number // 16}"
    play = Play(world).run(lambda: is_up(world), 24 * 3600)
    assert is_up(world)
    bad = random.sample(names, max(1, int(count * failing)))
    for name in bad:
        world.nodes[name].bad_versions = frozenset({NEW})
    _fill(world, random)
    pods = {key: pod.uid for key, pod in world.pods.items()}
    for name in bad:
        world.nodes[name].labels["canary"] = "no"
    change = {
        "stack": "h100",
        "driver": {"version": NEW},
        "canary": {"nodes": {"matchExpressions": [{"key": "canary", "operator": "DoesNotExist"}]}},
        "waves": [{"nodes": 2, "bake": "30m"}, {"nodes": "10%", "bake": "30m"}, {"nodes": "100%", "bake": "30m"}],
        "maxFailed": "5%",
        "maxFaults": repairs,
    }
    world.add("FleetChange", "r590", change)
    for _ in range(repairs):
        node, device = random.choice(names), random.randrange(8)
        way = random.choice(["reset", "reboot"])
        world.later(random.randint(3600, 7200), partial(world.fail_gpu, node, device, "Xid 79", way, way))
    start, play.judge.most_unavailable = world.now, 0
    meter = _Meter(world)
    play.run(lambda: meter.read() or world.change("r590").is_final, 14 * 24 * 3600)
    seconds = world.now - start
    found = world.objects["GPURepair"]
    play.run(lambda: all(not r.is_open or r.status.phase == "Ticket" for r in found.values()), 24 * 3600)
    status = world.change("r590").status
    return Outcome(
        phase=status.phase,
        message=status.message,
        seconds=seconds,
        most_unavailable=play.judge.most_unavailable,
        limit=play.judge.limit,
        changed=status.changed,
        failed=status.failed,
        repairs={name: repair.status.phase for name, repair in world.objects["GPURepair"].items()},
        gpu_hours_lost=meter.gpu_seconds / 3600,
        evictions=sum(world.pods.get(key) is None or world.pods[key].uid != uid for key, uid in pods.items()),
        decisions=play.decisions,
        writes=play.writes,
        wall_seconds=time.monotonic() - began,
    )


def _fill(world: World, random: Random) -> None:
    """Work on two thirds of the nodes, in gangs of four nodes."""
    names = sorted(world.nodes)
    for number, name in enumerate(names):
        if random.random() < 0.66:
            world.add_pod(f"team/p{number}", name, set(range(4)), f"team/gang-{number // 4}")


class _Meter:
    """GPU seconds that no work could have: nodes out of service, times their GPUs."""

    def __init__(self, world: World) -> None:
        self._world, self._at, self._out = world, world.now, 0
        self.gpu_seconds = 0

    def read(self) -> bool:
        self.gpu_seconds += (self._world.now - self._at) * self._out
        self._at = self._world.now
        self._out = sum(node.gpus for node in self._world.nodes.values() if node.taints or not node.allocatable)
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found = play_fleet(given.count, given.seed)
    print(f"{found.phase} after {format_duration(found.seconds)}: {found.message}")
    print(f"nodes changed {found.changed}, failed and gone back {found.failed}, of {given.count}")
    print(f"unavailable at most {found.most_unavailable}, allowed {found.limit}")
    print(f"repairs {sorted(found.repairs.values())}; pods evicted {found.evictions}")
    print(f"GPU hours out of service {found.gpu_hours_lost:.0f}")
    print(f"{found.decisions} decisions, {found.writes} writes in {found.wall_seconds:.0f} s")


if __name__ == "__main__":
    main()
