"""What a hold names as its cure is one: without it, the workload starts on the engine.

Random small clusters with single pods, gangs and queues. Of every hold that says which running work has to end, that
work is taken away, together with all else that waits, and the engine decides again. With one of the named left in
place it must not start: none of them is a bystander. A workload is never its own cure.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.invariants import objects as make
from tests.invariants.objects import EPOCH, GROUP, QUEUE

from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineConfig, decide
from windlass.model.codec import decode_object
from windlass.model.decision import Hold
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured
from windlass.queueing.config import QueueConfig

SEEDS = 120
NOW = EPOCH + 3600
CONFIG = EngineConfig(queues=QueueConfig(min_run_seconds=1800), max_explained_holds=32)


class Scene:
    """Objects by workload, so that a workload can be taken away; "" has nodes and queues."""

    def __init__(self, rng: Random) -> None:
        self.objects: dict[str, list[Unstructured]] = {"": []}
        self._rng = rng
        self._free: dict[str, list[int]] = {}
        for number in range(rng.randint(1, 4)):
            gpus = rng.choice((2, 4, 8))
            self.objects[""].append(make.node(f"n{number}", 32, gpus, "all", "r0"))
            self._free[f"n{number}"] = [32, gpus]
        self._add_queues()
        for number in range(rng.randint(1, 8)):
            self._add(f"run{number}", is_running=True)
        for number in range(rng.randint(1, 4)):
            self._add(f"wait{number}", is_running=False)

    def _add_queues(self) -> None:
        policy = {
            "withinClusterQueue": self._rng.choice(("Never", "LowerPriority")),
            "reclaimWithinCohort": self._rng.choice(("Never", "LowerPriority", "Any")),
        }
        self.objects[""].append(make.flavor("all", {make.POOL: "all"}))
        for name in ("q1", "q2"):
            quota = {"cpu": {"nominalQuota": "100"}, make.GPU: {"nominalQuota": str(self._rng.randint(1, 8))}}
            spec = {"cohortName": "all"} if self._rng.random() < 0.7 else {}
            self.objects[""] += [make.cluster_queue(name, {"all": quota}, preemption=policy, **spec)]
            self.objects[""] += [make.local_queue(name, name)]

    def _add(self, name: str, *, is_running: bool) -> None:
        rng = self._rng
        size, gpus, cpus = rng.choice((1, 1, 1, 2, 3)), rng.choice((0, 1, 1, 2, 4)), rng.choice((1, 4, 8))
        queue = rng.choice(("", "", "q1", "q2"))
        labels = ({QUEUE: queue} if queue else {}) | ({GROUP: name} if size > 1 else {})
        priority, started = rng.choice((0, 0, 5, 9)), EPOCH + rng.choice((0, 3000))
        annotations = {"volcano.sh/preemptable": "false"} if rng.random() < 0.2 else {}
        key = f"team/{name}" if size > 1 else f"team/{name}-0"
        made = [make.pod_group(name, size, EPOCH, queue)] if size > 1 else []
        for member in range(size):
            spec = make.pod_spec(cpus, gpus, priority=priority)
            pod = make.pod(f"{name}-{member}", spec, created=started, labels=labels, annotations=annotations)
            if is_running:
                place = next((at for at, free in self._free.items() if free[0] >= cpus and free[1] >= gpus), None)
                if place is None:
                    return
                self._free[place][0] -= cpus
                self._free[place][1] -= gpus
                pod["spec"]["nodeName"] = place
                pod["status"] = {"phase": "Running", "startTime": make.stamp(started)}
            made.append(pod)
        self.objects[key] = made

    def apply(self, plan: Plan) -> None:
        """What was evicted is gone, and what was bound runs: holds speak of the cluster after their plan."""
        for evict in plan.evicts:
            self.objects.pop(evict.workload, None)
        nodes = {bind.pod: bind.node for bind in plan.binds}
        for trees in self.objects.values():
            for tree in trees:
                place = nodes.get(f"team/{tree['metadata']['name']}") if tree["kind"] == "Pod" else None
                if place is not None:
                    tree["spec"]["nodeName"] = place
                    tree["status"] = {"phase": "Running", "startTime": make.stamp(NOW)}

    def plan(self, without: frozenset[str] = frozenset()) -> Plan:
        store = Store()
        kept = (tree for key, trees in self.objects.items() if key not in without for tree in trees)
        store.apply([Put(decode_object(tree)) for tree in kept])
        return decide(store.snapshot(NOW), CONFIG, NOW)


def has_started(plan: Plan, key: str) -> bool:
    """Started or about to, its victims aside."""
    pods = {f"{key}-{member}" for member in range(3)} | {key}
    return any(bind.pod in pods for bind in plan.binds)


def cures(scene: Scene, plan: Plan) -> list[tuple[Hold, frozenset[str], frozenset[str]]]:
    """Hold, the running work that it names, and all other work that waits."""
    waiting = frozenset(hold.workload for hold in plan.holds)
    return [
        (hold, frozenset(hold.verdict.relief.names), waiting - {hold.workload})
        for hold in plan.holds
        if hold.verdict.relief is not None and hold.workload in scene.objects
    ]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_named_is_a_cure(seed: int) -> None:
    scene = Scene(Random(seed))
    plan = scene.plan()
    scene.apply(plan)
    for hold, named, others in cures(scene, plan):
        assert hold.workload not in named
        assert has_started(scene.plan(named | others), hold.workload), (hold.workload, named)
        for bystander in named if len(named) > 1 else ():
            again = scene.plan((named - {bystander}) | others)
            assert not has_started(again, hold.workload) or again.evicts, (hold.workload, bystander)


def test_the_scenes_have_cures_to_try() -> None:
    scenes = [Scene(Random(seed)) for seed in range(40)]
    found = [cure for scene in scenes for cure in cures(scene, scene.plan())]
    assert len(found) >= 20
    assert any(len(named) > 1 for _, named, _ in found)


def test_a_gang_is_not_told_to_wait_for_its_own_members() -> None:
    member = make.pod("g-0", make.pod_spec(1, 4, nodeName="n1"), created=EPOCH, labels={GROUP: "g"})
    member["status"] = {"phase": "Running", "startTime": make.stamp(EPOCH)}
    waiting = make.pod("g-1", make.pod_spec(1, 4), created=EPOCH, labels={GROUP: "g"})
    store = Store()
    objects = [make.node("n1", 8, 4, "all", "r0"), make.pod_group("g", 1, EPOCH), member, waiting]
    store.apply([Put(decode_object(tree)) for tree in objects])
    (hold,) = decide(store.snapshot(NOW), CONFIG, NOW).holds
    assert hold.verdict.relief is None
