"""Plays the operator on a world: decides, writes, is killed before or after any write, and waits for what comes
next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.operator.judge import Judge
from tests.operator.world import World

from windlass.operator.decide import decide
from windlass.operator.writes import Write

MOST_ROUNDS = 60
"""Of decisions at one moment that are carried out whole: more is a loop of writes."""
MOST_KILLS = 2000
Killer = Callable[[int], bool]
"""Called before every write with its number: whether the operator is killed there."""


class Play:
    def __init__(self, world: World, stack: str = "h100", kill: Killer = lambda number: False) -> None:
        self.world, self.kill = world, kill
        self.order: Callable[[Sequence[Write]], Sequence[Write]] = lambda writes: writes
        """In which order the writes of a decision reach the server: nothing may rest on it."""
        self.judge = Judge(world, stack)
        self.writes = 0
        self.decisions = 0
        self.is_down = False
        """While it is, nothing is decided."""

    def settle(self) -> int:
        """Decides until there is nothing to write; the time at which it wants to be asked again."""
        rounds = 0
        for _ in range(MOST_KILLS):
            decision = decide(self.world.observe(), self.world.now)
            self.decisions += 1
            done = 0
            for write in self.order(decision.writes):
                self.writes += 1
                if self.kill(self.writes):
                    break  # the rest of this decision is lost; the next replica decides anew
                done += self.judge.apply(write)
            else:
                for question in decision.rooms:
                    self.world.ask_for_room(question)
                rounds += 1
                if not done and not decision.rooms:
                    return decision.wake_at
                if rounds > MOST_ROUNDS:
                    break
        raise AssertionError(f"no rest after {MOST_ROUNDS} decisions: {decision.writes}")

    def run(self, until: Callable[[], bool] = lambda: False, seconds: int = 24 * 3600) -> Play:
        """Until that is true, or so long."""
        end = self.world.now + seconds
        while self.world.now < end and not until():
            wake = end if self.is_down else self.settle()
            if until():
                break
            due = self.world.next_event
            moment = min(wake, end) if due is None else min(wake, end, due)
            self.world.advance_to(max(moment, self.world.now + 1))
        return self

    def until_phase(self, change: str, *phases: str, seconds: int = 24 * 3600) -> str:
        self.run(lambda: self.world.change(change).status.phase in phases, seconds)
        return self.world.change(change).status.phase


def fleet(count: int = 12, version: str = "580.95.05", **stack: Any) -> World:
    """A stack whose nodes are up."""
    world = World()
    for number in range(count):
        world.add_node(f"gpu-{number:03d}", labels={"pool": "h100"})
    spec: dict[str, Any] = {
        "nodes": {"matchLabels": {"pool": "h100"}},
        "driver": {"source": "container", "image": "registry.example.com/driver", "version": version},
        "maxUnavailable": 2,
    }
    stack["repair"] = {"reboot": True, **stack.get("repair", {})}
    world.add("GPUStack", "h100", spec | stack)
    return world


def is_up(world: World) -> bool:
    return all(
        name in world.objects["GPUNode"] and world.gpu_node(name).status.phase == "Ready" and not node.taints
        for name, node in world.nodes.items()
    )


CHANGE: dict[str, Any] = {
    "stack": "h100",
    "driver": {"version": "590.44.01"},
    "waves": [{"nodes": 2, "bake": "10m"}, {"nodes": "50%", "bake": "10m"}, {"nodes": "100%", "bake": "10m"}],
}
