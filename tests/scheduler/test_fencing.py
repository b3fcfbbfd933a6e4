"""What a leader has begun to write ends before another replica can lead."""

from __future__ import annotations

import asyncio

import pytest
from tests.apply.objects import pod
from tests.kube.memory_client import MemoryClient, lost_answer
from tests.kube.virtual_time import in_virtual_time
from tests.scheduler.replicas import Replica, cluster, holder

from windlass.kube.errors import ServerUnavailable
from windlass.kube.request import Request

LEASE_SECONDS = 15.0


@in_virtual_time
async def test_a_write_ends_with_the_lease_under_which_it_was_sent() -> None:
    client = MemoryClient(cluster())
    client.seconds_to_write = lambda: 4.0
    held = client.hold("POST pods")
    request = Request("POST", "/api/v1/namespaces/team/pods", body=pod("late"))
    began = asyncio.get_running_loop().time()
    with pytest.raises(ServerUnavailable, match="no answer while the lease was held"):
        await client.send(request, lambda: True)
    assert asyncio.get_running_loop().time() - began == 4.0
    held.release()
    await asyncio.sleep(60)
    assert "team/late" not in client.api.objects.get("pods", {}), "it does not reach the server any more"


@in_virtual_time
async def test_reads_are_not_bound_to_the_lease() -> None:
    client = MemoryClient(cluster())
    client.seconds_to_write = lambda: 4.0
    held = client.hold("GET pods")
    reading = asyncio.create_task(client.send(Request("GET", "/api/v1/namespaces/team/pods")))
    await asyncio.sleep(10)
    held.release()
    assert await reading


@in_virtual_time
async def test_a_bind_that_the_network_holds_back_never_lands_after_the_next_leader_has_decided() -> None:
    api = cluster()
    first = Replica(api, "first")
    await asyncio.sleep(1)
    held = first.client.hold("POST binding")
    api.store("pods", pod("early", gpus=8))
    await asyncio.sleep(1)
    assert held.requests, "the bind is on its way"
    for request in ("GET leases/windlass-scheduler", "PUT leases/windlass-scheduler"):
        first.client.fail(request, lost_answer())
    second = Replica(api, "second")
    await asyncio.sleep(0.1)
    api.remove("pods", "team/early")
    api.store("pods", pod("later", gpus=8, priority=10))
    api.store("pods", pod("early", gpus=8, uid="uid-early"))
    await asyncio.sleep(2 * LEASE_SECONDS)
    assert (holder(api), second.node_of("later")) == ("second", "n1")
    held.release()
    await asyncio.sleep(60)
    assert second.node_of("early") == "", "the node is given away"
    first.client.recover()
    await asyncio.gather(first.end(), second.end())


@in_virtual_time
async def test_the_lease_is_not_given_up_while_writes_are_under_way() -> None:
    api = cluster(pod("p"))
    replica = Replica(api, "first")
    replica.client.hold("POST binding")
    await asyncio.sleep(1)
    await replica.end()
    assert holder(api) == "first", "it expires, and the write with it"
