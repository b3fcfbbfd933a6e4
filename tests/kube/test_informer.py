"""List and watch against a server that misbehaves: nothing is lost, nothing is told twice, nobody is hammered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from tests.kube.fake_server import FakeServer, refusal

from windlass.cluster.delta import Deleted, Delta, Put
from windlass.kube.client import KubeClient
from windlass.kube.informer import Informer
from windlass.kube.informers import Informers
from windlass.kube.resources import PODS, WATCHED_KINDS
from windlass.model.codec import Unreadable, object_id
from windlass.model.unstructured import Unstructured

pytestmark = pytest.mark.asyncio


class Told:
    """A sink that keeps the state it was told of, and every change."""

    def __init__(self) -> None:
        self.there: dict[tuple[str, str], object] = {}
        self.puts: list[str] = []
        self.gone: list[str] = []

    def __call__(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            if isinstance(delta, Put):
                thing = delta.object
                if isinstance(thing, Unreadable):
                    kind, key = thing.kind, f"{thing.namespace}/{thing.name}"
                else:
                    _, kind, key = object_id(thing)
                self.there[kind, key] = thing
                self.puts.append(key)
            else:
                assert isinstance(delta, Deleted)
                self.there.pop((delta.kind, delta.key), None)
                self.gone.append(delta.key)

    def names(self, kind: str = "Pod") -> set[str]:
        return {key for one, key in self.there if one == kind}


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def pod(name: str, **spec: object) -> Unstructured:
    return {"metadata": {"name": name, "namespace": "a"}, "spec": {"containers": [{"name": "c"}], **spec}}


@asynccontextmanager
async def running(page: int = 1000) -> AsyncIterator[tuple[FakeServer, Told, Informer]]:
    server = await FakeServer().start()
    told = Told()
    async with KubeClient(server.access) as client:
        informer = Informer(client, PODS, told, page=page)
        task = asyncio.create_task(informer.run())
        try:
            yield server, told, informer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await server.stop()


async def test_lists_in_chunks_and_then_follows() -> None:
    server = await FakeServer().start()
    for number in range(7):
        await server.put("pods", pod(f"p{number}"))
    told = Told()
    async with KubeClient(server.access) as client:
        informer = Informer(client, PODS, told, page=3)
        task = asyncio.create_task(informer.run())
        await asyncio.wait_for(informer.synced.wait(), 5)
        assert told.names() == {f"a/p{number}" for number in range(7)}
        pages = [query for _, path, query in server.requests if path.endswith("/pods") and "limit" in query]
        assert [one.get("continue") for one in pages] == [None, "107:3", "107:6"]
        await server.put("pods", pod("p7"))
        await server.delete("pods", "a/p0")
        await until(lambda: told.names() == {f"a/p{number}" for number in range(1, 8)})
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await server.stop()


async def test_a_broken_watch_goes_on_where_it_was() -> None:
    async with running() as (server, told, informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        await server.put("pods", pod("one"))
        await until(lambda: "a/one" in told.names())
        await server.stop()
        server.hang_up.clear()
        await server.put("pods", pod("two"))
        await server.start()
        await until(lambda: "a/two" in told.names())
        assert told.puts == ["a/one", "a/two"], "nothing is told twice"
        lists = [query for _, path, query in server.requests if path.endswith("/pods") and "limit" in query]
        assert len(lists) == 1, "no second list was needed"


async def test_410_leads_to_a_new_list_that_notices_what_has_gone() -> None:
    async with running() as (server, told, informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        await server.put("pods", pod("stays"))
        await server.put("pods", pod("goes"))
        await until(lambda: len(told.names()) == 2)
        await server.stop()
        server.hang_up.clear()
        await server.delete("pods", "a/goes")
        await server.put("pods", pod("comes"))
        server.compact()
        await server.start()
        await until(lambda: told.names() == {"a/stays", "a/comes"})
        assert told.gone == ["a/goes"]
        assert told.puts.count("a/stays") == 1, "what didn't change isn't told again"


async def test_429_is_waited_out() -> None:
    async with running() as (server, _told, informer):
        times: list[float] = []

        def busy(request: web.Request) -> web.Response | None:
            if "limit" in request.query and len(times) < 2:
                times.append(asyncio.get_running_loop().time())
                return refusal(429, "too many requests", retry_after=1)
            return None

        server.faults.append(busy)
        started = asyncio.get_running_loop().time()
        await asyncio.wait_for(informer.synced.wait(), 10)
        assert len(times) == 2
        assert asyncio.get_running_loop().time() - started >= 2.0


async def test_a_server_that_hangs_up_at_once_is_not_hammered() -> None:
    async with running() as (server, _told, informer):
        server.hang_up.set()
        await asyncio.wait_for(informer.synced.wait(), 5)
        await asyncio.sleep(1.2)
        watches = [query for _, _, query in server.requests if "watch" in query]
        assert len(watches) <= 4


async def test_an_object_of_a_megabyte_is_one_line_like_any_other() -> None:
    async with running() as (server, told, informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        large = pod("large")
        large["metadata"]["annotations"] = {"x": "y" * 1_500_000}
        await server.put("pods", large)
        await server.put("pods", pod("small"))
        await until(lambda: told.names() == {"a/large", "a/small"})


async def test_what_cannot_be_read_comes_by_name_and_the_rest_goes_on() -> None:
    async with running() as (server, told, informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        await server.put("pods", pod("odd", nodeName="n1", priority="high"))
        await server.put("pods", pod("fine"))
        await until(lambda: "a/fine" in told.names())
        odd = told.there["Pod", "a/odd"]
        assert isinstance(odd, Unreadable)
        assert odd.node_name == "n1"
        assert "spec.priority" in str(odd.error)


async def test_kinds_come_and_go() -> None:
    server = await FakeServer().start()
    told = Told()
    async with KubeClient(server.access) as client:
        informers = Informers(client, told, WATCHED_KINDS, rediscovery_seconds=0.05)
        task = asyncio.create_task(informers.run())
        await asyncio.wait_for(informers.synced.wait(), 5)
        assert informers.resource_for("LocalQueue", "kueue.x-k8s.io") is None
        server.groups["kueue.x-k8s.io/v1beta1"] = ("localqueues",)
        queue = {"metadata": {"name": "q", "namespace": "a"}, "spec": {"clusterQueue": "c"}}
        await server.put("localqueues", queue)
        await until(lambda: told.names("LocalQueue") == {"a/q"})
        server.groups["kueue.x-k8s.io/v1beta2"] = ("localqueues",)
        await until(lambda: getattr(informers.resource_for("LocalQueue", "kueue.x-k8s.io"), "version", "") == "v1beta2")
        await until(lambda: told.names("LocalQueue") == {"a/q"})
        assert told.gone == [], "the change of version took nothing away, not even for a moment"
        del server.groups["kueue.x-k8s.io/v1beta1"], server.groups["kueue.x-k8s.io/v1beta2"]
        await until(lambda: told.names("LocalQueue") == set())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await server.stop()


async def test_a_watch_that_ends_before_its_first_list_is_started_again() -> None:
    """By an error that nobody expects. Else the scheduler would wait for it for ever, and say nothing."""
    server = await FakeServer().start()
    await server.put("pods", pod("p"))
    told, faults = Told(), [ZeroDivisionError("a bug")]

    def handler(deltas: Sequence[Delta]) -> None:
        if faults and any(isinstance(delta, Put) for delta in deltas):
            raise faults.pop()
        told(deltas)

    async with KubeClient(server.access) as client:
        informers = Informers(client, handler, WATCHED_KINDS, rediscovery_seconds=0.05)
        task = asyncio.create_task(informers.run())
        await asyncio.wait_for(informers.synced.wait(), 20)
        assert told.names() == {"a/p"}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await server.stop()


async def test_a_kind_that_is_missed_once_is_not_gone() -> None:
    """A server that has just started may not list every kind yet."""
    server = await FakeServer().start()
    server.groups["kueue.x-k8s.io/v1beta2"] = ("localqueues",)
    await server.put("localqueues", {"metadata": {"name": "q", "namespace": "a"}, "spec": {"clusterQueue": "c"}})
    told = Told()
    async with KubeClient(server.access) as client:
        informers = Informers(client, told, WATCHED_KINDS, rediscovery_seconds=0.3)
        task = asyncio.create_task(informers.run())
        await asyncio.wait_for(informers.synced.wait(), 5)
        looks = sum(path == "/apis" for _, path, _ in server.requests)
        del server.groups["kueue.x-k8s.io/v1beta2"]
        await until(lambda: sum(path == "/apis" for _, path, _ in server.requests) == looks + 1)
        server.groups["kueue.x-k8s.io/v1beta2"] = ("localqueues",)
        await until(lambda: sum(path == "/apis" for _, path, _ in server.requests) == looks + 3)
        assert told.names("LocalQueue") == {"a/q"}
        assert told.gone == []
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await server.stop()


async def test_an_optional_kind_that_we_may_not_see_holds_nobody_up() -> None:
    server = await FakeServer().start()
    server.groups["ray.io/v1"] = ("rayjobs",)
    server.faults.append(lambda request: refusal(403, "no") if "rayjobs" in request.path else None)
    async with KubeClient(server.access) as client:
        informers = Informers(client, Told())
        task = asyncio.create_task(informers.run())
        await asyncio.wait_for(informers.synced.wait(), 5)
        assert not informers.is_watched("RayJob", "ray.io")
        await asyncio.wait_for(informers.relist("Pod", "RayJob"), 15)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await server.stop()


async def test_a_kind_that_somebody_needs_is_looked_for_at_once() -> None:
    server = await FakeServer().start()
    told = Told()
    async with KubeClient(server.access) as client:
        informers = Informers(client, told, WATCHED_KINDS, rediscovery_seconds=3600)
        task = asyncio.create_task(informers.run())
        await asyncio.wait_for(informers.synced.wait(), 5)
        server.groups["ray.io/v1"] = ("rayjobs",)
        assert informers.is_watched("RayJob", "ray.io"), "nobody knows yet that it isn't"
        await until(lambda: informers.resource_for("RayJob", "ray.io") is not None)
        assert informers.is_watched("RayJob", "ray.io")
        assert informers.is_watched("MPIJob", "kubeflow.org")
        await until(lambda: not informers.is_watched("MPIJob", "kubeflow.org"))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await server.stop()
