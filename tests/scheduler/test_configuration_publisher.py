"""The published configuration: beside the lease, by the leader only, restored, and never in anybody's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml
from tests.kube.fake_api import FakeApi, refused
from tests.kube.memory_client import MemoryClient, lost_answer
from tests.kube.virtual_time import in_virtual_time, settle

from windlass.model.codec import decode_object
from windlass.model.configuration import SchedulerConfiguration, Settings, scheduler_settings
from windlass.scheduler.configuration_publisher import ConfigurationPublisher, config_map_request
from windlass.scheduler.options import SchedulerOptions

SETTINGS = Settings(seed=3, node_selector={"pool": "gpu"}, gang_grace_seconds=90)
WRITE = "PATCH configmaps/mine-configuration"


class Publishing:
    def __init__(self, **options: Any) -> None:
        self.client = MemoryClient(FakeApi())
        self.leads = True
        names = {"lease_namespace": "lab", "lease_name": "mine"}
        made = SchedulerOptions(settings=SETTINGS, **names, **options)
        self.publisher = ConfigurationPublisher(self.client, made, lambda: self.leads)

    @property
    def writes(self) -> int:
        return len(self.client.sent)


@asynccontextmanager
async def publishing(**options: Any) -> AsyncIterator[Publishing]:
    made = Publishing(**options)
    task = asyncio.create_task(made.publisher.run())
    await settle()
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled(), "a failure here must never stop scheduling"


def test_the_config_map_has_a_name_a_label_and_the_whole_configuration() -> None:
    request = config_map_request("lab/mine-configuration", SETTINGS)
    assert (request.method, request.content_type) == ("PATCH", "application/apply-patch+yaml")
    assert request.path == "/api/v1/namespaces/lab/configmaps/mine-configuration"
    assert dict(request.query) == {"fieldManager": "windlass", "force": "true"}
    assert (request.body["apiVersion"], request.body["kind"]) == ("v1", "ConfigMap")
    assert request.body["metadata"] == {
        "name": "mine-configuration",
        "namespace": "lab",
        "labels": {"windlass.dev/published": "configuration"},
    }


def test_what_is_published_is_read_as_the_same_settings() -> None:
    request = config_map_request("lab/mine-configuration", SETTINGS)
    (document,) = yaml.safe_load_all(request.body["data"]["config.yaml"])
    assert list(document)[:2] == ["apiVersion", "kind"], "in the order of the reference"
    read = decode_object(document)
    assert isinstance(read, SchedulerConfiguration)
    assert scheduler_settings(read) == SETTINGS


@in_virtual_time
async def test_it_is_applied_beside_the_lease() -> None:
    async with publishing() as made:
        published = made.client.api.get("configmaps", "lab/mine-configuration")
        assert "seed: 3" in published["data"]["config.yaml"]


@in_virtual_time
async def test_it_is_written_again_every_five_minutes() -> None:
    async with publishing() as made:
        assert made.writes == 1
        made.client.api.remove("configmaps", "lab/mine-configuration")
        await asyncio.sleep(299)
        assert made.writes == 1
        await asyncio.sleep(2)
        assert made.writes == 2
        assert made.client.api.get("configmaps", "lab/mine-configuration")


@pytest.mark.parametrize(
    "error", [refused(404, "no namespace"), refused(403, "no"), refused(500, "etcd"), lost_answer()]
)
@in_virtual_time
async def test_what_fails_is_tried_again_after_five_seconds_and_said_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    made = Publishing()
    made.client.fail(WRITE, error, times=3)
    task = asyncio.create_task(made.publisher.run())
    await asyncio.sleep(4.9)
    assert made.writes == 1
    await asyncio.sleep(0.2)
    assert made.writes == 2
    await asyncio.sleep(10)
    assert made.writes == 4
    assert made.client.api.get("configmaps", "lab/mine-configuration")
    assert len(caplog.records) == 1, "the same failure again is no news"
    assert "lab/mine-configuration was not written" in caplog.text
    task.cancel()


@in_virtual_time
async def test_another_failure_or_one_after_a_success_is_news(caplog: pytest.LogCaptureFixture) -> None:
    made = Publishing()
    for error in (refused(403, "b"), refused(403, "a"), refused(403, "a")):
        made.client.fail(WRITE, error, times=1)
        assert not await made.publisher.publish()
    assert len(caplog.records) == 2
    assert await made.publisher.publish()
    made.client.fail(WRITE, refused(403, "a"), times=1)
    assert not await made.publisher.publish()
    assert len(caplog.records) == 3


@in_virtual_time
async def test_a_follower_writes_nothing_until_it_leads() -> None:
    made = Publishing()
    made.leads = False
    task = asyncio.create_task(made.publisher.run())
    await asyncio.sleep(600)
    assert made.writes == 0
    assert not await made.publisher.publish()
    made.leads = True
    await asyncio.sleep(5.1)
    assert made.writes == 1
    task.cancel()


@in_virtual_time
async def test_who_loses_the_lease_at_the_last_moment_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    made = Publishing()
    made.leads = False
    assert not await made.publisher.publish()
    assert not caplog.records


@in_virtual_time
async def test_a_shadow_writes_nothing() -> None:
    async with publishing(shadow=True) as made:
        await asyncio.sleep(600)
        assert made.writes == 0
