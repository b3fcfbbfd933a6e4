"""`windlass freeze` under load: no replica writes after five seconds, nothing is lost, and all goes on afterwards."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from tests.apply.objects import pod
from tests.kube.fake_api import FakeApi, refused
from tests.kube.virtual_time import in_virtual_time
from tests.scheduler.queued_jobs import QueuedJobs, on_cluster
from tests.scheduler.replicas import Replica, cluster, running
from tests.worlds.virtual_client import InProcessKubeClient

from windlass.kube.freeze import FREEZE_CONFIG_MAP, LEASE_PATHS, STOP_SECONDS, FreezeState, freeze_object
from windlass.kube.request import Request

NAMESPACE = "windlass-system"


def set_freeze(api: FakeApi, state: str) -> None:
    api.store("configmaps", freeze_object(NAMESPACE, FreezeState(state, "2026-01-01T00:00:00Z", "alice", "a test")))


def writes_after(replica: Replica, seconds: float) -> list[str]:
    """Writes that were sent later than this, but for leases."""
    sent = zip(replica.client.sent, replica.client._sent_at, strict=True)
    return [
        f"{request.method} {request.path}"
        for request, at in sent
        if at > seconds and request.method != "GET" and not request.path.startswith(LEASE_PATHS)
    ]


@in_virtual_time
async def test_two_replicas_under_load_stop_within_five_seconds_and_go_on() -> None:
    api = cluster()
    replicas = [Replica(api, name) for name in ("first", "second")]
    loop = asyncio.get_running_loop()

    async def load() -> None:
        for number in range(400):
            api.store("pods", pod(f"p{number}", gpus=0 if number % 2 else 9))
            await asyncio.sleep(0.05)

    loading = asyncio.create_task(load())
    await asyncio.sleep(5)
    set_freeze(api, "frozen")
    frozen_at = loop.time()
    before = sum(len(writes_after(replica, 0)) for replica in replicas)
    assert before > 50
    await asyncio.sleep(3600)
    await loading
    for replica in replicas:
        assert writes_after(replica, frozen_at + STOP_SECONDS) == []
    assert sum(replica.metric("windlass_frozen") for replica in replicas) == 1
    assert sum(replica.metric("windlass_leading") for replica in replicas) == 1, "leases are renewed"
    assert all(replica.scheduler.not_ready() == "" for replica in replicas)
    thawed_at = loop.time()
    set_freeze(api, "running")
    await asyncio.sleep(10)
    bound = [number for number in range(400) if replicas[0].node_of(f"p{number}")]
    assert bound == [number for number in range(400) if number % 2][: len(bound)]
    assert len(bound) == 110, "as many as the node takes"
    told = [tree for tree in api.objects["pods"].values() if tree.get("status", {}).get("conditions")]
    assert len(told) == 400 - len(bound), "all others know why they wait"
    assert any(writes_after(replica, thawed_at) for replica in replicas)
    await asyncio.gather(*(replica.end() for replica in replicas))


@in_virtual_time
async def test_a_leader_that_dies_while_all_is_frozen_is_followed_by_one_that_writes_nothing() -> None:
    api = cluster()
    first = Replica(api, "first")
    await asyncio.sleep(1)
    set_freeze(api, "frozen")
    api.store("pods", pod("p"))
    await asyncio.sleep(5)
    await first.end()
    second = Replica(api, "second")
    await asyncio.sleep(60)
    assert second.metric("windlass_leading") == 1
    assert second.writes() == []
    set_freeze(api, "running")
    await asyncio.sleep(5)
    assert second.node_of("p") == "n1"
    await second.end()


@in_virtual_time
async def test_without_the_right_to_read_the_freeze_nothing_is_written_and_readyz_says_it() -> None:
    api = cluster(pod("p"))
    replica = Replica(api, "first")
    replica.client.fail(f"GET configmaps/{FREEZE_CONFIG_MAP}", refused(403, "no"))
    await asyncio.sleep(30)
    assert replica.writes() == []
    assert f"grant the right to get ConfigMap {FREEZE_CONFIG_MAP}" in replica.scheduler.not_ready()
    replica.client.recover()
    await asyncio.sleep(5)
    assert replica.node_of("p") == "n1"
    assert replica.scheduler.not_ready() == ""
    await replica.end()


@in_virtual_time
async def test_events_of_what_was_done_before_are_sent_afterwards() -> None:
    async with running() as replica:
        held = replica.client.hold("POST events")
        replica.api.store("pods", pod("p"))
        await asyncio.sleep(0.5)
        assert replica.node_of("p") == "n1"
        set_freeze(replica.api, "frozen")
        replica.api.store("pods", pod("q"))
        await asyncio.sleep(60)
        held.release()
        set_freeze(replica.api, "running")
        await asyncio.sleep(5)
        regarding = {event["regarding"]["name"] for event in replica.api.objects["events"].values()}
        assert regarding == {"p", "q"}


class Writes:
    """When the scheduler of a virtual cluster wrote, leases and dry runs apart."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times: list[tuple[float, str]] = []
        send = InProcessKubeClient._send_once

        async def noted(client: InProcessKubeClient, request: Request) -> bytes:
            if request.method != "GET" and not request.path.startswith(LEASE_PATHS):
                self.times.append((asyncio.get_running_loop().time(), f"{request.method} {request.path}"))
            return await send(client, request)

        monkeypatch.setattr(InProcessKubeClient, "_send_once", noted)

    def between(self, start: float, end: float) -> list[str]:
        return [what for at, what in self.times if start < at < end]


@pytest.mark.parametrize("seed", range(6))
def test_admissions_and_preemptions_that_a_freeze_cuts_in_half_are_completed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The freeze comes at a random moment, between any two writes; no GPU is lent twice, and all of them are in use
    in the end."""
    writes = Writes(monkeypatch)

    @on_cluster()
    async def test(jobs: QueuedJobs) -> None:
        random, client, loop = Random(seed), jobs.client, asyncio.get_running_loop()
        for value in range(1, 5):
            tree = {"metadata": {"name": f"p{value}"}, "value": value}
            client.create("priorityclasses.scheduling.k8s.io", "", tree)
        queue = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
        client.patch("clusterqueues.kueue.x-k8s.io", "", "q", queue)
        for number in range(6):
            jobs.submit(f"low-{number}", 2)
        await asyncio.sleep(20)
        for round_number in range(4):
            for number in range(3):
                name = f"r{round_number}-{number}"
                jobs.submit(name, random.choice((1, 2, 4)), pod={"priorityClassName": f"p{round_number + 1}"})
            await asyncio.sleep(random.expovariate(20))
            set_state(jobs, "frozen")
            frozen_at = loop.time()
            await asyncio.sleep(120)
            assert writes.between(frozen_at + STOP_SECONDS, loop.time()) == []
            set_state(jobs, "running")
            await asyncio.sleep(60)
        assert writes.between(loop.time() - 60, loop.time())
        admitted = sum(jobs.admitted(name) for name in _names(jobs))
        bound = sum(len(jobs.bound(name)) for name in _names(jobs))
        assert admitted == bound == 8

    test()


def set_state(jobs: QueuedJobs, state: str) -> None:
    tree = freeze_object(NAMESPACE, FreezeState(state, "2026-01-01T00:00:00Z", "alice"))
    if jobs.client.find("configmaps", NAMESPACE, FREEZE_CONFIG_MAP) is None:
        jobs.client.create("configmaps", NAMESPACE, tree)
    else:
        jobs.client.patch("configmaps", NAMESPACE, FREEZE_CONFIG_MAP, {"data": tree["data"]})


def _names(jobs: QueuedJobs) -> list[str]:
    return [tree["metadata"]["name"] for tree in jobs.client.list("jobs.batch")]
