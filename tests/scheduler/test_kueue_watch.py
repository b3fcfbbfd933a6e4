"""Kueue shows itself by its lease or its webhooks; a stale lease is no Kueue, and a silent server changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from tests.apply.objects import job
from tests.apply.scene import Scene
from tests.kube.fake_api import FakeApi, refused
from tests.kube.memory_client import MemoryClient, lost_answer
from tests.kube.virtual_time import in_virtual_time, settle

from windlass.kube.errors import TooManyRequests
from windlass.kube.events import micro_time
from windlass.scheduler.kueue_watch import kueue_is_live, watch_kueue

LEASE = "GET leases/c1f6bfd2.kueue.x-k8s.io"


def add_lease(api: FakeApi, age: float, **spec: Any) -> None:
    """Renewed so many seconds ago."""
    known = {
        "holderIdentity": "kueue-0",
        "leaseDurationSeconds": 15,
        "renewTime": micro_time(time.time() - age),
    }
    metadata = {"name": "c1f6bfd2.kueue.x-k8s.io", "namespace": "kueue-system"}
    fields = {name: value for name, value in {**known, **spec}.items() if value is not None}
    api.store("leases", {"metadata": metadata, "spec": fields})


def add_webhooks(api: FakeApi) -> None:
    api.groups["admissionregistration.k8s.io/v1"] = ("validatingwebhookconfigurations",)
    metadata = {"name": "kueue-validating-webhook-configuration"}
    api.store("validatingwebhookconfigurations", {"metadata": metadata})


async def is_live(api: FakeApi) -> bool:
    return await kueue_is_live(MemoryClient(api))


@in_virtual_time
async def test_a_cluster_without_kueue() -> None:
    assert not await is_live(FakeApi())


@pytest.mark.parametrize(
    ("age", "spec", "live"),
    [
        (0, {}, True),
        (29, {}, True),
        (31, {}, False),
        (59, {"leaseDurationSeconds": 30}, True),
        (61, {"leaseDurationSeconds": 30}, False),
        (29, {"leaseDurationSeconds": None}, True),
        (31, {"leaseDurationSeconds": None}, False),
        (0, {"holderIdentity": ""}, False),
        (0, {"holderIdentity": None}, False),
        (0, {"renewTime": None}, False),
    ],
)
@in_virtual_time
async def test_a_lease_is_alive_for_twice_its_duration(age: float, spec: dict[str, Any], live: bool) -> None:
    api = FakeApi()
    add_lease(api, age, **spec)
    assert await is_live(api) is live


@in_virtual_time
async def test_a_lease_without_a_spec_is_nobodys() -> None:
    api = FakeApi()
    metadata = {"name": "c1f6bfd2.kueue.x-k8s.io", "namespace": "kueue-system"}
    api.store("leases", {"metadata": metadata})
    assert not await is_live(api)


@pytest.mark.parametrize("age", [None, 3600])
@in_virtual_time
async def test_the_webhooks_of_a_kueue_that_restarts_are_enough(age: float | None) -> None:
    client = MemoryClient(FakeApi())
    add_webhooks(client.api)
    if age is not None:
        add_lease(client.api, age)
    assert await kueue_is_live(client)
    assert client.sent[-1].path == (
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kueue-validating-webhook-configuration"
    )


@in_virtual_time
async def test_without_the_right_to_look_there_is_no_kueue() -> None:
    client = MemoryClient(FakeApi())
    client.fail(LEASE, refused(403, "no"))
    client.fail("GET kueue-validating-webhook-configuration", refused(403, "no"))
    assert not await kueue_is_live(client)


@asynccontextmanager
async def watching(scene: Scene) -> AsyncIterator[asyncio.Event]:
    detected = asyncio.Event()
    task = asyncio.create_task(watch_kueue(scene.client, scene.cache, detected))
    try:
        yield detected
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled(), "the watch has failed"


@in_virtual_time
async def test_the_cache_learns_within_seconds_that_kueue_has_come_and_later_that_it_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    scene = Scene(job("train"))
    async with watching(scene) as detected:
        await settle()
        assert detected.is_set()
        assert not scene.cache.responsibility.kueue_is_live
        assert not scene.cache.changed.is_set(), "nothing has changed"
        add_webhooks(scene.api)
        await asyncio.sleep(4.9)
        assert not scene.cache.responsibility.kueue_is_live
        await asyncio.sleep(0.2)
        assert scene.cache.responsibility.kueue_is_live
        assert scene.cache.changed.is_set(), "the owners of its queues are looked at again"
        scene.snapshot()
        assert scene.cache.owners.without_parents() == []
        scene.api.remove("validatingwebhookconfigurations", "kueue-validating-webhook-configuration")
        await asyncio.sleep(15)
        assert not scene.cache.responsibility.kueue_is_live
        scene.snapshot()
        assert len(scene.cache.owners.without_parents()) == 1
    assert [record.getMessage() for record in caplog.records if "Kueue" in record.getMessage()] == [
        "Kueue is live and decides on quota",
        "Kueue is not live: Windlass decides on quota",
    ]


@in_virtual_time
async def test_a_server_without_answers_is_asked_less_and_less_often_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.cache.responsibility.kueue_is_live = True
    scene.client.fail(LEASE, lost_answer(), times=40)
    async with watching(scene) as detected:
        await asyncio.sleep(60)
        assert not detected.is_set(), "nothing is known yet"
        assert scene.cache.responsibility.kueue_is_live
        await asyncio.sleep(700)
        assert detected.is_set()
        assert not scene.cache.responsibility.kueue_is_live
        pauses = [later - earlier for earlier, later in pairwise(scene.client.times(LEASE))]
        assert pauses[0] <= 0.5
        assert 12 < max(pauses[:39]) <= 15
        assert "can't detect whether Kueue is live" in caplog.text


@in_virtual_time
async def test_after_an_answer_failures_begin_with_short_pauses_again() -> None:
    scene = Scene()
    scene.client.fail(LEASE, refused(500, "etcd"), times=8)
    async with watching(scene) as detected:
        await asyncio.wait_for(detected.wait(), 600)
        scene.client.fail(LEASE, refused(500, "etcd"), times=1)
        asked = len(scene.client.times(LEASE))
        await asyncio.sleep(5.6)
        assert len(scene.client.times(LEASE)) == asked + 2, "half a second at most after the failure"


@in_virtual_time
async def test_a_server_that_says_when_to_come_back_is_asked_then() -> None:
    scene = Scene()
    scene.client.fail(LEASE, TooManyRequests(429, refused(429, "busy").status, retry_after=30.0), times=6)
    async with watching(scene):
        await asyncio.sleep(400)
        pauses = [later - earlier for earlier, later in pairwise(scene.client.times(LEASE))]
        assert min(pauses[:6]) >= 30
