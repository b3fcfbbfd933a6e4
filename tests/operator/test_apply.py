"""The operator's side effects: one hook call for one ticket, evictions that a budget refuses, and requests as data."""

from __future__ import annotations

import msgspec
import pytest
from aiohttp import web

from windlass.kube.client import KubeClient
from windlass.kube.client_config import ClientConfig
from windlass.kube.credentials import StaticCredentials
from windlass.kube.events import EventRecorder
from windlass.kube.request import Request
from windlass.model.node import Taint
from windlass.operator.apply import Applier, patch_node
from windlass.operator.cache import OperatorCache, decode_observed, observed_object
from windlass.operator.decide.pool import NodePatch
from windlass.operator.observed import Invalid, NodeView
from windlass.operator.writes import CallTicketHook, EvictPods, PatchNode

REPAIR = {
    "apiVersion": "windlass.dev/v1alpha1",
    "kind": "GPURepair",
    "metadata": {"name": "r", "uid": "u", "resourceVersion": "7"},
    "spec": {"node": "n", "device": 3},
    "status": {"phase": "Ticket", "ticket": {"state": "Calling"}},
}


class Client(KubeClient):
    """Answers every request with what was sent, as a server that stores it would."""

    def __init__(self) -> None:
        super().__init__(ClientConfig("http://memory", StaticCredentials()))
        self.sent: list[Request] = []

    async def _send_once(self, request: Request) -> bytes:
        self.sent.append(request)
        return msgspec.json.encode({**REPAIR, **(request.body or {})})


def applier() -> tuple[Applier, Client, OperatorCache]:
    client, cache = Client(), OperatorCache("windlass-node")
    cache.put_answer("GPURepair", "windlass.dev/v1alpha1", msgspec.json.encode(REPAIR))
    return Applier(client, cache, EventRecorder(client, "test"), lambda: True), client, cache


@pytest.mark.asyncio
async def test_a_hook_that_fails_is_not_hammered_and_one_that_answers_is_called_once() -> None:
    calls: list[tuple[str, object]] = []
    status = 500

    async def hook(request: web.Request) -> web.Response:
        calls.append((request.headers["Idempotency-Key"], await request.json()))
        return web.Response(status=status, text="TICKET-1")

    app = web.Application()
    app.router.add_post("/new", hook)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        write = CallTicketHook("r", "u", f"http://127.0.0.1:{runner.addresses[0][1]}/new", {"node": "n"})
        acting, client, _ = applier()
        for _ in range(3):
            assert await acting.apply(write)
        assert calls == [("u", {"node": "n"})]
        assert client.sent == []  # it did not answer well: the ticket is not called yet
        status = 200
        acting, client, cache = applier()  # another replica, or a minute later
        await acting.apply(write)
        (request,) = client.sent
        assert request.body["status"]["ticket"]["state"] == "Called"
        assert request.body["status"]["ticket"]["reference"] == "TICKET-1"
        assert cache.find("GPURepair", "r").status.ticket.state == "Called"
    finally:
        await runner.cleanup()


@pytest.mark.asyncio
async def test_evictions_are_tried_before_one_is_made() -> None:
    acting, client, _ = applier()
    await acting.apply(EvictPods((("team/a", "1"), ("team/b", "2")), "change r590"))
    await acting.evictor.drain()
    dry = [("dryRun", "All") in request.query for request in client.sent]
    assert dry == [True, True, False, False]
    assert {request.path for request in client.sent} == {
        "/api/v1/namespaces/team/pods/a/eviction",
        "/api/v1/namespaces/team/pods/b/eviction",
    }


def test_a_node_is_patched_only_as_it_was_seen() -> None:
    write = PatchNode("n", "12", {"a": None}, {}, (Taint(key="k", effect="NoSchedule"),))
    request = patch_node(write)
    assert msgspec.json.decode(request.encoded_body or b"") == {
        "metadata": {"resourceVersion": "12", "labels": {"a": None}},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
    }
    assert ("fieldManager", "windlass-operator") in request.query


def test_taints_of_others_come_back_as_they_were() -> None:
    theirs = {"key": "example.com/x", "effect": "NoExecute", "timeAdded": "2027-01-01T00:00:00Z"}
    tree = {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": "n", "resourceVersion": "1"},
        "spec": {"taints": [theirs]},
    }
    node = observed_object(tree)
    assert isinstance(node, NodeView)
    ours = Taint(key="windlass.dev/change", effect="NoSchedule", value="r")
    write = NodePatch(taints={ours.key: ours}).write(node)
    assert write is not None
    body = msgspec.json.decode(patch_node(write).encoded_body or b"")
    assert body["spec"]["taints"] == [theirs, {"key": ours.key, "effect": "NoSchedule", "value": "r"}]
    assert NodePatch(taints={ours.key: None}).write(node) is None  # it is not there: nothing to write


def test_an_older_version_never_replaces_a_newer_one() -> None:
    _, _, cache = applier()
    older = {**REPAIR, "metadata": {**REPAIR["metadata"], "resourceVersion": "6"}, "status": {"phase": "Contained"}}  # type: ignore[dict-item]
    cache.put_answer("GPURepair", "windlass.dev/v1alpha1", msgspec.json.encode(older))
    assert cache.find("GPURepair", "r").status.phase == "Ticket"


def test_an_object_that_cant_be_understood_is_kept_apart_with_its_field() -> None:
    broken = {**REPAIR, "spec": {"node": "n", "devise": 3}}
    found = decode_observed(msgspec.json.encode(broken), "GPURepair", "windlass.dev/v1alpha1")
    assert isinstance(found, Invalid)
    assert (found.name, found.phase, "spec.devise" in found.message) == ("r", "Ticket", True)
