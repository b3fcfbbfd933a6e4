"""The steady state: a cluster that is full, a backlog, and a decision after every few changes.

Feeds `bench.engine.tasks`. It is what a live scheduler does all day: one pod ends, one is bound, some binds are
confirmed, and the engine decides again on what it remembers. Times are means over the rounds; the first decision, which
remembers nothing, is told apart.
"""

from __future__ import annotations

from windlass.bench.engine import scenes
from windlass.bench.engine.measured import Measured, Stopwatch
from windlass.cluster.delta import Assume, Delta, Gone, Put
from windlass.cluster.store import Store
from windlass.engine import EngineConfig, Memo, decide
from windlass.model.pod import Pod

ROUNDS = 20
NOW = 1_767_229_200
QUEUES = 20
BACKLOG = 10_000


def plain(name: str, *, nodes: int = 5_000, backlog: int = BACKLOG) -> Measured:
    """A one-GPU pod on every GPU, and a backlog of such pods."""
    template = scenes.pod({"cpu": "4", "memory": "32Gi", scenes.GPU: "1"})
    running = _running([template], nodes)
    waiting = scenes.pods_like(template, backlog, "wait")
    return _rounds(name, nodes, [*scenes.gpu_nodes(nodes), *running, *waiting], running)


def queued(name: str, *, nodes: int = 5_000, backlog: int = BACKLOG) -> Measured:
    """The same in 20 queues; the backlog are gangs of eight that want to be in one rack."""
    per_queue = str(8 * nodes // QUEUES)
    names = [f"q{number:02}" for number in range(QUEUES)]
    quota = {"cpu": "1000000", "memory": "10000Ti", scenes.GPU: per_queue}
    policy = {"withinClusterQueue": "LowerPriority"}
    queues = scenes.queue_objects(
        [scenes.cluster_queue(queue, quota, preemption=policy) for queue in names],
        topology=(scenes.BLOCK, scenes.RACK, scenes.HOST),
    )
    requests = {"cpu": "4", "memory": "32Gi", scenes.GPU: "1"}
    templates = [scenes.pod(requests, labels={scenes.QUEUE_LABEL: queue}) for queue in names]
    running = _running(templates, nodes)
    gangs = [
        pod
        for number in range(backlog // 8)
        for pod in _gang(templates[number % QUEUES], f"gang-{number:05}")
    ]
    return _rounds(name, nodes, [*scenes.gpu_nodes(nodes), *queues, *running, *gangs], running)


def _running(templates: list[Pod], nodes: int) -> list[Pod]:
    return [
        scenes.on_node(scenes.named(templates[i % len(templates)], f"run-{i:06}"), f"node-{i // 8:05}")
        for i in range(8 * nodes)
    ]


def _gang(template: Pod, name: str) -> list[Pod]:
    labels = {**template.metadata.labels, scenes.GROUP_LABEL: name}
    annotations = {scenes.TOTAL: "8", scenes.REQUIRED: scenes.RACK}
    return [
        scenes.named(template, f"{name}-{member}", labels=labels, annotations=annotations)
        for member in range(8)
    ]


def _rounds(name: str, nodes: int, objects: list[object], running: list[Pod]) -> Measured:
    """Every round a pod ends; what that lets start is assumed, and confirmed in the next round."""
    store, memo, watch = Store(), Memo(), Stopwatch()
    store.apply(map(Put, objects))
    first_apply = watch.lap()
    decide(store.snapshot(NOW), EngineConfig(), NOW, memo)
    first = watch.lap()
    apply_s, snapshot_s, decide_s, events, binds = 0.0, 0.0, 0.0, 0, 0
    by_key = {thing.key: thing for thing in objects if isinstance(thing, Pod)}
    deltas: list[Delta] = []
    for number in range(ROUNDS):
        deltas.append(Gone("Pod", running[number * 97 % len(running)].key))
        watch.lap()
        store.apply(deltas)
        apply_s += watch.lap()
        snapshot = store.snapshot(NOW + number)
        snapshot_s += watch.lap()
        plan = decide(snapshot, EngineConfig(), NOW + number, memo)
        decide_s += watch.lap()
        events += len(deltas)
        binds += len(plan.binds)
        store.apply(Assume(bind.pod, bind.node, bind.devices) for bind in plan.binds)
        deltas = [Put(scenes.on_node(by_key[bind.pod], bind.node)) for bind in plan.binds]
    return Measured(
        task=name,
        nodes=nodes,
        units=ROUNDS,
        unit="decisions",
        decide_s=decide_s,
        intake_s=apply_s + snapshot_s,
        placed=binds,
        held=len(plan.holds),
        more={
            "pods": len(by_key),
            "load_s": first_apply,
            "first_s": first,
            "us_an_event": 1e6 * apply_s / events,
            "snapshot_ms": 1000 * snapshot_s / ROUNDS,
            "decide_ms": 1000 * decide_s / ROUNDS,
        },
    )
