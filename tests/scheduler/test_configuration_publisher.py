"""The published configuration: written by the leader only, again after a failure, and never in anybody's way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from windlass.kube.errors import ApiError, LeaseLost, ServerUnavailable, Status
from windlass.kube.request import Request
from windlass.model.configuration import Settings
from windlass.scheduler import configuration_publisher
from windlass.scheduler.configuration_publisher import ConfigurationPublisher
from windlass.scheduler.options import SchedulerOptions

pytestmark = pytest.mark.asyncio


class Server:
    """Answers with these errors first, and then well."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.sent = list(errors), list[Request]()
        self.written = asyncio.Event()

    async def send(self, request: Request, allowed: Any = None) -> bytes:
        if self.errors:
            raise self.errors.pop(0)
        self.sent.append(request)
        self.written.set()
        return b"{}"


def publisher(server: Server, may_write: bool = True, **options: Any) -> ConfigurationPublisher:
    return ConfigurationPublisher(
        server, SchedulerOptions(settings=Settings(seed=3), **options), lambda: may_write
    )  # type: ignore[arg-type]


async def test_it_is_applied_beside_the_lease() -> None:
    server = Server()
    assert await publisher(server, lease_namespace="lab", lease_name="mine").publish()
    (request,) = server.sent
    assert (request.method, request.content_type) == ("PATCH", "application/apply-patch+yaml")
    assert request.path == "/api/v1/namespaces/lab/configmaps/mine-configuration"
    assert "seed: 3" in request.body["data"]["config.yaml"]


async def test_what_fails_is_tried_again_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(configuration_publisher, "RETRY_SECONDS", 0.0)
    missing = ApiError(404, Status(message='namespaces "windlass-system" not found'))
    server = Server(missing, missing, ServerUnavailable("away"), LeaseLost("lost"))
    task = asyncio.create_task(publisher(server).run())
    await asyncio.wait_for(server.written.wait(), 10)
    task.cancel()
    assert len(caplog.records) == 2, "the same failure again is no news"
    assert "namespaces" in caplog.text


@pytest.mark.parametrize(("may_write", "shadow"), [(False, False), (True, True)])
async def test_a_follower_and_a_shadow_write_nothing(
    monkeypatch: pytest.MonkeyPatch, may_write: bool, shadow: bool
) -> None:
    monkeypatch.setattr(configuration_publisher, "RETRY_SECONDS", 0.0)
    server = Server()
    task = asyncio.create_task(publisher(server, may_write, shadow=shadow).run())
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()
    assert not server.sent
