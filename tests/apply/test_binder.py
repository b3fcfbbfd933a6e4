"""Binds come to a known end, whatever the server does; evictions go all or none."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from tests.kube.fake_server import FakeServer, refusal

from windlass.apply.binder import Binder, BindOutcome, BindResult
from windlass.apply.evictor import Evictor, Victim
from windlass.kube.client import KubeClient
from windlass.kube.events import EventRecorder
from windlass.model.decision import Bind, DeviceGrant
from windlass.model.unstructured import Unstructured

pytestmark = pytest.mark.asyncio


def pod(name: str) -> Unstructured:
    return {"metadata": {"name": name, "namespace": "a"}, "spec": {"containers": []}}


async def bind(server: FakeServer, client: KubeClient, name: str, leads: bool = True) -> BindOutcome:
    outcomes: list[BindOutcome] = []
    binder = Binder(client, lambda: leads, outcomes.append)
    uid = (
        server.get("pods", f"a/{name}")["metadata"]["uid"]
        if f"a/{name}" in server.objects["pods"]
        else "gone"
    )
    binder.bind(Bind(f"a/{name}", "n1", (DeviceGrant(0), DeviceGrant(3))), uid)
    await asyncio.wait_for(binder.drain(), 20)
    return outcomes[0]


async def test_a_bind_says_which_devices(server: FakeServer, client: KubeClient) -> None:
    await server.put("pods", pod("p"))
    outcome = await bind(server, client, "p")
    assert outcome.result is BindResult.BOUND
    bound = server.get("pods", "a/p")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"windlass.dev/devices": "0,3"}


async def test_somebody_else_was_quicker(server: FakeServer, client: KubeClient) -> None:
    taken = pod("p")
    taken["spec"]["nodeName"] = "n2"
    await server.put("pods", taken)
    assert (await bind(server, client, "p")).result is BindResult.GONE


async def test_the_pod_is_gone(server: FakeServer, client: KubeClient) -> None:
    server.objects["pods"] = {}
    assert (await bind(server, client, "p")).result is BindResult.GONE


async def test_a_refusal_is_one(server: FakeServer, client: KubeClient) -> None:
    await server.put("pods", pod("p"))
    server.faults.append(lambda request: refusal(403, "no") if request.path.endswith("binding") else None)
    outcome = await bind(server, client, "p")
    assert outcome.result is BindResult.REFUSED
    assert "403" in outcome.error
    assert outcome.refusal == "no"


async def test_nothing_is_sent_without_the_lease(server: FakeServer, client: KubeClient) -> None:
    await server.put("pods", pod("p"))
    assert (await bind(server, client, "p", leads=False)).result is BindResult.REFUSED
    assert not server.requests


@pytest.mark.parametrize("happened", [True, False])
async def test_without_an_answer_the_pod_itself_is_asked(
    server: FakeServer, client: KubeClient, happened: bool
) -> None:
    await server.put("pods", pod("p"))
    count = [0]

    def lost(request: web.Request) -> web.Response | None:
        if not request.path.endswith("binding"):
            return None
        count[0] += 1
        if happened:
            server.objects["pods"]["a/p"]["spec"]["nodeName"] = "n1"
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    server.faults.append(lost)
    outcome = await bind(server, client, "p")
    assert outcome.result is (BindResult.BOUND if happened else BindResult.REFUSED)
    assert count[0] == 1, "it is not sent twice"


async def test_a_budget_that_refuses_one_victim_keeps_all(server: FakeServer, client: KubeClient) -> None:
    victims = [await server.put("pods", pod(f"v{number}")) for number in range(3)]

    def budget(request: web.Request) -> web.Response | None:
        kept = request.path.endswith("v2/eviction")
        return (
            refusal(429, "Cannot evict pod as it would violate the pod's disruption budget.")
            if kept
            else None
        )

    server.faults.append(budget)
    evictor = Evictor(client, EventRecorder(client, "me"), lambda: True, lambda count: None)
    names = tuple((f"a/{one['metadata']['name']}", one["metadata"]["uid"]) for one in victims)
    evictor.evict("a/urgent", [Victim("a/gang", names, "Priority")])
    await asyncio.wait_for(evictor.drain(), 10)
    assert evictor.refusals == 1
    assert all("deletionTimestamp" not in one["metadata"] for one in server.objects["pods"].values())
    assert {query.get("dryRun") for method, _, query in server.requests if method == "POST"} == {"All"}


async def test_a_budget_that_refuses_halfway_is_asked_until_it_agrees(
    server: FakeServer, client: KubeClient
) -> None:
    victims = [await server.put("pods", pod(f"v{number}")) for number in range(3)]
    refused: list[str] = []

    def budget(request: web.Request) -> web.Response | None:
        if request.path.endswith("v2/eviction") and "dryRun" not in request.query and len(refused) < 1:
            refused.append(request.path)
            return refusal(429, "not now")
        return None

    server.faults.append(budget)
    gone: list[int] = []
    evictor = Evictor(client, EventRecorder(client, "me"), lambda: True, gone.append)
    names = tuple((f"a/{one['metadata']['name']}", one["metadata"]["uid"]) for one in victims)
    evictor.evict("a/urgent", [Victim("a/gang", names, "Priority")])
    evictor.evict("a/urgent", [Victim("a/gang", names, "Priority")])
    await asyncio.wait_for(evictor.drain(), 10)
    assert refused
    assert gone == [3], "once, though it was asked for twice"
    assert all("deletionTimestamp" in one["metadata"] for one in server.objects["pods"].values())
