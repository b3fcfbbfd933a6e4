"""The engine's victims in a drawn world, beside the least loss that the exact solver finds."""

from __future__ import annotations

import math
from typing import NamedTuple

from tests.invariants import objects as make
from tests.invariants.objects import DEVICES, EPOCH, GPU, GROUP, NAMESPACE, POOL, QUEUE, RACK, stamp
from tests.victims.draw_world import HOST, NOW, Running, VictimWorld, draw_world
from tests.victims.exact import ExactVictims, Loss, candidates, victim_class

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured
from windlass.planner import plan_objects

REQUIRED = "kueue.x-k8s.io/podset-required-topology"
CHECKPOINT, RESTART = "windlass.dev/last-checkpoint", "windlass.dev/restart-cost"
ASKING = "asking"


class Comparison(NamedTuple):
    seed: int
    kind: str
    candidates: int
    least: Loss | None
    """None: nothing that may be evicted helps; empty: nothing has to go."""
    lost: Loss | None
    """By the engine; None where what is asking doesn't start."""
    bound: int = 0
    """GPU-seconds that are lost at least, as the plan says."""

    @property
    def is_found(self) -> bool:
        return (self.least is None) == (self.lost is None)

    @property
    def is_bound_right(self) -> bool:
        return self.bound * 1000 <= sum((self.least or {}).values())

    @property
    def is_exact(self) -> bool:
        """Whether the plan proves that nothing less could be lost."""
        return bool(self.lost) and self.bound * 1000 + 1000 > sum((self.lost or {}).values())

    @property
    def gap(self) -> float:
        """How much more is lost than has to be: infinite where a class is evicted that could have been spared."""
        if not self.least or self.lost is None:
            return 0.0 if self.is_found and not self.lost else math.inf
        for key in sorted({*self.least, *self.lost}, reverse=True):
            least, lost = self.least.get(key, 0), self.lost.get(key, 0)
            if lost > least:
                return math.inf if not least else self._above(key)
            assert lost == least, f"seed {self.seed}: less is lost than the exact solver allows: {self}"
        return 0.0

    def _above(self, key: tuple[int, int]) -> float:
        """Of all that is lost down to this class."""
        assert self.least is not None
        assert self.lost is not None
        least = sum(amount for other, amount in self.least.items() if other >= key)
        return sum(amount for other, amount in self.lost.items() if other >= key) / least - 1


def compare(seed: int) -> Comparison:
    world = draw_world(seed)
    plan = decide(world)
    starts = {bind.pod for bind in plan.binds} == {
        f"{NAMESPACE}/{ASKING}-{number}" for number in range(world.asking.pods)
    }
    lost = engine_loss(world, plan) if starts else None
    bound = max((evict.least_gpu_seconds for evict in plan.evicts), default=0)
    return Comparison(seed, world.kind, len(candidates(world)), ExactVictims(world).least_loss(), lost, bound)


def decide(world: VictimWorld) -> Plan:
    # The exact solver keeps every budget.
    settings = Settings(fair_sharing=world.is_fair, budgets_yield_to=())
    plan, _ = plan_objects([decode_object(tree) for tree in world_objects(world)], settings, EPOCH + NOW)
    return plan


def engine_loss(world: VictimWorld, plan: Plan) -> Loss:
    by_key = {f"{NAMESPACE}/{running.name}": running for running in world.running}
    found: Loss = {}
    for evict in plan.evicts:
        running = by_key[evict.workload]
        numbers = [int(pod.rpartition("-")[2]) for pod in evict.pods] if running.is_gang else [0]
        milli = sum(running.members[number].gpu_milli for number in numbers)
        key = victim_class(world, running)
        found[key] = found.get(key, 0) + milli * running.seconds_lost
    return found


def world_objects(world: VictimWorld) -> list[Unstructured]:
    made = [make.flavor("a", {POOL: "a"}, "racks"), make.topology("racks", [RACK, make.HOSTNAME])]
    made += [make.node(name, 64, gpus, "a", rack) for name, (rack, gpus) in world.nodes.items()]
    policy = world.policy
    rules: Unstructured = {"withinClusterQueue": policy.within_queue, "reclaimWithinCohort": policy.reclaim}
    if policy.borrow != "Never":
        rules["borrowWithinCohort"] = {"policy": policy.borrow}
        if policy.threshold is not None:
            rules["borrowWithinCohort"]["maxPriorityThreshold"] = policy.threshold
    for name, gpus in world.nominal.items():
        quota = {"a": {"cpu": {"nominalQuota": "1000"}, GPU: {"nominalQuota": str(gpus)}}}
        made += [
            make.cluster_queue(name, quota, cohortName="all", preemption=rules),
            make.local_queue(name, name),
        ]
    for running in world.running:
        made += _running_objects(running)
    made += _asking_objects(world)
    return made + [_budget(name, allowed) for name, allowed in world.budgets.items()]


def _running_objects(running: Running) -> list[Unstructured]:
    started = EPOCH + NOW - running.age
    notes = {}
    if running.checkpoint_age is not None:
        notes[CHECKPOINT] = stamp(EPOCH + NOW - running.checkpoint_age)
    if running.restart is not None:
        notes[RESTART] = f"{running.restart}s"
    labels = {**_queue_label(running.queue), **({"budget": running.budget} if running.budget else {})}
    made = []
    if running.is_gang:
        made.append(make.pod_group(running.name, running.minimum, started, running.queue))
        labels[GROUP] = running.name
    for number, member in enumerate(running.members):
        share = f"{member.milli / 1000}" if member.milli < 1000 else ""
        spec = make.pod_spec(1, 0 if share else len(member.devices), priority=running.priority, nodeName=member.node)
        name = f"{running.name}-{number}" if running.is_gang else running.name
        note = {**notes, DEVICES: ",".join(map(str, member.devices))}
        pod = make.pod(name, spec, created=started, share=share, labels=labels, annotations=note)
        pod["status"] = {"phase": "Running", "startTime": stamp(started)}
        made.append(pod)
    return made


def _asking_objects(world: VictimWorld) -> list[Unstructured]:
    asking = world.asking
    created = EPOCH + NOW - asking.age
    labels = {**_queue_label(asking.queue), **({GROUP: ASKING} if asking.is_group else {})}
    level = make.HOSTNAME if asking.topology == HOST else RACK
    notes = {REQUIRED: level} if asking.topology else {}
    share = f"{asking.milli / 1000}" if asking.milli < 1000 else ""
    spec = make.pod_spec(1, 0 if share else asking.gpus, priority=asking.priority)
    group = [make.pod_group(ASKING, asking.pods, created, asking.queue)] if asking.is_group else []
    return group + [
        make.pod(f"{ASKING}-{number}", spec, created=created, share=share, labels=labels, annotations=dict(notes))
        for number in range(asking.pods)
    ]


def _queue_label(queue: str) -> dict[str, str]:
    return {QUEUE: queue} if queue else {}


def _budget(name: str, allowed: int) -> Unstructured:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": NAMESPACE, "generation": 1},
        "spec": {"maxUnavailable": allowed, "selector": {"matchLabels": {"budget": name}}},
        "status": {"disruptionsAllowed": allowed, "observedGeneration": 1, "currentHealthy": 0, "desiredHealthy": 0},
    }
