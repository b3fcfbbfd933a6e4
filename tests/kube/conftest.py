"""A fake API server and a client of it, for each test that asks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from tests.kube.fake_server import FakeServer

from windlass.kube.client import KubeClient


@pytest_asyncio.fixture
async def server() -> AsyncIterator[FakeServer]:
    made = await FakeServer().start()
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def client(server: FakeServer) -> AsyncIterator[KubeClient]:
    async with KubeClient(server.access) as made:
        yield made
