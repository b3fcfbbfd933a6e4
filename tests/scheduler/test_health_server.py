"""What the kubelet and Prometheus read: 200 or 503 with the reason, and the metrics as text."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from windlass.model.errors import InputError
from windlass.scheduler.health_server import HealthServer

pytestmark = pytest.mark.asyncio


class Health:
    def __init__(self) -> None:
        self.unhealthy = self.not_ready = ""
        self.server = HealthServer(lambda: self.unhealthy, lambda: self.not_ready, lambda: b"metric 1\n")

    async def get(self, path: str) -> tuple[int, str, str]:
        url = f"http://127.0.0.1:{self.server.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text(), response.headers["Content-Type"]


@pytest_asyncio.fixture
async def health() -> AsyncIterator[Health]:
    made = Health()
    await made.server.start("127.0.0.1", 0)
    yield made
    await made.server.stop()


async def test_a_healthy_scheduler_says_ok_everywhere(health: Health) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert (await health.get(path))[:2] == (200, "ok")


@pytest.mark.parametrize("path", ["/healthz", "/livez"])
async def test_a_sick_scheduler_says_what_is_wrong(health: Health, path: str) -> None:
    health.unhealthy = "no scheduling cycle for 200 s"
    assert (await health.get(path))[:2] == (503, "no scheduling cycle for 200 s")
    assert (await health.get("/readyz"))[:2] == (200, "ok"), "the two are asked apart"


async def test_a_scheduler_that_is_not_ready_says_why(health: Health) -> None:
    health.not_ready = "informers not synced: pods"
    assert (await health.get("/readyz"))[:2] == (503, "informers not synced: pods")
    assert (await health.get("/healthz"))[:2] == (200, "ok")


async def test_metrics_are_prometheus_text(health: Health) -> None:
    assert await health.get("/metrics") == (200, "metric 1\n", "text/plain; version=0.0.4; charset=utf-8")


async def test_there_is_nothing_else(health: Health) -> None:
    assert (await health.get("/"))[0] == 404


async def test_an_address_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = Health().server
        with pytest.raises(InputError, match=rf"127\.0\.0\.1:{port}.*can't listen.*check --listen") as caught:
            await server.start("127.0.0.1", port)
        assert "in use" in str(caught.value)
        assert "Errno" not in str(caught.value), "words, not numbers"
        await server.stop()


async def test_a_server_that_was_never_started_has_no_port_and_can_be_stopped() -> None:
    server = Health().server
    assert server.port == 0
    await server.stop()
