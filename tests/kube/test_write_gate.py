"""The gate before every write: it reads the freeze in time, costs nothing while nothing is written, and fails safe."""

from __future__ import annotations

import asyncio

import pytest
from tests.kube.fake_api import FakeApi, refused
from tests.kube.memory_client import MemoryClient, lost_answer
from tests.kube.virtual_time import in_virtual_time

from windlass.kube.errors import ServerUnavailable, WritesFrozen
from windlass.kube.freeze import FREEZE_CONFIG_MAP, FreezeState, decode_freeze, freeze_object
from windlass.kube.request import Request
from windlass.kube.write_gate import WriteGate

NAMESPACE = "windlass-system"
READ = f"GET configmaps/{FREEZE_CONFIG_MAP}"
WRITE = Request("PATCH", "/api/v1/namespaces/team/pods/p", body={"metadata": {"labels": {"a": "b"}}})
LEASE = Request("GET", "/apis/coordination.k8s.io/v1/namespaces/windlass-system/leases/x")


def gated(*, frozen: bool = False) -> MemoryClient:
    api = FakeApi()
    api.store("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team"}})
    client = MemoryClient(api)
    client.write_gate = WriteGate(client, NAMESPACE)
    if frozen:
        freeze(client)
    return client


def freeze(client: MemoryClient, state: str = "frozen") -> None:
    state_object = freeze_object(NAMESPACE, FreezeState(state, "2026-01-01T00:00:00Z", "alice", "a test"))
    client.api.store("configmaps", state_object)


def reads(client: MemoryClient) -> int:
    return sum(1 for request in client.sent if request.path.endswith(FREEZE_CONFIG_MAP))


@in_virtual_time
async def test_a_frozen_write_is_not_sent_and_says_since_when_by_whom_and_why() -> None:
    client = gated(frozen=True)
    with pytest.raises(WritesFrozen, match="frozen since 2026-01-01T00:00:00Z by alice: a test"):
        await client.send(WRITE)
    assert client.writes() == []


@in_virtual_time
async def test_reads_and_leases_pass() -> None:
    client = gated(frozen=True)
    await client.send(Request("GET", WRITE.path))
    assert client.write_gate is not None
    await client.write_gate.check(Request("PUT", LEASE.path))
    assert reads(client) == 0, "what is never stopped need not ask"


@in_virtual_time
async def test_the_state_is_read_at_most_every_two_seconds_and_not_at_all_while_nothing_is_written() -> None:
    client = gated()
    for _ in range(1000):
        await client.send(WRITE)
        await asyncio.sleep(0.01)
    assert 5 <= reads(client) <= 6
    before = reads(client)
    await asyncio.sleep(3600)
    assert reads(client) == before


@pytest.mark.parametrize("moment", [0.0, 0.7, 1.99, 2.01, 3.5])
@in_virtual_time
async def test_no_write_is_begun_later_than_four_seconds_after_the_freeze(moment: float) -> None:
    client = gated()
    loop = asyncio.get_running_loop()
    await client.send(WRITE)
    await asyncio.sleep(moment)
    freeze(client)
    frozen_at, sent = loop.time(), []
    for _ in range(1000):
        try:
            await client.send(WRITE)
            sent.append(loop.time() - frozen_at)
        except WritesFrozen:
            pass
        await asyncio.sleep(0.01)
    assert max(sent, default=0.0) <= 4.0
    freeze(client, "running")
    await asyncio.sleep(4.1)
    await client.send(WRITE)


@in_virtual_time
async def test_a_slow_answer_about_the_state_holds_writes_up_after_four_seconds_and_not_before() -> None:
    client = gated()
    await client.send(WRITE)
    held = client.hold(READ)
    await asyncio.sleep(3)
    await client.send(WRITE)
    await asyncio.sleep(3)
    waiting = asyncio.create_task(client.send(WRITE))
    await asyncio.sleep(60)
    assert not waiting.done()
    held.release()
    await waiting


@in_virtual_time
async def test_a_state_that_can_not_be_read_lets_nothing_through() -> None:
    client = gated()
    client.fail(READ, lost_answer())
    with pytest.raises(ServerUnavailable):
        await client.send(WRITE)
    client.recover()
    client.fail(READ, refused(403, "no right"))
    with pytest.raises(
        WritesFrozen, match="grant the right to get ConfigMap windlass-freeze in namespace windlass-sys"
    ):
        await client.send(WRITE)
    client.recover()
    await asyncio.sleep(5)
    await client.send(WRITE)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"not JSON",
        b'{"data": {"state": 5}}',
        b'{"data": {"state": "Frozen "}}',
        b'{"data": null}',
        b'{"data": {"by": "bob"}}',
    ],
)
def test_what_can_not_be_understood_counts_as_frozen(body: bytes) -> None:
    assert decode_freeze(body).is_frozen
    assert "can't be read" in str(decode_freeze(body))


def test_a_running_state_keeps_who_ended_the_freeze() -> None:
    state = decode_freeze(b'{"data": {"state": "running", "since": "2026-01-01T00:00:00Z", "by": "bob"}}')
    assert not state.is_frozen
    assert str(state) == "running since 2026-01-01T00:00:00Z by bob"
