"""Preemption by priority terminates: every round of evictions runs more pods of high priority, and evicted pods evict
nothing in return.

Small clusters of single pods and gangs without queues, whose evicted pods come back and wait. Nothing is submitted
after the start and nothing ends.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.preemption.preemption_cases import NOW, gpu_node, pod, pod_group

from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineConfig, decide
from windlass.model.plan import Plan

MOST_ROUNDS = 30
LEVELS = (0, 1, 5, 10)


class SimulatedCluster:
    """Pods of a cluster; evicted ones come back after `termination` rounds."""

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

    def _put(self, changed: Any) -> None:
        self.pods[changed.key] = changed

    def decide(self) -> Plan:
        store = Store()
        store.apply(Put(object_) for object_ in (*self.nodes, *self.groups, *self.pods.values()))
        return decide(store.snapshot(self.now), EngineConfig(), self.now)

    def execute(self, plan: Plan) -> bool:
        """Execute the plan; true if anything has changed."""
        self.now += 60
        before = dict(self.pods)
        for evict in plan.evicts:
            for key in evict.pods:
                self.leaving.setdefault(key, self.termination)
                self._change(key, deletion_timestamp="2026-01-01T10:00:00Z")
        self._finish_terminations()
        evicted = {evict.workload for evict in plan.evicts}
        for bind in plan.binds:
            waits = self.termination and evicted.intersection(bind.after)
            if not waits and not self._is_leaving(bind.after):
                spec = msgspec.structs.replace(self.pods[bind.pod].spec, node_name=bind.node)
                self._put(msgspec.structs.replace(self.pods[bind.pod], spec=spec))
        return self.pods != before or bool(self.leaving)

    def _is_leaving(self, names: tuple[str, ...]) -> bool:
        return any(key == name or key.startswith(f"{name}-") for key in self.leaving for name in names)

    def _change(self, key: str, **meta: Any) -> None:
        current = self.pods[key]
        self._put(msgspec.structs.replace(current, metadata=msgspec.structs.replace(current.metadata, **meta)))

    def _finish_terminations(self) -> None:
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
        for running in self.pods.values():
            if running.spec.node_name:
                gpus = int(running.spec.containers[0].resources.limits["nvidia.com/gpu"])
                total[running.spec.node_name] = total.get(running.spec.node_name, 0) + gpus
        return total

    def running(self) -> list[int]:
        """Running pods at each priority, the highest first: preemption must only increase it, as lists compare."""
        priorities = [placed.spec.priority for placed in self.pods.values() if placed.spec.node_name]
        return [priorities.count(level) for level in reversed(LEVELS)]


def live(cluster: SimulatedCluster) -> int:
    """Execute plans until nothing changes; returns the number of rounds."""
    capacity = {node.name: int(node.status.allocatable["nvidia.com/gpu"]) for node in cluster.nodes}
    for turn in range(MOST_ROUNDS):
        plan = cluster.decide()
        priority = {placed.key: placed.spec.priority for placed in cluster.pods.values()}
        for evict in plan.evicts:
            mine = max(priority[key] for key in evict.pods)
            theirs = [value for key, value in priority.items() if _is_of(key, evict.for_workload)]
            assert mine < min(theirs), "only lower priorities go"
        before = cluster.running()
        changed = cluster.execute(plan)
        if not cluster.termination and plan.evicts:
            assert cluster.running() > before, "an eviction decreases no more than it increases, by level"
        assert all(gpus <= capacity[name] for name, gpus in cluster.used().items())
        if not changed:
            return turn
    raise AssertionError("evictions go round in circles")


def _is_of(pod_key: str, workload: str) -> bool:
    return pod_key == workload or pod_key.startswith(f"{workload}-")


@given(st.randoms(use_true_random=False))
def test_worlds_without_queues_come_to_rest(rng: Random) -> None:
    live(SimulatedCluster(rng))


@pytest.mark.parametrize("seed", range(30))
def test_at_rest_nobody_waits_who_could_have_a_lower_place(seed: int) -> None:
    """The highest level that waits finds no node even without all that is below it, pod by pod."""
    cluster = SimulatedCluster(Random(seed))
    live(cluster)
    plan = cluster.decide()
    assert not plan.evicts
    assert not plan.binds


def test_the_same_plan_whatever_the_order_of_the_objects() -> None:
    for seed in range(20):
        cluster = SimulatedCluster(Random(seed))
        cluster.execute(cluster.decide())
        first = cluster.decide()
        keys = list(cluster.pods)
        Random(seed).shuffle(keys)
        cluster.pods = {key: cluster.pods[key] for key in keys}
        other = cluster.decide()
        assert sorted(first.binds, key=str) == sorted(other.binds, key=str)
        assert sorted(first.evicts, key=str) == sorted(other.evicts, key=str)
