"""Kueue shows itself by its lease or its webhooks; a stale lease is no Kueue."""

from __future__ import annotations

import time

import pytest
from tests.kube.fake_server import FakeServer

from windlass.kube.client import KubeClient
from windlass.kube.events import micro_time
from windlass.scheduler.kueue_watch import kueue_is_live

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
