"""Leadership: one at a time, followed when it falls silent, and never claimed by one that woke up late."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiohttp import web
from tests.kube.fake_server import FakeServer, refusal

from windlass.kube import leader_election as module
from windlass.kube.client import KubeClient
from windlass.kube.leader_election import LeaderElectionConfig, LeaderElector

pytestmark = pytest.mark.asyncio


def candidate(client: KubeClient, name: str, seconds: float = 1.0) -> LeaderElector:
    return LeaderElector(client, LeaderElectionConfig("sys", "lead", name, seconds))


async def test_the_second_waits_and_follows_a_silent_leader(client: KubeClient) -> None:
    first, second = candidate(client, "first"), candidate(client, "second")
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    keeping = asyncio.create_task(first.renew())
    await asyncio.sleep(1.5)
    assert first.is_leader, "it renews"
    assert not waiting.done()
    keeping.cancel()
    await asyncio.wait_for(waiting, 5)
    assert second.is_leader
    assert not first.is_leader, "a silent leader knows before anybody else takes over"


async def test_release_lets_the_next_one_begin_at_once(client: KubeClient) -> None:
    first, second = candidate(client, "first", 30.0), candidate(client, "second", 30.0)
    await first.acquire()
    await first.release()
    assert not first.is_leader
    await asyncio.wait_for(second.acquire(), 5)


async def test_the_lease_says_what_its_holder_says(client: KubeClient, server: FakeServer) -> None:
    """Of the one that leads: the next leader's words replace it, and what others wrote stays."""
    first = LeaderElector(client, LeaderElectionConfig("sys", "lead", "first", 30.0, {"hash": "1"}))
    await first.acquire()
    lease = server.get("leases", "sys/lead")
    assert lease["metadata"]["annotations"] == {"hash": "1"}
    lease["metadata"]["annotations"]["note"] = "ours"
    await first.release()
    await LeaderElector(client, LeaderElectionConfig("sys", "lead", "second", 30.0, {"hash": "2"})).acquire()
    assert server.get("leases", "sys/lead")["metadata"]["annotations"] == {"hash": "2", "note": "ours"}


async def test_who_wakes_up_late_leads_no_more(client: KubeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was stopped finds that time has passed, whatever it was doing."""
    lease = candidate(client, "first", 15.0)
    await lease.acquire()
    assert lease.is_leader
    real = time.monotonic
    monkeypatch.setattr(module.time, "monotonic", lambda: real() + 10.5)
    assert not lease.is_leader


async def test_a_leader_that_cannot_renew_gives_up_in_time(client: KubeClient, server: FakeServer) -> None:
    lease = candidate(client, "first")
    await lease.acquire()

    def broken(request: web.Request) -> web.Response | None:
        return refusal(500, "etcd is gone") if request.method == "PUT" else None

    server.faults.append(broken)
    began = time.monotonic()
    await asyncio.wait_for(lease.renew(), 5)
    assert not lease.is_leader
    assert time.monotonic() - began < 1.0, "before the lease itself is over"


async def test_whose_lease_was_taken_knows_it_at_the_next_renewal(client: KubeClient, server: FakeServer) -> None:
    lease = candidate(client, "first", 15.0)
    await lease.acquire()
    taken = dict(server.get("leases", "sys/lead"))
    taken["spec"] = {**taken["spec"], "holderIdentity": "second"}
    await server.put("leases", taken)
    await asyncio.wait_for(lease.renew(), 10)
    assert not lease.is_leader


async def test_of_two_that_compete_at_once_one_wins(client: KubeClient) -> None:
    lucky = [candidate(client, f"c{number}", 30.0) for number in range(5)]
    done, waiting = await asyncio.wait([asyncio.create_task(one.acquire()) for one in lucky], timeout=1.0)
    assert len(done) == 1
    assert sum(one.is_leader for one in lucky) == 1
    for task in waiting:
        task.cancel()


def without_namespace(server: FakeServer, request: web.Request) -> web.Response | None:
    """As the API server answers for a lease in a namespace that doesn't exist."""
    if request.method == "POST" and request.path.endswith("/leases") and "sys" not in names(server):
        return refusal(404, 'namespaces "sys" not found', "NotFound")
    return None


def names(server: FakeServer) -> set[str]:
    return set(server.objects.get("namespaces", {}))


async def test_the_namespace_is_made_where_it_is_missing(client: KubeClient, server: FakeServer) -> None:
    server.faults.append(lambda request: without_namespace(server, request))
    await asyncio.wait_for(candidate(client, "first").acquire(), 10)
    assert names(server) == {"sys"}


@pytest.mark.parametrize("right_is_gone_too", [False, True])
async def test_without_a_namespace_and_the_right_to_make_it_one_message_ends_it(
    client: KubeClient, server: FakeServer, right_is_gone_too: bool
) -> None:
    def fault(request: web.Request) -> web.Response | None:
        if request.method == "POST" and request.path == "/api/v1/namespaces":
            return refusal(403, "user may not create namespaces", "Forbidden")
        if right_is_gone_too and "/leases" in request.path:
            return refusal(403, "user may not get leases", "Forbidden")
        return without_namespace(server, request)

    server.faults.append(fault)
    with pytest.raises(module.NamespaceMissing, match="kubectl create namespace sys") as caught:
        await asyncio.wait_for(candidate(client, "first").acquire(), 10)
    assert caught.value.exit_code == 3
    assert "user may not create namespaces" in str(caught.value)


async def test_a_right_that_is_missing_in_a_namespace_that_is_there_is_waited_for(
    client: KubeClient, server: FakeServer
) -> None:
    """Roles are often created after the program that they are for."""
    await server.put("namespaces", {"metadata": {"name": "sys"}})
    refused = 0

    def fault(request: web.Request) -> web.Response | None:
        nonlocal refused
        if "/leases" in request.path and refused < 2:
            refused += 1
            return refusal(403, "user may not get leases", "Forbidden")
        return None

    server.faults.append(fault)
    await asyncio.wait_for(candidate(client, "first").acquire(), 10)
    assert refused == 2
