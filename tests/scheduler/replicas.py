"""Replicas of the whole scheduler on one fake API, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.apply.objects import node, plural_of
from tests.apply.scene import metric
from tests.kube.fake_api import FakeApi
from tests.kube.memory_client import MemoryClient

from windlass.model.unstructured import Unstructured
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.scheduler import Scheduler

LEASE = "windlass-system/windlass-scheduler"


def cluster(*trees: Unstructured) -> FakeApi:
    api = FakeApi()
    api.serve_watched_kinds()
    for tree in (node("n1"), *trees):
        api.store(plural_of(tree), tree)
    return api


class Replica:
    """A scheduler with a client of its own."""

    def __init__(self, api: FakeApi, identity: str = "first", **options: Any) -> None:
        self.api, self.client = api, MemoryClient(api)
        made = SchedulerOptions(identity=identity, **{"warm_up": False, **options})
        self.scheduler = Scheduler(self.client, made)
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(self.scheduler.run(self.stop))

    async def end(self) -> None:
        self.stop.set()
        await self.task

    def node_of(self, name: str) -> str:
        found: str = self.api.get("pods", f"team/{name}")["spec"].get("nodeName", "")
        return found

    def writes(self) -> list[str]:
        """Method and path of what was written, without events and the lease."""
        return [
            f"{request.method} {request.path}"
            for request in self.client.writes()
            if "/events" not in request.path and "/leases" not in request.path
        ]

    def metric(self, name: str, **labels: str) -> float:
        return metric(self.scheduler.metrics, name, **labels)


@asynccontextmanager
async def running(*trees: Unstructured, **options: Any) -> AsyncIterator[Replica]:
    replica = Replica(cluster(*trees), **options)
    await asyncio.sleep(1)
    try:
        yield replica
    finally:
        await replica.end()


def holder(api: FakeApi) -> str:
    found: str = api.get("leases", LEASE)["spec"]["holderIdentity"]
    return found
