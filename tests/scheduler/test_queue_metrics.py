"""Per-queue metrics under Kueue's names, for queues in which Windlass admits."""

from __future__ import annotations

import asyncio

from tests.apply.objects import job, queues
from tests.kube.virtual_time import in_virtual_time
from tests.scheduler.replicas import running

QUEUE = {"cluster_queue": "cluster"}
CELL = {**QUEUE, "cohort": "", "flavor": "default", "resource": "nvidia.com/gpu"}


@in_virtual_time
async def test_counts_usage_and_quota_are_kueues() -> None:
    async with running(*queues(quota=2), job("runs", gpus=2), job("waits", gpus=2)) as replica:
        await asyncio.sleep(5)
        assert replica.metric("kueue_pending_workloads", **QUEUE, status="active") == 1
        assert replica.metric("kueue_pending_workloads", **QUEUE, status="inadmissible") == 0
        assert replica.metric("kueue_admitted_active_workloads", **QUEUE) == 1
        assert replica.metric("kueue_reserving_active_workloads", **QUEUE) == 1
        assert replica.metric("kueue_cluster_queue_resource_usage", **CELL) == 2
        assert replica.metric("kueue_cluster_queue_nominal_quota", **CELL) == 2
        assert replica.metric("kueue_cluster_queue_status", **QUEUE, status="active") == 1
        assert replica.metric("kueue_admitted_workloads_total", **QUEUE) == 1


@in_virtual_time
async def test_where_kueue_admits_it_has_the_metrics() -> None:
    async with running(*queues(quota=2), job("runs", gpus=2)) as replica:
        await asyncio.sleep(5)
        replica.scheduler.cache.responsibility.kueue_is_live = True
        assert b"kueue_pending_workloads{" not in replica.scheduler.metrics.text()


@in_virtual_time
async def test_a_stopped_queue_says_so() -> None:
    async with running(*queues(quota=2, stopPolicy="Hold"), job("waits", gpus=2)) as replica:
        await asyncio.sleep(5)
        assert replica.metric("kueue_pending_workloads", **QUEUE, status="inadmissible") == 1
        assert replica.metric("kueue_cluster_queue_status", **QUEUE, status="active") == 0
