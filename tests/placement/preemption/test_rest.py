"""Preemption by priority comes to rest: every round of evictions climbs, and what is evicted can't take anything back.

Small worlds of lone pods and gangs without queues, whose evicted pods come back and wait. Nothing is submitted after
the start and nothing ends.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.preemption.parks import NOW, gpu_node, pod, pod_group

from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineConfig, decide
from windlass.model.plan import Plan

MOST_ROUNDS = 30
LEVELS = (0, 1, 5, 10)


class World:
    """Pods as they are; evicted ones come back after `termination` rounds."""

    def __init__(self, rng: Random) -> None:
        self.termination = rng.choice([0, 0, 1, 2])
        self.now = NOW
        self.nodes = [gpu_node(f"n{at}", rng.choice([2, 4, 8])) for at in range(rng.randint(1, 4))]
        self.groups = []
        self.pods: dict[str, Any] = {}
        self.leaving: dict[str, int] = {}
        for number in range(rng.randint(2, 9)):
            priority, gpus = rng.choice(LEVELS), rng.choice([1, 2, 4])
            members = rng.choice([1, 1, 2, 3])
            group = f"g{number}" if members > 1 else ""
            self.groups += [pod_group(group, members)] if group else []
            for at in range(members):
                name = f"{group}-{at}" if group else f"p{number}"
                self._put(pod(name, gpus, priority, age=rng.randint(1, 400) * 60, group=group))

    def _put(self, one: Any) -> None:
        self.pods[one.key] = one

    def decide(self) -> Plan:
        store = Store()
        store.apply(Put(one) for one in (*self.nodes, *self.groups, *self.pods.values()))
        return decide(store.snapshot(self.now), EngineConfig(), self.now)

    def carry_out(self, plan: Plan) -> bool:
        """Whether anything has changed."""
        self.now += 60
        before = dict(self.pods)
        for evict in plan.evicts:
            for key in evict.pods:
                self.leaving.setdefault(key, self.termination)
                self._change(key, deletion_timestamp="2026-01-01T10:00:00Z")
        self._go()
        gone = {one.workload for one in plan.evicts}
        for bind in plan.binds:
            waits = self.termination and gone.intersection(bind.after)
            if not waits and not self._is_leaving(bind.after):
                spec = msgspec.structs.replace(self.pods[bind.pod].spec, node_name=bind.node)
                self._put(msgspec.structs.replace(self.pods[bind.pod], spec=spec))
        return self.pods != before or bool(self.leaving)

    def _is_leaving(self, names: tuple[str, ...]) -> bool:
        return any(key == name or key.startswith(f"{name}-") for key in self.leaving for name in names)

    def _change(self, key: str, **meta: Any) -> None:
        one = self.pods[key]
        self._put(msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, **meta)))

    def _go(self) -> None:
        for key, rounds in list(self.leaving.items()):
            if rounds:
                self.leaving[key] = rounds - 1
                continue
            del self.leaving[key]
            spec = msgspec.structs.replace(self.pods[key].spec, node_name="")
            self._put(msgspec.structs.replace(self.pods[key], spec=spec))
            self._change(key, deletion_timestamp="")

    def used(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for one in self.pods.values():
            if one.spec.node_name:
                gpus = int(one.spec.containers[0].resources.limits["nvidia.com/gpu"])
                total[one.spec.node_name] = total.get(one.spec.node_name, 0) + gpus
        return total

    def running(self) -> list[int]:
        """How many pods run at each level, the highest first: what preemption may only make larger, in this order."""
        there = [one.spec.priority for one in self.pods.values() if one.spec.node_name]
        return [there.count(level) for level in reversed(LEVELS)]


def live(world: World) -> int:
    """Rounds until nothing changes."""
    room = {node.name: int(node.status.allocatable["nvidia.com/gpu"]) for node in world.nodes}
    for turn in range(MOST_ROUNDS):
        plan = world.decide()
        priority = {one.key: one.spec.priority for one in world.pods.values()}
        for evict in plan.evicts:
            mine = max(priority[key] for key in evict.pods)
            theirs = [value for key, value in priority.items() if _is_of(key, evict.for_workload)]
            assert mine < min(theirs), "only lower priorities go"
        before = world.running()
        changed = world.carry_out(plan)
        if not world.termination and plan.evicts:
            assert world.running() > before, "an eviction decreases no more than it increases, by level"
        assert all(gpus <= room[name] for name, gpus in world.used().items())
        if not changed:
            return turn
    raise AssertionError("evictions go round in circles")


def _is_of(pod_key: str, workload: str) -> bool:
    return pod_key == workload or pod_key.startswith(f"{workload}-")


@given(st.randoms(use_true_random=False))
def test_worlds_without_queues_come_to_rest(rng: Random) -> None:
    live(World(rng))


@pytest.mark.parametrize("seed", range(30))
def test_at_rest_nobody_waits_who_could_have_a_lower_place(seed: int) -> None:
    """The highest level that waits finds no node even without all that is below it, pod by pod."""
    world = World(Random(seed))
    live(world)
    plan = world.decide()
    assert not plan.evicts
    assert not plan.binds


def test_the_same_plan_whatever_the_order_of_the_objects() -> None:
    for seed in range(20):
        world = World(Random(seed))
        world.carry_out(world.decide())
        first = world.decide()
        keys = list(world.pods)
        Random(seed).shuffle(keys)
        world.pods = {key: world.pods[key] for key in keys}
        other = world.decide()
        assert sorted(first.binds, key=str) == sorted(other.binds, key=str)
        assert sorted(first.evicts, key=str) == sorted(other.evicts, key=str)
