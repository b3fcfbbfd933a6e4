"""What is measured: every case of the benchmark by name, made from `scenes`, decided and timed.

`measure` plays one task in a process of its own; `report` knows which tasks make which table.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from windlass import jit
from windlass.bench.engine import kueue_runs, scenes, steady
from windlass.bench.engine.measured import Measured, Stopwatch
from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineConfig, Memo, decide
from windlass.model.plan import Plan
from windlass.model.pod import Pod

NOW = kueue_runs.EPOCH + 3600
NODES = 5_000
PLENTY = {"cpu": "10000000", "memory": "100000Ti", scenes.GPU: "1000000"}
LEVELS = (scenes.BLOCK, scenes.RACK, scenes.HOST)

Task = Callable[[str], Measured]
"""Takes its own name, gives what it measured."""


def decided(name: str, nodes: int, objects: Iterable[object], units: int, unit: str) -> Measured:
    """Take the objects in, decide once with nothing remembered, and time both."""
    warm_up()
    store, watch = Store(), Stopwatch()
    store.apply(map(Put, objects))
    snapshot = store.snapshot(NOW)
    intake = watch.lap()
    settle_down()
    watch.lap()
    plan = decide(snapshot, EngineConfig(), NOW)
    took = watch.lap()
    return of_plan(name, nodes, units, unit, plan, decide_s=took, intake_s=intake)


def decided_after(name: str, nodes: int, there: Iterable[object], comes: Iterable[object]) -> Measured:
    """Decide on what is there, then something comes: the decision on that is timed, as a scheduler makes it that runs.

    The same decision with nothing remembered is told beside it.
    """
    warm_up()
    store, memo, watch = Store(), Memo(), Stopwatch()
    store.apply(map(Put, there))
    decide(store.snapshot(NOW), EngineConfig(), NOW, memo)
    settle_down()
    watch.lap()
    store.apply(map(Put, comes))
    snapshot = store.snapshot(NOW)
    intake = watch.lap()
    plan = decide(snapshot, EngineConfig(), NOW, memo)
    took = watch.lap()
    decide(snapshot, EngineConfig(), NOW)
    cold = watch.lap()
    measured = of_plan(name, nodes, 1, "decisions", plan, decide_s=took, intake_s=intake)
    return msgspec.structs.replace(measured, more={"cold_ms": 1000 * cold})


def of_plan(name: str, nodes: int, units: int, unit: str, plan: Plan, **times: float) -> Measured:
    return Measured(
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


def settle_down() -> None:
    """Tell Python's garbage collector that what is known by now mostly stays, as the live scheduler does once it has
    read the cluster."""
    gc.collect()
    gc.freeze()


def warm_up() -> None:
    """Load the compiled kernels by deciding on a small cluster, as the live scheduler has by its second decision."""
    jit.compiled()
    queues = scenes.queue_objects([scenes.cluster_queue("q", PLENTY)], topology=LEVELS)
    gang = scenes.gangs(1, 2, {"cpu": "1", scenes.GPU: "1"}, "q", required=scenes.RACK)
    for more in ([], [*queues, *gang]):
        store = Store()
        pods = scenes.pods_like(scenes.pod({"cpu": "1", scenes.GPU: "1"}), 40, "warm")
        store.apply(map(Put, [*scenes.gpu_nodes(4), *pods, *more]))
        decide(store.snapshot(NOW), EngineConfig(), NOW)


def plain_pods(name: str, *, pods: int, nodes: int = NODES, share: str = "") -> Measured:
    """Pods of one shape: a whole GPU each, or a share of one."""
    requests = {"cpu": "2", "memory": "16Gi"} | ({} if share else {scenes.GPU: "1"})
    template = scenes.pod(requests, annotations={"gpu-fraction": share} if share else {})
    objects = [*scenes.gpu_nodes(nodes), *scenes.pods_like(template, pods, "pod")]
    return decided(name, nodes, objects, pods, "pods")


def mixed_pods(name: str, *, pods: int, tied: int = 0, nodes: int = NODES) -> Measured:
    """Pods of 200 shapes, of which `tied` mind other pods; those of one shape don't come one after another."""
    templates = [*scenes.shapes(200 - tied), *scenes.tied_shapes(tied)]
    made = [scenes.named(templates[number * 7_919 % 200], f"pod-{number:06}") for number in range(pods)]
    return decided(name, nodes, [*scenes.gpu_nodes(nodes), *made], pods, "pods")


def many_gangs(name: str, *, gangs: int, size: int, nodes: int = NODES) -> Measured:
    """Gangs of one-GPU pods, each in one rack."""
    requests = {"cpu": "8", "memory": "64Gi", scenes.GPU: "1"}
    pods = scenes.gangs(gangs, size, requests, "q", required=scenes.RACK)
    return decided(name, nodes, [*scenes.gpu_nodes(nodes), *_queue(), *pods], gangs, "gangs")


def one_gang(name: str, *, size: int, nodes: int = NODES) -> Measured:
    """One gang of four-GPU pods, as close together as can be."""
    requests = {"cpu": "8", "memory": "64Gi", scenes.GPU: "4"}
    pods = scenes.gangs(1, size, requests, "q", preferred=scenes.BLOCK)
    return decided(name, nodes, [*scenes.gpu_nodes(nodes), *_queue(), *pods], 1, "gangs")


def _queue() -> list[object]:
    return scenes.queue_objects([scenes.cluster_queue("q", PLENTY)], topology=LEVELS)


def preemption(name: str, *, asks: str, scattered: bool, nodes: int = NODES) -> Measured:
    """Pods of two GPUs fill all nodes; a tenth of them, in the asking queue, may be evicted.

    `scattered`: at most one candidate on a node, so that nothing larger than it can be had. `asks`: `pod` (two GPUs),
    `node` (eight), or `gang` (four of eight in one rack).
    """
    policy = {"withinClusterQueue": "LowerPriority"}
    queues = [scenes.cluster_queue("mine", {**PLENTY, scenes.GPU: str(8 * nodes // 10)}, preemption=policy)]
    queues += [scenes.cluster_queue(f"other-{i}", PLENTY) for i in range(3)]
    requests = {"cpu": "8", "memory": "64Gi", scenes.GPU: "2"}
    mine, *others = (scenes.pod(requests, labels={scenes.QUEUE_LABEL: queue["name"]}) for queue in queues)
    running = []
    for number in range(4 * nodes):
        node = number // 4
        is_mine = number % 10 == 0 if scattered else node % 10 == 0
        template = mine if is_mine else others[number % 3]
        running.append(scenes.on_node(scenes.named(template, f"run-{number:06}"), f"node-{node:05}"))
    there = [*scenes.gpu_nodes(nodes), *scenes.queue_objects(queues, topology=LEVELS), *running]
    return decided_after(name, nodes, there, _asking(asks))


def _asking(asks: str) -> list[Pod]:
    requests = {"cpu": "8", "memory": "64Gi", scenes.GPU: "2" if asks == "pod" else "8"}
    labels = {scenes.QUEUE_LABEL: "mine"}
    if asks != "gang":
        return [scenes.named(scenes.pod(requests, labels=labels, priority=100), "urgent")]
    labels[scenes.GROUP_LABEL] = "urgent"
    annotations = {scenes.TOTAL: "4", scenes.REQUIRED: scenes.RACK}
    return scenes.pods_like(
        scenes.pod(requests, labels=labels, annotations=annotations, priority=100), 4, "urgent"
    )


def crowd(name: str, *, size: int, nodes: int) -> Measured:
    """One-GPU pods of three priorities fill all nodes; a gang of eight-GPU pods in their queue needs `size` nodes."""
    policy = {"withinClusterQueue": "LowerPriority"}
    queues = [scenes.cluster_queue("q", {**PLENTY, scenes.GPU: str(8 * nodes)}, preemption=policy)]
    labels = {scenes.QUEUE_LABEL: "q"}
    small = [
        scenes.pod({"cpu": "2", "memory": "8Gi", scenes.GPU: "1"}, labels=labels, priority=priority)
        for priority in range(3)
    ]
    running = [
        scenes.on_node(scenes.named(small[number % 3], f"run-{number:06}"), f"node-{number // 8:05}")
        for number in range(8 * nodes)
    ]
    annotations = {scenes.TOTAL: str(size)}
    gang = scenes.pod(
        {"cpu": "8", "memory": "64Gi", scenes.GPU: "8"},
        labels={**labels, scenes.GROUP_LABEL: "urgent"},
        annotations=annotations,
        priority=100,
    )
    there = [*scenes.gpu_nodes(nodes), *scenes.queue_objects(queues), *running]
    return decided_after(name, nodes, there, scenes.pods_like(gang, size, "urgent"))


def plans(name: str, *, nodes: int, running: int, waiting: int) -> Measured:
    """Work with declared run times runs, more of it waits: every start is planned, and nobody delays those before."""
    queues = [
        scenes.cluster_queue(queue, {**PLENTY, scenes.GPU: str(4 * nodes)}, cohort="all")
        for queue in scenes.TIMED_QUEUES
    ]
    objects = [
        *scenes.gpu_nodes(nodes, nodes_a_rack=16),
        *scenes.queue_objects(queues, topology=LEVELS),
        *scenes.timed_running(nodes, running),
        *scenes.timed_waiting(waiting),
    ]
    return decided(name, nodes, objects, 1, "decisions")


def never_fits(name: str, *, gpus: int, nodes: int = 500) -> Measured:
    """A job of ten pods with `gpus` each on a cluster that others have filled."""
    filler = scenes.pod({"cpu": "8", "memory": "64Gi", scenes.GPU: "8"})
    full = [
        scenes.on_node(scenes.named(filler, f"run-{number:05}"), f"node-{number:05}")
        for number in range(nodes)
    ]
    job = scenes.gangs(
        1, 10, {"cpu": "8", "memory": "64Gi", scenes.GPU: str(gpus)}, "q", required=scenes.RACK
    )
    return decided(name, nodes, [*scenes.gpu_nodes(nodes), *full, *_queue(), *job], 1, "decisions")


def kueue(name: str, *, configuration: kueue_runs.Configuration) -> Measured:
    warm_up()
    played = kueue_runs.play(configuration)
    waits = {
        f"wait_{kind}_ms": sum(waited) / len(waited) for kind, waited in sorted(played.waited_ms.items())
    }
    return Measured(
        task=name,
        nodes=configuration.nodes,
        units=played.workloads,
        unit="workloads",
        decide_s=played.cpu_s,
        placed=sum(map(len, played.waited_ms.values())),
        evicted=played.evictions,
        more={
            "queues": configuration.queues,
            "decisions": played.decisions,
            "slowest_ms": 1000 * played.slowest_s,
            "makespan_s": played.makespan_ms / 1000,
            **waits,
        },
    )


def _growth(
    make: Callable[..., Measured], prefix: str, sizes: Sequence[int], **fixed: int
) -> dict[str, Task]:
    return {f"{prefix}@{nodes}": partial(make, nodes=nodes, **fixed) for nodes in sizes}


GROWTH = (1_250, 2_500, 5_000, 10_000)
_SETS = kueue_runs

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
    "preempt-crowd": partial(crowd, size=32, nodes=300),
    "plans-400": partial(plans, nodes=400, running=760, waiting=300),
    "never-full": partial(never_fits, gpus=8),
    "never-large": partial(never_fits, gpus=9),
    "kueue-baseline": partial(kueue, configuration=_SETS.Configuration(5, 6, _SETS.BASELINE, 4, 8)),
    "kueue-large-scale": partial(kueue, configuration=_SETS.Configuration(10, 100, _SETS.LARGE_SCALE, 5, 64)),
    "kueue-tas": partial(kueue, configuration=_SETS.Configuration(5, 6, _SETS.TOPOLOGY, 10, 64, True)),
    "steady-pods": steady.plain,
    "steady-queues": steady.queued,
    **_growth(plain_pods, "plain", GROWTH, pods=10_000),
    **_growth(mixed_pods, "mixed", GROWTH, pods=10_000, tied=20),
    **_growth(many_gangs, "gangs", GROWTH, gangs=500, size=8),
    # The same on a small scale, for a look.
    "quick-plain": partial(plain_pods, pods=2_000, nodes=500),
    "quick-mixed": partial(mixed_pods, pods=1_000, tied=20, nodes=500),
    "quick-gangs": partial(many_gangs, gangs=50, size=8, nodes=500),
    "quick-gang": partial(one_gang, size=200, nodes=500),
    "quick-preempt": partial(preemption, asks="node", scattered=False, nodes=200),
    "quick-plans": partial(plans, nodes=40, running=80, waiting=30),
    "quick-kueue": partial(kueue, configuration=_SETS.Configuration(1, 2, _SETS.LARGE_SCALE, 2, 8)),
    "quick-steady": partial(steady.queued, nodes=200),
    **_growth(plain_pods, "quick-plain", (250, 1_000), pods=1_000),
}
