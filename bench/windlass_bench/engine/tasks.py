"""What is measured: every case of the benchmark by name, made from `synthetic_objects`, decided and timed.

`measure` plays one task in a process of its own; `report` knows which tasks make which table.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from windlass import jit
from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineCache, EngineConfig, decide
from windlass.model.names.kai import KAI_FRACTION
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.names.kueue import (
    KUEUE_POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY_ANNOTATION,
)
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass_bench.engine import kueue_performance, steady
from windlass_bench.engine import synthetic_objects as synthetic
from windlass_bench.engine.measurement import Measurement, Stopwatch

NOW = kueue_performance.EPOCH + 3600
NODES = 5_000
AMPLE_QUOTA = {"cpu": "10000000", "memory": "100000Ti", GPU_RESOURCE: "1000000"}
LEVELS = (synthetic.BLOCK, synthetic.RACK, HOSTNAME_LABEL)

Task = Callable[[str], Measurement]
"""Takes its own name, gives what it measured."""


def measure_decision(name: str, nodes: int, objects: Iterable[object], units: int, unit: str) -> Measurement:
    """Take the objects in, decide once with nothing remembered, and time both."""
    warm_up()
    store, watch = Store(), Stopwatch()
    store.apply(map(Put, objects))
    snapshot = store.snapshot(NOW)
    intake = watch.lap()
    freeze_gc()
    watch.lap()
    plan = decide(snapshot, EngineConfig(), NOW)
    took = watch.lap()
    return measurement_of_plan(name, nodes, units, unit, plan, decide_s=took, intake_s=intake)


def measure_incremental_decision(
    name: str, nodes: int, there: Iterable[object], comes: Iterable[object]
) -> Measurement:
    """Decide on what is there, then something comes: the decision on that is timed, as a scheduler makes it that runs.

    The same decision with nothing remembered is told beside it.
    """
    warm_up()
    store, memo, watch = Store(), EngineCache(), Stopwatch()
    store.apply(map(Put, there))
    decide(store.snapshot(NOW), EngineConfig(), NOW, memo)
    freeze_gc()
    watch.lap()
    store.apply(map(Put, comes))
    snapshot = store.snapshot(NOW)
    intake = watch.lap()
    plan = decide(snapshot, EngineConfig(), NOW, memo)
    took = watch.lap()
    decide(snapshot, EngineConfig(), NOW)
    cold = watch.lap()
    measured = measurement_of_plan(name, nodes, 1, "decisions", plan, decide_s=took, intake_s=intake)
    return msgspec.structs.replace(measured, extra={"cold_ms": 1000 * cold})


def measurement_of_plan(name: str, nodes: int, units: int, unit: str, plan: Plan, **times: float) -> Measurement:
    return Measurement(
        task=name,
        nodes=nodes,
        units=units,
        unit=unit,
        decide_s=times["decide_s"],
        intake_s=times["intake_s"],
        placed=len(plan.binds),
        held=len(plan.holds),
        evicted=len(plan.evicts),
    )


def freeze_gc() -> None:
    """Tell Python's garbage collector that what is known by now mostly stays, as the live scheduler does once it has
    read the cluster."""
    gc.collect()
    gc.freeze()


def warm_up() -> None:
    """Load the compiled kernels by deciding on a small cluster, as the live scheduler has by its second decision."""
    jit.compiled()
    requests = {"cpu": "1", GPU_RESOURCE: "1"}
    gang = synthetic.gang_pods(1, 2, requests, "q", required=synthetic.RACK)
    pods = synthetic.make_pods(synthetic.pod_template(requests), 40, "warm")
    for more in ([], [*_queue(), *gang]):
        store = Store()
        store.apply(map(Put, [*synthetic.gpu_nodes(4), *pods, *more]))
        decide(store.snapshot(NOW), EngineConfig(), NOW)


def plain_pods(name: str, *, pods: int, nodes: int = NODES, share: str = "") -> Measurement:
    """Pods of one shape: a whole GPU each, or a share of one."""
    requests = {"cpu": "2", "memory": "16Gi"} | ({} if share else {GPU_RESOURCE: "1"})
    template = synthetic.pod_template(requests, annotations={KAI_FRACTION: share} if share else {})
    objects = [*synthetic.gpu_nodes(nodes), *synthetic.make_pods(template, pods, "pod")]
    return measure_decision(name, nodes, objects, pods, "pods")


def mixed_pods(name: str, *, pods: int, tied: int = 0, nodes: int = NODES) -> Measurement:
    """Pods of 200 shapes, of which `tied` mind other pods; those of one shape don't come one after another."""
    templates = [*synthetic.pod_templates(200 - tied), *synthetic.affinity_pod_templates(tied)]
    made = [synthetic.make_pod(templates[number * 7_919 % 200], f"pod-{number:06}") for number in range(pods)]
    return measure_decision(name, nodes, [*synthetic.gpu_nodes(nodes), *made], pods, "pods")


def many_gangs(name: str, *, gangs: int, size: int, nodes: int = NODES) -> Measurement:
    """Gangs of one-GPU pods, each in one rack."""
    requests = {"cpu": "8", "memory": "64Gi", GPU_RESOURCE: "1"}
    pods = synthetic.gang_pods(gangs, size, requests, "q", required=synthetic.RACK)
    return measure_decision(name, nodes, [*synthetic.gpu_nodes(nodes), *_queue(), *pods], gangs, "gangs")


def one_gang(name: str, *, size: int, nodes: int = NODES) -> Measurement:
    """One gang of four-GPU pods, as close together as can be."""
    requests = {"cpu": "8", "memory": "64Gi", GPU_RESOURCE: "4"}
    pods = synthetic.gang_pods(1, size, requests, "q", preferred=synthetic.BLOCK)
    return measure_decision(name, nodes, [*synthetic.gpu_nodes(nodes), *_queue(), *pods], 1, "gangs")


def _queue() -> list[object]:
    return synthetic.queue_objects([synthetic.cluster_queue("q", AMPLE_QUOTA)], topology=LEVELS)


def preemption(name: str, *, asks: str, scattered: bool, nodes: int = NODES) -> Measurement:
    """Pods of two GPUs fill all nodes; a tenth of them, in the asking queue, may be evicted.

    `scattered`: at most one candidate on a node, so that nothing larger than it can be had. `asks`: `pod` (two GPUs),
    `node` (eight), or `gang` (four of eight in one rack).
    """
    policy = {"withinClusterQueue": "LowerPriority"}
    quota = {**AMPLE_QUOTA, GPU_RESOURCE: str(8 * nodes // 10)}
    queues = [synthetic.cluster_queue("mine", quota, preemption=policy)]
    queues += [synthetic.cluster_queue(f"other-{i}", AMPLE_QUOTA) for i in range(3)]
    requests = {"cpu": "8", "memory": "64Gi", GPU_RESOURCE: "2"}
    mine, *other_templates = (
        synthetic.pod_template(requests, labels={QUEUE_NAME_LABEL: queue["name"]}) for queue in queues
    )
    running = []
    for number in range(4 * nodes):
        node = number // 4
        is_mine = number % 10 == 0 if scattered else node % 10 == 0
        template = mine if is_mine else other_templates[number % 3]
        running.append(synthetic.running_pod(template, number, node))
    objects = synthetic.queue_objects(queues, topology=LEVELS)
    there = [*synthetic.gpu_nodes(nodes), *objects, *running]
    return measure_incremental_decision(name, nodes, there, _asking(asks))


def _asking(asks: str) -> list[Pod]:
    requests = {"cpu": "8", "memory": "64Gi", GPU_RESOURCE: "2" if asks == "pod" else "8"}
    labels = {QUEUE_NAME_LABEL: "mine"}
    if asks != "gang":
        return [synthetic.make_pod(synthetic.pod_template(requests, labels=labels, priority=100), "urgent")]
    labels[KUEUE_POD_GROUP_NAME] = "urgent"
    annotations = {POD_GROUP_TOTAL_COUNT_ANNOTATION: "4", REQUIRED_TOPOLOGY_ANNOTATION: synthetic.RACK}
    template = synthetic.pod_template(requests, labels=labels, annotations=annotations, priority=100)
    return synthetic.make_pods(template, 4, "urgent")


def preempt_small_pods(name: str, *, size: int, nodes: int) -> Measurement:
    """One-GPU pods of three priorities fill all nodes; a gang of eight-GPU pods in their queue needs `size` nodes."""
    policy = {"withinClusterQueue": "LowerPriority"}
    quota = {**AMPLE_QUOTA, GPU_RESOURCE: str(8 * nodes)}
    queues = [synthetic.cluster_queue("q", quota, preemption=policy)]
    labels = {QUEUE_NAME_LABEL: "q"}
    requests = {"cpu": "2", "memory": "8Gi", GPU_RESOURCE: "1"}
    small = [synthetic.pod_template(requests, labels=labels, priority=priority) for priority in range(3)]
    running = [synthetic.running_pod(small[number % 3], number, number // 8) for number in range(8 * nodes)]
    annotations = {POD_GROUP_TOTAL_COUNT_ANNOTATION: str(size)}
    gang = synthetic.pod_template(
        {"cpu": "8", "memory": "64Gi", GPU_RESOURCE: "8"},
        labels={**labels, KUEUE_POD_GROUP_NAME: "urgent"},
        annotations=annotations,
        priority=100,
    )
    there = [*synthetic.gpu_nodes(nodes), *synthetic.queue_objects(queues), *running]
    return measure_incremental_decision(name, nodes, there, synthetic.make_pods(gang, size, "urgent"))


def planned_starts(name: str, *, nodes: int, running: int, waiting: int) -> Measurement:
    """Work with declared run times runs, more of it waits: every start is planned, and nobody delays those before."""
    queues = [
        synthetic.cluster_queue(queue, {**AMPLE_QUOTA, GPU_RESOURCE: str(4 * nodes)}, cohort="all")
        for queue in synthetic.TIMED_QUEUES
    ]
    objects = [
        *synthetic.gpu_nodes(nodes, nodes_per_rack=16),
        *synthetic.queue_objects(queues, topology=LEVELS),
        *synthetic.running_pods_with_duration(nodes, running),
        *synthetic.pending_pods_with_duration(waiting),
    ]
    return measure_decision(name, nodes, objects, 1, "decisions")


def never_fits(name: str, *, gpus: int, nodes: int = 500) -> Measurement:
    """A job of ten pods with `gpus` each on a cluster that others have filled."""
    filler = synthetic.pod_template({"cpu": "8", "memory": "64Gi", GPU_RESOURCE: "8"})
    full = [synthetic.running_pod(filler, number, number) for number in range(nodes)]
    requests = {"cpu": "8", "memory": "64Gi", GPU_RESOURCE: str(gpus)}
    job = synthetic.gang_pods(1, 10, requests, "q", required=synthetic.RACK)
    return measure_decision(name, nodes, [*synthetic.gpu_nodes(nodes), *full, *_queue(), *job], 1, "decisions")


def run_kueue_configuration(name: str, *, configuration: kueue_performance.PerformanceConfiguration) -> Measurement:
    warm_up()
    played = kueue_performance.run_configuration(configuration)
    waits = {f"wait_{kind}_ms": sum(waited) / len(waited) for kind, waited in sorted(played.waited_ms.items())}
    return Measurement(
        task=name,
        nodes=configuration.nodes,
        units=played.workloads,
        unit="workloads",
        decide_s=played.cpu_s,
        placed=sum(map(len, played.waited_ms.values())),
        evicted=played.evictions,
        extra={
            "queues": configuration.queues,
            "decisions": played.decisions,
            "slowest_ms": 1000 * played.slowest_s,
            "makespan_s": played.makespan_ms / 1000,
            **waits,
        },
    )


def _kueue(*arguments: Any, **more: Any) -> Task:
    configuration = kueue_performance.PerformanceConfiguration(*arguments, **more)
    return partial(run_kueue_configuration, configuration=configuration)


def _growth(make: Callable[..., Measurement], prefix: str, sizes: Sequence[int], **fixed: int) -> dict[str, Task]:
    return {f"{prefix}@{nodes}": partial(make, nodes=nodes, **fixed) for nodes in sizes}


GROWTH_NODE_COUNTS = (1_250, 2_500, 5_000, 10_000)

TASKS: dict[str, Task] = {
    "plain-10k": partial(plain_pods, pods=10_000),
    "plain-50k": partial(plain_pods, pods=50_000, share="0.5"),
    "shapes-10k": partial(mixed_pods, pods=10_000),
    "shapes-50k": partial(mixed_pods, pods=50_000),
    "mixed-10k": partial(mixed_pods, pods=10_000, tied=20),
    "mixed-50k": partial(mixed_pods, pods=50_000, tied=20),
    "gangs-1000x8": partial(many_gangs, gangs=1_000, size=8),
    "gang-1x1000": partial(one_gang, size=1_000),
    "preempt-pod": partial(preemption, asks="pod", scattered=True),
    "preempt-node": partial(preemption, asks="node", scattered=False),
    "preempt-gang": partial(preemption, asks="gang", scattered=False),
    "preempt-none": partial(preemption, asks="node", scattered=True),
    "preempt-crowd": partial(preempt_small_pods, size=32, nodes=300),
    "plans-400": partial(planned_starts, nodes=400, running=760, waiting=300),
    "never-full": partial(never_fits, gpus=8),
    "never-large": partial(never_fits, gpus=9),
    "kueue-baseline": _kueue(5, 6, kueue_performance.BASELINE, 4, 8),
    "kueue-large-scale": _kueue(10, 100, kueue_performance.LARGE_SCALE, 5, 64),
    "kueue-tas": _kueue(5, 6, kueue_performance.TOPOLOGY, 10, 64, topology=True),
    "steady-pods": steady.steady_single_pods,
    "steady-queues": steady.steady_queued_gangs,
    **_growth(plain_pods, "plain", GROWTH_NODE_COUNTS, pods=10_000),
    **_growth(mixed_pods, "mixed", GROWTH_NODE_COUNTS, pods=10_000, tied=20),
    **_growth(many_gangs, "gangs", GROWTH_NODE_COUNTS, gangs=500, size=8),
    # The same on a small scale, for a look.
    "quick-plain": partial(plain_pods, pods=2_000, nodes=500),
    "quick-mixed": partial(mixed_pods, pods=1_000, tied=20, nodes=500),
    "quick-gangs": partial(many_gangs, gangs=50, size=8, nodes=500),
    "quick-gang": partial(one_gang, size=200, nodes=500),
    "quick-preempt": partial(preemption, asks="node", scattered=False, nodes=200),
    "quick-plans": partial(planned_starts, nodes=40, running=80, waiting=30),
    "quick-kueue": _kueue(1, 2, kueue_performance.LARGE_SCALE, 2, 8),
    "quick-steady": partial(steady.steady_queued_gangs, nodes=200),
    **_growth(plain_pods, "quick-plain", (250, 1_000), pods=1_000),
}
