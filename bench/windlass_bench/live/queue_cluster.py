"""The benchmark's cluster with a queue: creates and deletes Jobs, ends their pods, and knows when each was started.

Used by `live.queues` for every contender alike. There is no kubelet: a pod that is to end is written as Succeeded.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from windlass.kube.errors import ApiError, Conflict, NotFound
from windlass.kube.request import MERGE_PATCH, Request
from windlass.kube.resources import KUEUE_API_GROUP, PODS
from windlass.model.unstructured import Unstructured
from windlass_bench.live.bench_cluster import BenchCluster, run_all
from windlass_bench.live.objects import NAMESPACE
from windlass_bench.live.queue_objects import queue_objects

JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
KUEUE = f"/apis/{KUEUE_API_GROUP}/v1beta2"
WORKLOADS = f"{KUEUE}/namespaces/{NAMESPACE}/workloads"
DELETE_SECONDS = 300.0
NO_FINALIZERS = {"metadata": {"finalizers": None}}


class QueueCluster(BenchCluster):
    """`created_at` and `started_at` are of Jobs: a Job is started when all of its pods are bound."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sizes: dict[str, int] = {}
        self.started_at: dict[str, float] = {}
        self.run_seconds: float | None = None
        """Seconds from a pod's binding to its end; None: it doesn't end."""
        self._bound_pods: dict[str, int] = {}
        self._ends: set[asyncio.Task[None]] = set()

    async def prepare(self, nodes: int) -> None:
        """Without what a run that was broken off has left."""
        with contextlib.suppress(NotFound):
            await self._delete_all(JOBS, {"propagationPolicy": "Background"})
            await self.remove_finalizers()
        await super().prepare(nodes)

    async def create_queue(self, gpus: int) -> None:
        for plural, tree in queue_objects(gpus):
            namespace = tree["metadata"].get("namespace")
            path = f"{KUEUE}/namespaces/{namespace}/{plural}" if namespace else f"{KUEUE}/{plural}"
            with contextlib.suppress(Conflict):
                await self.client.send(Request("POST", path, body=tree))

    async def create_job(self, tree: Unstructured) -> None:
        name = tree["metadata"]["name"]
        self.sizes[name] = tree["spec"]["parallelism"]
        await self.client.send(Request("POST", JOBS, body=tree))
        self.created_at[name] = time.monotonic()

    def _note(self, name: str, node_name: str) -> None:
        if not node_name or name in self.bound_at:
            return
        super()._note(name, node_name)
        job = name.rpartition("-")[0]
        self._bound_pods[job] = self._bound_pods.get(job, 0) + 1
        if self._bound_pods[job] == self.sizes.get(job):
            self.started_at[job] = self.bound_at[name]
        if self.run_seconds is not None:
            task = asyncio.create_task(self._end(name, self.run_seconds))
            self._ends.add(task)
            task.add_done_callback(self._ends.discard)

    async def _end(self, pod: str, after: float) -> None:
        await asyncio.sleep(after)
        path, body = PODS.path(f"{NAMESPACE}/{pod}", "status"), {"status": {"phase": "Succeeded"}}
        with contextlib.suppress(NotFound):
            await self.client.send(Request("PATCH", path, body=body, content_type=MERGE_PATCH))

    async def wait_until_started(self, wanted: int, quiet: float) -> None:
        """Until so many Jobs are started, or no pod was bound for a while."""
        last, since = -1, time.monotonic()
        while len(self.started_at) < wanted and time.monotonic() - since < quiet:
            if len(self.bound_at) != last:
                last, since = len(self.bound_at), time.monotonic()
            await asyncio.sleep(0.05)

    async def delete_jobs(self) -> None:
        """No Jobs, pods, Workloads or events, while the contender still runs: it takes its finalizers off."""
        await self._delete_all(JOBS, {"propagationPolicy": "Background"})
        deadline = time.monotonic() + DELETE_SECONDS
        for path in (JOBS, WORKLOADS):
            while await self._remaining(path) and time.monotonic() < deadline:
                await self._delete_all(path, {"propagationPolicy": "Background"})
                await asyncio.sleep(1)
        for task in [*self._ends]:
            task.cancel()
        await self.delete_pods()
        self.sizes, self.started_at, self._bound_pods = {}, {}, {}

    async def _remaining(self, path: str) -> bool:
        try:
            return bool((await self.client.get(path, limit="1"))["items"])
        except ApiError:
            return False

    async def remove_finalizers(self) -> None:
        """Of Workloads that a contender has left."""
        left: Any = (await self.client.get(WORKLOADS))["items"] or ()
        names = [tree["metadata"]["name"] for tree in left]
        await run_all(self._remove_finalizers(f"{WORKLOADS}/{name}") for name in names)
        await self._delete_all(WORKLOADS, {})

    async def _remove_finalizers(self, path: str) -> None:
        with contextlib.suppress(NotFound):
            await self.client.send(Request("PATCH", path, body=NO_FINALIZERS, content_type=MERGE_PATCH))
