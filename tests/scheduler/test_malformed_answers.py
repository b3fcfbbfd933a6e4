"""An answer that can't be read is no answer: it is asked for again, and nothing ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.apply.objects import pod
from tests.kube.fake_api import FakeApi
from tests.kube.memory_client import MemoryClient, lost_answer
from tests.kube.virtual_time import in_virtual_time
from tests.scheduler.replicas import LEASE, cluster

from windlass.kube.request import Request
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.scheduler import Scheduler

GARBAGE = [b"", b"{", b"[]", b"{}", b"null", b"<html>502</html>", b'{"items": 3}', b'{"metadata": []}', b"\xff"]
PATHS = ["/apis", "/api/v1", "/api/v1/pods", "/api/v1/nodes", f"/leases/{LEASE.partition('/')[2]}", "kueue.x-k8s.io"]


class GarblingClient(MemoryClient):
    """Some answers are garbage."""

    def __init__(self, api: FakeApi, garbles: Callable[[Request], bool], garbage: bytes) -> None:
        super().__init__(api)
        self.garbles, self._garbage = garbles, garbage

    async def _send_once(self, request: Request) -> bytes:
        body = await super()._send_once(request)
        return self._garbage if self.garbles(request) else body


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("garbage", GARBAGE)
@in_virtual_time
async def test_the_scheduler_goes_on(path: str, garbage: bytes) -> None:
    is_garbled = True
    api = cluster(pod("p"))
    client = GarblingClient(api, lambda request: is_garbled and request.path.endswith(path), garbage)
    scheduler = Scheduler(client, SchedulerOptions(identity="first", warm_up=False))
    stop = asyncio.Event()
    running = asyncio.create_task(scheduler.run(stop))
    await asyncio.sleep(20)
    assert not running.done(), "a malformed answer must not end it"
    is_garbled = False
    await asyncio.sleep(40)
    assert api.get("pods", "team/p")["spec"].get("nodeName") == "n1"
    assert scheduler.not_ready() == ""
    stop.set()
    await running


@pytest.mark.parametrize("garbage", GARBAGE)
@in_virtual_time
async def test_what_was_known_stays_while_answers_are_garbage(garbage: bytes) -> None:
    """Above all `{}`, which looks like an empty list: as if everything had been deleted."""
    is_garbled = False
    api = cluster(pod("runs", on="n1", gpus=8))
    client = GarblingClient(api, lambda request: is_garbled and request.path.endswith("/pods"), garbage)
    scheduler = Scheduler(client, SchedulerOptions(identity="first", warm_up=False))
    stop = asyncio.Event()
    running = asyncio.create_task(scheduler.run(stop))
    await asyncio.sleep(1)
    is_garbled = True
    relist = asyncio.create_task(scheduler.informers.relist("Pod"))
    await asyncio.sleep(20)
    scheduler.cache.drain_inbox()
    assert "team/runs" in scheduler.cache.pods
    is_garbled = False
    await relist
    stop.set()
    await running


@pytest.mark.parametrize("garbage", GARBAGE)
@in_virtual_time
async def test_a_bind_whose_outcome_can_not_be_read_stays_assumed(garbage: bytes) -> None:
    is_garbled = True
    api = cluster(pod("p", gpus=8))
    client = GarblingClient(api, lambda request: is_garbled and "fieldSelector" in dict(request.query), garbage)
    client.fail("POST binding", lost_answer(), times=1, is_applied=True)
    scheduler = Scheduler(client, SchedulerOptions(identity="first", warm_up=False))
    stop = asyncio.Event()
    running = asyncio.create_task(scheduler.run(stop))
    await asyncio.sleep(5)
    assert "team/p" in scheduler.cache.assumed or scheduler.cache.pods["team/p"].is_bound
    assert scheduler.executor.binder.in_flight == 1, "it asks again"
    is_garbled = False
    await asyncio.sleep(20)
    assert scheduler.executor.binder.in_flight == 0
    stop.set()
    await running
