"""Kueue shows itself by its lease or its webhooks; a stale lease is no Kueue."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from unittest import mock

import pytest
from tests.kube.fake_server import FakeServer

from windlass.kube.client import KubeClient
from windlass.kube.errors import ServerUnavailable
from windlass.kube.events import micro_time
from windlass.scheduler.kueue_watch import POLL_SECONDS, kueue_is_live, watch_kueue

pytestmark = pytest.mark.asyncio


async def lease(server: FakeServer, renewed: float, holder: str = "kueue-0") -> None:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": micro_time(renewed)}
    metadata = {"name": "c1f6bfd2.kueue.x-k8s.io", "namespace": "kueue-system"}
    await server.put("leases", {"metadata": metadata, "spec": spec})


async def test_a_cluster_without_kueue(client: KubeClient) -> None:
    assert not await kueue_is_live(client)


async def test_a_lease_that_is_renewed(client: KubeClient, server: FakeServer) -> None:
    await lease(server, time.time())
    assert await kueue_is_live(client)


async def test_a_lease_that_nobody_renews(client: KubeClient, server: FakeServer) -> None:
    await lease(server, time.time() - 3600)
    assert not await kueue_is_live(client)


async def test_webhooks_of_a_kueue_that_restarts(client: KubeClient, server: FakeServer) -> None:
    server.groups["admissionregistration.k8s.io/v1"] = ("validatingwebhookconfigurations",)
    name = "kueue-validating-webhook-configuration"
    await server.put("validatingwebhookconfigurations", {"metadata": {"name": name}})
    assert await kueue_is_live(client)


class Away:
    """A server that gives no answer."""

    async def send(self, request: Any) -> bytes:
        raise ServerUnavailable("away")


async def test_a_server_that_is_away_is_asked_less_and_less_often() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 12:
            raise asyncio.CancelledError

    away: Any = Away()
    with (
        mock.patch("windlass.scheduler.kueue_watch.asyncio.sleep", sleep),
        pytest.raises(asyncio.CancelledError),
    ):
        await watch_kueue(away, mock.Mock(), asyncio.Event())
    assert pauses[0] <= 0.5
    assert POLL_SECONDS / 2 <= pauses[-1] <= POLL_SECONDS
    assert len(set(pauses)) == len(pauses), "with jitter"
