"""The measurements: a backlog that is let go, steady arrivals with churn, and gangs.

`cli.live` calls `measure`; each task is one contender on one size, in alternating order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from windlass.kube.client import KubeClient
from windlass.kube.client_config import load_client_config
from windlass.kube.events import Event, EventRecorder, EventRegarding
from windlass.kube.write_requests import bind_pod
from windlass.model.names.windlass import BENCH_LABEL
from windlass_bench.live.bench_cluster import IN_FLIGHT, BenchCluster
from windlass_bench.live.contenders import (
    LIMIT,
    PACKING,
    SCHEDULER_NAMES,
    WINDLASS,
    Programs,
    SchedulerProcess,
    start_scheduler,
)
from windlass_bench.live.objects import NAMESPACE, name_of_node, pod, running_pod

QUIET_SECONDS = 15.0
"""A contender that has bound nobody for so long is done."""
STEADY_SECONDS = 30.0
TIMEOUT_SECONDS = 300.0
"""Seconds that the server may take for an answer to us: on a small machine the measured keep it busy."""
GANG_SIZE = 8
BACKLOG, STEADY, GANGS, MEMORY = "backlog", "steady", "gangs", "memory"
PODS_A_NODE = 10
SETTLE_SECONDS = 5.0
"""After a contender is in step with a full cluster, until its memory is read."""


class Task(msgspec.Struct, frozen=True):
    part: str
    contender: str
    nodes: int
    pods: int
    rate: float = 0.0


class Result(msgspec.Struct, frozen=True):
    task: Task
    bound: int
    seconds: float
    p50: float = 0.0
    p99: float = 0.0
    """Seconds from a pod's creation to its binding."""
    cpu_seconds: float = 0.0
    peak_rss_mib: float = 0.0

    @property
    def rate(self) -> float:
        return self.bound / self.seconds if self.seconds else 0.0


class BenchEnvironment(msgspec.Struct, frozen=True):
    kubeconfig: Path
    programs: Programs
    on_step: Callable[[str], None]


def tasks_of(sizes: Sequence[int], parts: Sequence[str], contenders: Sequence[str], rounds: int) -> list[Task]:
    """Contenders in turn, and in reverse turn in every second round."""
    tasks = []
    for nodes in sizes:
        for number in range(rounds):
            order = contenders if number % 2 == 0 else [*reversed(contenders)]
            for name in order:
                if BACKLOG in parts:
                    tasks.append(Task(BACKLOG, name, nodes, min(6_000, 3 * nodes)))
                if STEADY in parts and name not in (LIMIT, PACKING):
                    tasks.append(Task(STEADY, name, nodes, 0, 20.0))
            if GANGS in parts:
                tasks.append(Task(GANGS, WINDLASS, nodes, min(2_000, nodes // GANG_SIZE * GANG_SIZE)))
        if MEMORY in parts:  # once: a full cluster takes minutes to make
            tasks += [
                Task(MEMORY, name, nodes, PODS_A_NODE * nodes) for name in contenders if name not in (LIMIT, PACKING)
            ]
    return tasks


async def measure(environment: BenchEnvironment, tasks: Sequence[Task], done: Callable[[int], None]) -> list[Result]:
    results = []
    async with KubeClient(load_client_config(str(environment.kubeconfig)), timeout_seconds=TIMEOUT_SECONDS) as client:
        scene = BenchCluster(client)
        for task in tasks:
            environment.on_step(f"{task.part}: {task.contender} on {task.nodes} nodes")
            if task.part == MEMORY:
                await _fill(scene, task)
            else:
                await scene.prepare(task.nodes)
            results.append(await _measure_one(environment, scene, task))
            done(len(results))
        await scene.delete_pods()
    return results


async def _measure_one(environment: BenchEnvironment, scene: BenchCluster, task: Task) -> Result:
    if task.contender == LIMIT:
        return await _limit(scene, task)
    contender = start_scheduler(task.contender, environment.kubeconfig, environment.programs)
    try:
        await contender.ready()
        async with scene.watch_binds():
            if task.part == MEMORY:
                await asyncio.sleep(SETTLE_SECONDS)
                return _result(scene, contender, task, time.monotonic(), 0.0)
            if task.part == STEADY:
                return await _steady(scene, contender, task)
            return await _backlog(scene, contender, task)
    finally:
        contender.stop()


async def _fill(scene: BenchCluster, task: Task) -> None:
    """So many pods that run already; for the second contender they are there."""
    if await scene.count() == task.pods:
        return
    await scene.prepare(task.nodes)
    await scene.create(running_pod(number, task.nodes) for number in range(task.pods))


async def _backlog(scene: BenchCluster, contender: SchedulerProcess, task: Task) -> Result:
    """Everything is there before the contender may look at it."""
    contender.pause()
    name = SCHEDULER_NAMES[task.contender]
    if task.part == GANGS:
        gangs = (f"gang-{number // GANG_SIZE}" for number in range(task.pods))
        await scene.create(pod(number, name, gang, GANG_SIZE) for number, gang in enumerate(gangs))
    else:
        await scene.create(pod(number, name) for number in range(task.pods))
    before, began = contender.usage(), time.monotonic()
    contender.resume()
    await scene.wait_until_bound(task.pods, QUIET_SECONDS)
    return _result(scene, contender, task, began, before.cpu_seconds)


async def _steady(scene: BenchCluster, contender: SchedulerProcess, task: Task) -> Result:
    """Pods come at a steady rate and go five seconds after they came, bound or not."""
    name = SCHEDULER_NAMES[task.contender]
    before, began = contender.usage(), time.monotonic()
    works: list[asyncio.Task[None]] = []
    for number in range(int(STEADY_SECONDS * task.rate)):
        await asyncio.sleep(max(0.0, began + number / task.rate - time.monotonic()))
        works.append(asyncio.create_task(_come_and_go(scene, pod(number, name))))
    await asyncio.gather(*works)
    return _result(scene, contender, task, began, before.cpu_seconds)


async def _come_and_go(scene: BenchCluster, tree: dict[str, Any]) -> None:
    await scene.create([tree])
    await asyncio.sleep(5.0)
    await scene.delete(tree["metadata"]["name"])


async def _limit(scene: BenchCluster, task: Task) -> Result:
    """A binding and an event for each pod, in turn over the nodes, as many in flight as the others have."""
    await scene.create(pod(number, SCHEDULER_NAMES[LIMIT]) for number in range(task.pods))
    items: Any = (await scene.client.get(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=BENCH_LABEL))["items"]
    recorder = EventRecorder(scene.client, "bench")
    events = asyncio.create_task(recorder.run())
    slots = asyncio.Semaphore(2 * IN_FLIGHT)

    async def bind(number: int, key: str, uid: str) -> None:
        async with slots:
            await scene.client.send(bind_pod(key, uid, name_of_node(number % task.nodes), {}))
            recorder.record(Event(EventRegarding("Pod", key, uid), "Scheduled", f"Assigned {key}", "Binding"))

    began, cpu = time.monotonic(), time.process_time()
    names = [(f"{NAMESPACE}/{item['metadata']['name']}", item["metadata"]["uid"]) for item in items]
    await asyncio.gather(*(bind(number, *name) for number, name in enumerate(names)))
    seconds = time.monotonic() - began
    await recorder.drain(30)
    events.cancel()
    await asyncio.gather(events, return_exceptions=True)
    return Result(task, len(names), seconds, cpu_seconds=time.process_time() - cpu)


def _result(scene: BenchCluster, contender: SchedulerProcess, task: Task, began: float, cpu: float) -> Result:
    after = contender.usage()
    end = max(scene.bound_at.values(), default=began)
    waits = sorted(
        max(0.0, at - scene.created_at[name]) for name, at in scene.bound_at.items() if name in scene.created_at
    )
    return Result(
        task,
        len(scene.bound_at),
        end - began,
        quantile(waits, 0.5),
        quantile(waits, 0.99),
        after.cpu_seconds - cpu,
        after.peak_rss_mib,
    )


def quantile(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0
