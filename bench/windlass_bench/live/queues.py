"""Queued Jobs on a real API server: Windlass, and Kueue with kube-scheduler, one after the other.

`cli.live` calls `measure_queues`. A Job is created suspended; it is started when its last pod is bound. 500 Jobs fill
100 nodes exactly; where there are more, pods end `RUN_SECONDS` after their binding and Jobs start in waves.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from windlass.kube.client import KubeClient
from windlass.kube.client_config import load_client_config
from windlass_bench.live.bench_cluster import IN_FLIGHT
from windlass_bench.live.contenders import PACKING, PEER, SCHEDULER_NAMES, WINDLASS, SchedulerProcess, start_scheduler
from windlass_bench.live.kueue_process import install_crds, start_kueue
from windlass_bench.live.queue_cluster import QueueCluster
from windlass_bench.live.queue_objects import job, pods_of
from windlass_bench.live.request_counts import Key, conflicts_of, created, request_counts, writes_of
from windlass_bench.live.run import TIMEOUT_SECONDS, BenchEnvironment, quantile

NODES, GPUS_A_NODE = 100, 8
RATE = 10.0
"""Jobs a second of the last case: no contender has a backlog then."""
RUN_SECONDS = 2.0
QUIET_SECONDS = 60.0
"""A contender that has bound nothing for so long is done."""
WITH_KUEUE = {PEER: "kueue + kube-scheduler", PACKING: "kueue + kube-scheduler, packing"}


class QueueTask(msgspec.Struct, frozen=True):
    contender: str
    """Windlass, or the kube-scheduler beside Kueue."""
    nodes: int
    jobs: int
    rate: float = 0.0
    """Jobs created a second; 0: as fast as the server takes them."""

    @property
    def name(self) -> str:
        return WITH_KUEUE.get(self.contender, self.contender)

    @property
    def ends(self) -> bool:
        """Whether there is no room for all of them at once."""
        return sum(map(pods_of, range(self.jobs))) > GPUS_A_NODE * self.nodes


class QueueResult(msgspec.Struct, frozen=True):
    task: QueueTask
    started: int
    seconds: float
    """From the first creation to the last start."""
    p50: float
    p99: float
    writes: int
    needed_writes: int
    """A Workload and its status, the Job, its pods' bindings; of a Job that ends, the Workload's status once more."""
    conflicts: int
    duplicate_creates: int
    cpu_seconds: float
    peak_rss_mib: float

    @property
    def rate(self) -> float:
        return self.started / self.seconds if self.seconds else 0.0


def queue_tasks(nodes: int, sizes: Sequence[int], contenders: Sequence[str], rate: float) -> list[QueueTask]:
    """Bursts of each size, then the smallest size again as arrivals at a steady rate."""
    tasks = [QueueTask(name, nodes, jobs) for jobs in sizes for name in contenders]
    return tasks + [QueueTask(name, nodes, min(sizes), rate) for name in contenders if rate]


async def measure_queues(
    environment: BenchEnvironment, kueue: Path | None, crds: Path, tasks: Sequence[QueueTask]
) -> list[QueueResult]:
    config = load_client_config(str(environment.kubeconfig))
    results = []
    async with KubeClient(config, timeout_seconds=TIMEOUT_SECONDS) as client:
        await install_crds(client, crds)
        cluster = QueueCluster(client)
        for task in tasks:
            environment.on_step(f"queues: {task.name}, {task.jobs} Jobs on {task.nodes} nodes")
            await cluster.prepare(task.nodes)
            await cluster.create_queue(GPUS_A_NODE * task.nodes)
            cluster.run_seconds = RUN_SECONDS if task.ends else None
            processes = _start(environment, kueue, task)
            try:
                for process in processes:
                    await process.ready()
                results.append(await _measure(cluster, processes, task))
                await cluster.delete_jobs()
            finally:
                for process in processes:
                    process.stop()
        await cluster.remove_finalizers()
    return results


def _start(environment: BenchEnvironment, kueue: Path | None, task: QueueTask) -> list[SchedulerProcess]:
    scheduler = start_scheduler(task.contender, environment.kubeconfig, environment.programs)
    if task.contender == WINDLASS:
        return [scheduler]
    assert kueue is not None
    return [start_kueue(kueue, environment.kubeconfig), scheduler]


async def _measure(cluster: QueueCluster, processes: Sequence[SchedulerProcess], task: QueueTask) -> QueueResult:
    before = await request_counts(cluster.client)
    cpu = sum(process.usage().cpu_seconds for process in processes)
    began = time.monotonic()
    async with cluster.watch_binds():
        creating = asyncio.create_task(_create_jobs(cluster, task))
        await cluster.wait_until_started(task.jobs, QUIET_SECONDS)
        usages = [process.usage() for process in processes]
        await creating
    counts = await request_counts(cluster.client)
    counts.subtract(before)
    return _result(
        cluster, task, began, counts, (sum(u.cpu_seconds for u in usages) - cpu, sum(u.peak_rss_mib for u in usages))
    )


async def _create_jobs(cluster: QueueCluster, task: QueueTask) -> None:
    slots = asyncio.Semaphore(IN_FLIGHT)
    scheduler, began = SCHEDULER_NAMES[task.contender], time.monotonic()

    async def create(number: int) -> None:
        async with slots:
            await cluster.create_job(job(number, scheduler))

    works = []
    for number in range(task.jobs):
        if task.rate:
            await asyncio.sleep(max(0.0, began + number / task.rate - time.monotonic()))
        works.append(asyncio.create_task(create(number)))
    await asyncio.gather(*works)


def _result(
    cluster: QueueCluster, task: QueueTask, began: float, counts: Counter[Key], usage: tuple[float, float]
) -> QueueResult:
    started = cluster.started_at
    waits = sorted(max(0.0, at - cluster.created_at[name]) for name, at in started.items())
    pods = sum(cluster.sizes[name] for name in started)
    return QueueResult(
        task,
        len(started),
        max(started.values(), default=began) - began,
        quantile(waits, 0.5),
        quantile(waits, 0.99),
        writes_of(counts, task.jobs),
        (4 if task.ends else 3) * len(started) + pods,
        conflicts_of(counts),
        max(0, created(counts, "workloads") - task.jobs),
        *usage,
    )
