"""Steady state with churn: pods come and go on a nearly full cluster, a tenth of them in gangs. `cli.live` calls it.

To kube-scheduler a gang is single pods. What each contender decides in is its own histogram: Windlass decides on all
pods that wait at once, kube-scheduler on one.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence

import msgspec

from windlass.kube.client import KubeClient
from windlass.kube.client_config import load_client_config
from windlass_bench.live.bench_cluster import BenchCluster
from windlass_bench.live.churn_stream import GPUS_A_NODE, STEP_SECONDS, StreamedPod, draw_stream, replay_fgd
from windlass_bench.live.contenders import SCHEDULER_NAMES, SchedulerProcess, start_scheduler
from windlass_bench.live.run import QUIET_SECONDS, TIMEOUT_SECONDS, BenchEnvironment, quantile

RATE, SECONDS, SEED = 200.0, 60.0, 42
_BUCKET = re.compile(
    r'^scheduler_scheduling_algorithm_duration_seconds_bucket\{.*?le="(?P<le>[^"]+)".*?\} (?P<count>\S+)$', re.MULTILINE
)


class ChurnResult(msgspec.Struct, frozen=True):
    contender: str
    nodes: int
    asked_rate: float
    arrived: int
    bound: int
    seconds: float
    """That the stream took: longer than planned where the API server could not keep up."""
    p50: float
    p99: float
    decision_p99: float | None
    """Upper bound of the bucket of the scheduler's own histogram."""
    allocated: float
    """GPUs in the mean, as a share of the cluster's."""
    fgd_allocated: float
    cpu_seconds: float
    peak_rss_mib: float


async def measure_churn(
    environment: BenchEnvironment, nodes: int, contenders: Sequence[str], rate: float = RATE, seconds: float = SECONDS
) -> list[ChurnResult]:
    stream = draw_stream(nodes, rate, seconds, SEED)
    environment.on_step(f"churn: FGD's replay on {nodes} nodes")
    replayed = replay_fgd(stream, nodes, seconds)
    fgd = sum(replayed) / len(replayed) / (GPUS_A_NODE * nodes)
    results = []
    config = load_client_config(str(environment.kubeconfig))
    async with KubeClient(config, timeout_seconds=TIMEOUT_SECONDS) as client:
        cluster = BenchCluster(client)
        for name in contenders:
            environment.on_step(f"churn: {name} on {nodes} nodes, {rate:g} pods a second")
            await cluster.prepare(nodes)
            contender = start_scheduler(name, environment.kubeconfig, environment.programs)
            try:
                await contender.ready()
                async with cluster.watch_binds():
                    played = await _play(cluster, contender, name, stream)
            finally:
                contender.stop()
            results.append(_result(played, name, nodes, rate, fgd))
        await cluster.delete_pods()
    return results


class _Played(msgspec.Struct):
    stream: Sequence[StreamedPod]
    began: float
    ended: float
    created_at: dict[str, float]
    bound_at: dict[str, float]
    deleted_at: dict[str, float]
    metrics: str
    cpu_seconds: float
    peak_rss_mib: float


async def _play(
    cluster: BenchCluster, contender: SchedulerProcess, name: str, stream: Sequence[StreamedPod]
) -> _Played:
    scheduler = SCHEDULER_NAMES[name]
    present = [pod for pod in stream if pod.arrives < 0]
    await cluster.create(pod.tree(scheduler) for pod in present)
    await cluster.wait_until_bound(len(present), QUIET_SECONDS)
    before, began = contender.usage(), time.monotonic()
    deleted_at: dict[str, float] = {}

    async def live(pod: StreamedPod) -> None:
        if pod.arrives >= 0:
            await asyncio.sleep(max(0.0, began + pod.arrives - time.monotonic()))
            await cluster.create([pod.tree(scheduler)])
        await asyncio.sleep(max(0.0, began + pod.leaves - time.monotonic()))
        await cluster.delete(pod.name)
        deleted_at[pod.name] = time.monotonic()

    last = max(pod.arrives for pod in stream)
    works = [asyncio.create_task(live(pod)) for pod in stream]
    await asyncio.sleep(max(0.0, began + last - time.monotonic()))
    while len(cluster.created_at) < len(stream):
        await asyncio.sleep(0.1)
    ended, after = time.monotonic(), contender.usage()
    metrics = await contender.metrics()
    for work in works:
        work.cancel()
    await asyncio.gather(*works, return_exceptions=True)
    cpu = after.cpu_seconds - before.cpu_seconds
    times = dict(cluster.created_at), dict(cluster.bound_at)
    return _Played(stream, began, ended, *times, deleted_at, metrics, cpu, after.peak_rss_mib)


def _result(played: _Played, name: str, nodes: int, rate: float, fgd: float) -> ChurnResult:
    arrived = [pod for pod in played.stream if pod.arrives >= 0]
    bound = {pod.name: played.bound_at[pod.name] for pod in arrived if pod.name in played.bound_at}
    waits = sorted(max(0.0, at - played.created_at[pod]) for pod, at in bound.items())
    return ChurnResult(
        name,
        nodes,
        rate,
        len(arrived),
        len(bound),
        played.ended - played.began,
        quantile(waits, 0.5),
        quantile(waits, 0.99),
        decision_quantile(played.metrics, 0.99),
        _mean_allocated(played) / (GPUS_A_NODE * nodes),
        fgd,
        played.cpu_seconds,
        played.peak_rss_mib,
    )


def _mean_allocated(played: _Played) -> float:
    """GPUs of bound pods that were not deleted, in the mean over the stream."""
    total, steps = 0, max(1, int((played.ended - played.began) / STEP_SECONDS))
    for step in range(steps):
        now = played.began + step * STEP_SECONDS
        total += sum(
            pod.gpus
            for pod in played.stream
            if played.bound_at.get(pod.name, now + 1) <= now < played.deleted_at.get(pod.name, now + 1)
        )
    return total / steps


def decision_quantile(metrics: str, share: float) -> float | None:
    """From the scheduler's histogram: the upper bound of the bucket in which the quantile lies; None without one."""
    buckets = sorted((float(found["le"]), float(found["count"])) for found in _BUCKET.finditer(metrics))
    if not buckets or not buckets[-1][1]:
        return None
    return next(bound for bound, count in buckets if count >= share * buckets[-1][1])
