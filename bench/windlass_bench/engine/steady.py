"""The steady state: a cluster that is full, a backlog, and a decision after every few changes.

Feeds `engine.tasks`. It is what a live scheduler does all day: one pod ends, one is bound, some binds are
confirmed, and the engine decides again on what it remembers. Times are means over the rounds; the first decision, which
remembers nothing, is told apart.
"""

from __future__ import annotations

from windlass.cluster.delta import Assume, Deleted, Delta, Put
from windlass.cluster.store import Store
from windlass.engine import EngineCache, EngineConfig, decide
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.names.kueue import (
    KUEUE_POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY_ANNOTATION,
)
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.pod import Pod
from windlass_bench.engine import synthetic_objects as synthetic
from windlass_bench.engine.measurement import Measurement, Stopwatch

ROUNDS = 20
NOW = 1_767_229_200
QUEUES = 20
BACKLOG = 10_000


def steady_single_pods(name: str, *, nodes: int = 5_000, backlog: int = BACKLOG) -> Measurement:
    """A one-GPU pod on every GPU, and a backlog of such pods."""
    template = synthetic.pod_template({"cpu": "4", "memory": "32Gi", GPU_RESOURCE: "1"})
    running = _running([template], nodes)
    waiting = synthetic.make_pods(template, backlog, "wait")
    return _rounds(name, nodes, [*synthetic.gpu_nodes(nodes), *running, *waiting], running)


def steady_queued_gangs(name: str, *, nodes: int = 5_000, backlog: int = BACKLOG) -> Measurement:
    """The same in 20 queues; the backlog are gangs of eight that want to be in one rack."""
    per_queue = str(8 * nodes // QUEUES)
    names = [f"q{number:02}" for number in range(QUEUES)]
    quota = {"cpu": "1000000", "memory": "10000Ti", GPU_RESOURCE: per_queue}
    policy = {"withinClusterQueue": "LowerPriority"}
    queues = synthetic.queue_objects(
        [synthetic.cluster_queue(queue, quota, preemption=policy) for queue in names],
        topology=(synthetic.BLOCK, synthetic.RACK, HOSTNAME_LABEL),
    )
    requests = {"cpu": "4", "memory": "32Gi", GPU_RESOURCE: "1"}
    templates = [synthetic.pod_template(requests, labels={QUEUE_NAME_LABEL: queue}) for queue in names]
    running = _running(templates, nodes)
    gangs = [pod for number in range(backlog // 8) for pod in _gang(templates[number % QUEUES], f"gang-{number:05}")]
    return _rounds(name, nodes, [*synthetic.gpu_nodes(nodes), *queues, *running, *gangs], running)


def _running(templates: list[Pod], nodes: int) -> list[Pod]:
    return [synthetic.running_pod(templates[i % len(templates)], i, i // 8) for i in range(8 * nodes)]


def _gang(template: Pod, name: str) -> list[Pod]:
    labels = {**template.metadata.labels, KUEUE_POD_GROUP_NAME: name}
    annotations = {POD_GROUP_TOTAL_COUNT_ANNOTATION: "8", REQUIRED_TOPOLOGY_ANNOTATION: synthetic.RACK}
    return [
        synthetic.make_pod(template, f"{name}-{member}", labels=labels, annotations=annotations) for member in range(8)
    ]


def _rounds(name: str, nodes: int, objects: list[object], running: list[Pod]) -> Measurement:
    """Every round a pod ends; what that lets start is assumed, and confirmed in the next round."""
    store, memo, watch = Store(), EngineCache(), Stopwatch()
    store.apply(map(Put, objects))
    first_apply = watch.lap()
    decide(store.snapshot(NOW), EngineConfig(), NOW, memo)
    first = watch.lap()
    apply_s, snapshot_s, decide_s, events, binds = 0.0, 0.0, 0.0, 0, 0
    by_key = {item.key: item for item in objects if isinstance(item, Pod)}
    deltas: list[Delta] = []
    for number in range(ROUNDS):
        deltas.append(Deleted("Pod", running[number * 97 % len(running)].key))
        watch.lap()
        store.apply(deltas)
        apply_s += watch.lap()
        snapshot = store.snapshot(NOW + number)
        snapshot_s += watch.lap()
        plan = decide(snapshot, EngineConfig(), NOW + number, memo)
        decide_s += watch.lap()
        events, binds = events + len(deltas), binds + len(plan.binds)
        store.apply(Assume(bind.pod, bind.node, bind.devices) for bind in plan.binds)
        deltas = [Put(synthetic.bound_pod(by_key[bind.pod], bind.node)) for bind in plan.binds]
    return Measurement(
        task=name,
        nodes=nodes,
        units=ROUNDS,
        unit="decisions",
        decide_s=decide_s,
        intake_s=apply_s + snapshot_s,
        placed=binds,
        held=len(plan.holds),
        extra={
            "pods": len(by_key),
            "load_s": first_apply,
            "first_s": first,
            "us_an_event": 1e6 * apply_s / events,
            "snapshot_ms": 1000 * snapshot_s / ROUNDS,
            "decide_ms": 1000 * decide_s / ROUNDS,
        },
    )
