"""The cluster of the benchmark: creates and deletes nodes and pods, and watches when each pod was bound.

Used by `live.run` for every contender alike, with Windlass's own client.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import Any

import msgspec

from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, Conflict, NotFound, ServerUnavailable
from windlass.kube.request import MERGE_PATCH, Request
from windlass.kube.resources import NODES, PODS
from windlass.model.errors import InputError
from windlass.model.names.windlass import BENCH_LABEL
from windlass.model.unstructured import Unstructured
from windlass_bench.live.objects import NAMESPACE, node

IN_FLIGHT = 48
SILENCE = 600.0


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Event(msgspec.Struct):
    type: str
    object: _Pod


_EVENTS = msgspec.json.Decoder(_Event)


class BenchCluster:
    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.bound_at: dict[str, float] = {}
        self.created_at: dict[str, float] = {}

    async def prepare(self, nodes: int) -> None:
        """So many nodes of ours; a cluster with others is refused."""
        found = (await self.client.get(NODES.collection))["items"] or ()
        if any(BENCH_LABEL not in (node["metadata"].get("labels") or {}) for node in found):
            raise InputError("the cluster has nodes of its own", remedy="use a cluster that was made for this")
        with contextlib.suppress(Conflict):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            await self.client.send(Request("POST", "/api/v1/namespaces", body=body))
        await self.delete_pods()
        await run_all(self._make_node(number) for number in range(len(found), nodes))
        extra = [node["metadata"]["name"] for node in found[nodes:]]
        await run_all(self.client.send(Request("DELETE", NODES.path(name))) for name in extra)

    async def _make_node(self, number: int) -> None:
        tree = node(number)
        with contextlib.suppress(Conflict):
            await self.client.send(Request("POST", NODES.collection, body=tree))
        path = NODES.path(tree["metadata"]["name"], "status")
        status = {"status": tree["status"]}
        await self.client.send(Request("PATCH", path, body=status, content_type=MERGE_PATCH))

    async def create(self, pods: Iterable[Unstructured]) -> None:
        await run_all(self._make(tree) for tree in pods)

    async def _make(self, tree: Unstructured) -> None:
        await self.client.send(Request("POST", PODS.namespace_collection(NAMESPACE), body=tree))
        self.created_at[tree["metadata"]["name"]] = time.monotonic()

    async def delete(self, name: str) -> None:
        options = {"gracePeriodSeconds": 0}
        with contextlib.suppress(NotFound):
            await self.client.send(Request("DELETE", PODS.path(f"{NAMESPACE}/{name}"), body=options))

    async def delete_pods(self) -> None:
        """No pods, and no events of them."""
        await self._delete_all(PODS.namespace_collection(NAMESPACE), {"gracePeriodSeconds": 0})
        await self._delete_all(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events", {})
        while (await self.client.get(PODS.namespace_collection(NAMESPACE), limit="1"))["items"]:
            await asyncio.sleep(0.2)
        self.bound_at, self.created_at = {}, {}

    async def _delete_all(self, path: str, options: Unstructured) -> None:
        """However long it takes: a server that is short of time gives up in the middle of many, and says 504."""
        while True:
            try:
                await self.client.send(Request("DELETE", path, body=options))
            except ApiError as error:
                if error.code != 504:
                    raise
            else:
                return

    async def count(self) -> int:
        """Pods of ours that are there."""
        found: Any = await self.client.get(PODS.namespace_collection(NAMESPACE), limit="1")
        more = found["metadata"].get("remainingItemCount", 0)
        return len(found["items"] or ()) + int(more)

    @contextlib.asynccontextmanager
    async def watch_binds(self) -> AsyncIterator[None]:
        """Notes when pods are bound, as a watch tells it."""
        listed: Any = await self.client.get(PODS.namespace_collection(NAMESPACE), limit="1")
        version = listed["metadata"]["resourceVersion"]
        task = asyncio.create_task(self._watch(version))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self, version: str) -> None:
        """However often the server ends it: what was missed is listed then."""
        while True:
            with contextlib.suppress(ApiError, ServerUnavailable):
                await self._watch_once(version)
            pods: Any = await self.client.get(PODS.namespace_collection(NAMESPACE))
            version = pods["metadata"]["resourceVersion"]
            for pod in pods["items"] or ():
                self._note(pod["metadata"]["name"], pod["spec"].get("nodeName", ""))

    async def _watch_once(self, version: str) -> None:
        query = (("watch", "1"), ("resourceVersion", version), ("timeoutSeconds", "3600"))
        lines = self.client.stream_lines(Request("GET", PODS.namespace_collection(NAMESPACE), query), SILENCE)
        async with contextlib.aclosing(lines):
            async for line in lines:
                event = _EVENTS.decode(line)
                if event.type == "ERROR":
                    return
                self._note(event.object.metadata.name, event.object.spec.node_name)

    def _note(self, name: str, node_name: str) -> None:
        if node_name:
            self.bound_at.setdefault(name, time.monotonic())

    async def wait_until_bound(self, wanted: int, quiet: float) -> None:
        """Until so many are bound, or nobody new for a while."""
        last, since = -1, time.monotonic()
        while len(self.bound_at) < wanted and time.monotonic() - since < quiet:
            if len(self.bound_at) != last:
                last, since = len(self.bound_at), time.monotonic()
            await asyncio.sleep(0.1)


async def run_all(works: Iterable[Awaitable[Any]]) -> None:
    """All of them, so many at a time."""
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def limited(work: Awaitable[Any]) -> None:
        async with slots:
            await work

    await asyncio.gather(*(limited(work) for work in works))
