"""The plan executor with the scheduler's own cache, on a fake API in memory; the watch shows changes when told to.

async with Scene(node("n1"), pod("p")).running() as scene:
    scene.execute(Plan(binds=(Bind("team/p", "n1"),)))
    await scene.executor.drain()
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from tests.apply.objects import plural_of
from tests.kube.fake_api import FakeApi
from tests.kube.memory_client import MemoryClient

from windlass.apply.executor import PlanExecutor
from windlass.cluster.delta import Deleted, Put
from windlass.cluster.snapshot import Snapshot
from windlass.engine import EngineCache, decide
from windlass.kube.events import EventRecorder
from windlass.kube.resources import WATCHED_KINDS
from windlass.model.codec import Unreadable, decode_kind
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured
from windlass.planner import engine_config
from windlass.scheduler.cache import SchedulerCache
from windlass.scheduler.metrics import Metrics
from windlass.scheduler.options import SchedulerOptions


class Scene:
    def __init__(self, *trees: Unstructured, **options: Any) -> None:
        self.api = FakeApi()
        self.api.serve_watched_kinds()
        self.client = MemoryClient(self.api)
        self.options = SchedulerOptions(**options)
        self.cache = SchedulerCache(self.options)
        self.leads = True
        self.metrics = Metrics()
        self.recorder = EventRecorder(self.client, "test")
        self.executor = PlanExecutor(
            self.client,
            self.cache,
            self.recorder,
            self.metrics,
            lambda: self.leads,
            self.client.resource_for,
        )
        self._engine_cache = EngineCache()
        self._shown = 0
        self.put(*trees)
        self.watch()
        self.cache.flush(int(time.time()))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Scene]:
        """With everything that writes in the background."""
        jobs = (self.recorder.run(), self.executor.conditions.run(), self.executor.run_reporter())
        tasks = [asyncio.create_task(job) for job in jobs]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for task in tasks:
                assert task.cancelled(), "a background task has failed"

    # The cluster

    def put(self, *trees: Unstructured) -> None:
        for tree in trees:
            self.api.store(plural_of(tree), tree)

    def get(self, plural: str, name: str) -> Unstructured:
        return self.api.get(plural, f"team/{name}")

    def watch(self) -> None:
        """The cache gets every change that it has not had."""
        history, self._shown = self.api.history[self._shown :], len(self.api.history)
        for _, plural, change, tree in history:
            for kind in WATCHED_KINDS:
                if kind.plural != plural or not tree["apiVersion"].startswith(kind.group):
                    continue
                if change == "DELETED":
                    self.cache.push([Deleted(kind.kind, self._key(tree), kind.group)])
                else:
                    self.cache.push([Put(_decoded(tree))])
                break

    def events(self, name: str = "") -> list[Unstructured]:
        """Those that were sent, about the object of this name."""
        found = self.api.objects.get("events", {}).values()
        return [event for event in found if name in ("", event["regarding"]["name"])]

    # Decisions

    def snapshot(self) -> Snapshot:
        now = int(time.time())
        self.cache.flush(now)
        return self.cache.store.snapshot(now)

    def execute(self, plan: Plan, snapshot: Snapshot | None = None) -> None:
        self.executor.execute(plan, snapshot or self.snapshot())

    def decide(self) -> Plan:
        """The engine decides on what the watch has shown, and the plan is executed."""
        snapshot = self.snapshot()
        config = engine_config(self.options.settings)
        plan = decide(snapshot, config, int(time.time()), self._engine_cache)
        self.cache.store.mark_decided(snapshot.pods.pending())
        self.executor.execute(plan, snapshot)
        return plan

    def metric(self, name: str, **labels: str) -> float:
        return metric(self.metrics, name, **labels)

    @staticmethod
    def _key(tree: Unstructured) -> str:
        meta = tree["metadata"]
        return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def _decoded(tree: Unstructured) -> Any:
    """As the informer decodes it."""
    obj = decode_kind(msgspec.json.encode(tree), tree["kind"], tree["apiVersion"])
    if isinstance(obj, Unreadable):
        return msgspec.structs.replace(obj, uid=tree["metadata"]["uid"], api_version=tree["apiVersion"])
    return obj


def metric(metrics: Metrics, name: str, **labels: str) -> float:
    """A sample as Prometheus reads it; 0 if there is none."""
    families = text_string_to_metric_families(metrics.text().decode())
    samples = (sample for family in families for sample in family.samples)
    return next((sample.value for sample in samples if sample.name == name and sample.labels == labels), 0.0)
