"""Run times as the leader writes them: created once, added to, kept when a write fails, nothing of others counted."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.apply.objects import local_queue, pod
from tests.apply.scene import Scene as LiveScene
from tests.kube.fake_api import refused
from tests.kube.memory_client import lost_answer
from tests.kube.virtual_time import in_virtual_time, settle

from windlass.cluster.delta import Deleted, Put
from windlass.kube.errors import ServerUnavailable
from windlass.kube.request import Request
from windlass.kube.resources import Resource
from windlass.model.codec import decode_object
from windlass.model.times import format_timestamp
from windlass.scheduler.cache import SchedulerCache
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.run_time_writer import RunTimeWriter

NOW = int(time.time())
QUEUE = {"kueue.x-k8s.io/queue-name": "gpu"}
VERSIONS = {"RunTimeHistory": ("runtimehistories", "windlass.dev", "v1")}
VERSIONS |= {"LocalQueue": ("localqueues", "kueue.x-k8s.io", "v1beta2")}


def served(kind: str, group: str) -> Resource | None:
    plural, known, version = VERSIONS[kind]
    return Resource(kind, plural, known, version) if known == group else None


class Server:
    """Has one RunTimeHistory, if it was created, and can be away."""

    def __init__(self) -> None:
        self.sent: list[Request] = []
        self.is_away = False

    async def send(self, request: Request, allowed: Any = None) -> bytes:
        if self.is_away:
            raise ServerUnavailable("away")
        self.sent.append(request)
        return b"{}"

    @property
    def runs(self) -> int:
        body: Any = self.sent[-1].body
        return sum(count for period in body["periods"] for count in period["runs"].values())


class Scene:
    def __init__(self) -> None:
        self.world = SchedulerCache(SchedulerOptions())
        self.server = Server()
        self.writer = RunTimeWriter(self.server, self.world, lambda: True, served)  # type: ignore[arg-type]
        spec = {"clusterQueue": "team"}
        meta = {"name": "gpu", "namespace": "a", "uid": "queue-uid"}
        version = "kueue.x-k8s.io/v1beta2"
        self.tell({"apiVersion": version, "kind": "LocalQueue", "metadata": meta, "spec": spec})
        self._count = 0

    def tell(self, *trees: dict[str, Any]) -> bool:
        """The cluster changes; whether that is a reason to decide."""
        self.world.push([Put(decode_object(tree)) for tree in trees])
        news = self.world.flush(NOW).needs_decision
        self.world.store.snapshot(NOW)
        return news

    def finish(self, number: int) -> None:
        """So many pods of the queue run and succeed."""
        for phase in ("Running", "Succeeded"):
            self.tell(*(self._pod(self._count + at, phase) for at in range(number)))
        self._count += number

    def _pod(self, at: int, phase: str) -> dict[str, Any]:
        meta = {"name": f"p{at}", "namespace": "a", "uid": f"p{at}", "labels": QUEUE}
        status = {"phase": phase, "startTime": format_timestamp(NOW - 1800)}
        spec = {"containers": [{"name": "c"}], "nodeName": "n"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}

    def flush(self) -> None:
        self.writer.observe()
        asyncio.run(self.writer.flush())

    def come_back(self) -> bool:
        """What was written last is seen on the watch."""
        body: Any = self.server.sent[-1].body
        meta = {"name": "gpu", "namespace": "a", "resourceVersion": "7"}
        kind = {"apiVersion": "windlass.dev/v1", "kind": "RunTimeHistory"}
        return self.tell({**kind, "metadata": meta, "periods": body["periods"]})


def test_it_is_created_beside_its_queue_and_then_added_to() -> None:
    scene = Scene()
    scene.finish(2)
    scene.flush()
    [made] = scene.server.sent
    assert (made.method, made.path) == ("POST", "/apis/windlass.dev/v1/namespaces/a/runtimehistories")
    assert made.body is not None
    [owner] = made.body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("LocalQueue", "gpu", "queue-uid")
    assert scene.server.runs == 2
    assert not scene.come_back(), "its own history is no reason to decide"
    assert scene.world.store.snapshot(NOW).run_times, "and is known all the same"
    scene.finish(3)
    scene.flush()
    change = scene.server.sent[-1]
    assert (change.method, change.path) == ("PATCH", f"{made.path}/gpu")
    assert change.body is not None
    assert change.body["metadata"] == {"resourceVersion": "7"}, "never over somebody else's write"
    assert scene.server.runs == 5
    scene.flush()
    assert len(scene.server.sent) == 2, "nothing new is nothing to write"


def test_what_could_not_be_written_is_kept() -> None:
    scene = Scene()
    scene.finish(2)
    scene.server.is_away = True
    scene.flush()
    scene.finish(1)
    scene.flush()
    scene.server.is_away = False
    scene.flush()
    assert scene.server.runs == 3


def test_what_ended_before_it_led_is_not_its_to_count() -> None:
    scene = Scene()
    scene.finish(2)
    scene.writer.start_leading()
    scene.flush()
    assert not scene.server.sent
    scene.finish(1)
    scene.flush()
    assert scene.server.runs == 1


def test_a_queue_that_is_gone_needs_no_history() -> None:
    scene = Scene()
    scene.finish(2)
    scene.writer.observe()
    scene.world.push([Deleted("LocalQueue", "a/gpu", "kueue.x-k8s.io")])
    scene.world.flush(NOW)
    scene.flush()
    assert not scene.server.sent


def test_an_administrator_who_deletes_it_starts_it_anew() -> None:
    scene = Scene()
    scene.finish(2)
    scene.flush()
    scene.come_back()
    scene.world.push([Deleted("RunTimeHistory", "a/gpu", "windlass.dev")])
    scene.world.flush(NOW)
    assert not scene.world.store.snapshot(NOW).run_times
    scene.finish(1)
    scene.flush()
    assert (scene.server.sent[-1].method, scene.server.runs) == ("POST", 1)


# On a server in memory, in virtual time


HISTORY = {"apiVersion": "windlass.dev/v1", "kind": "RunTimeHistory"}


class Writing:
    """A queue, and a writer that runs."""

    def __init__(self) -> None:
        self.scene = LiveScene(local_queue("gpu"))
        self.writer = RunTimeWriter(
            self.scene.client, self.scene.cache, lambda: self.scene.leads, self.scene.client.resource_for
        )
        self._finished = 0

    def finish(self, runs: int = 1, seconds: int = 1800) -> None:
        """So many pods of the queue have run for so long and succeeded."""
        for phase in ("Running", "Succeeded"):
            for number in range(self._finished, self._finished + runs):
                status = {"phase": phase, "startTime": format_timestamp(int(time.time()) - seconds)}
                self.scene.put(pod(f"p{number}", on="n", gpus=0, labels=QUEUE, status=status))
            self.scene.watch()
            self.scene.snapshot()
        self._finished += runs
        self.writer.observe()

    @property
    def runs(self) -> int:
        """As the server has them."""
        found = self.scene.api.objects.get("runtimehistories", {}).get("team/gpu", {"periods": []})
        return sum(count for period in found["periods"] for count in period["runs"].values())


@asynccontextmanager
async def writing() -> AsyncIterator[Writing]:
    made = Writing()
    task = asyncio.create_task(made.writer.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled(), "the writer has failed"


@in_virtual_time
async def test_runs_are_written_every_fifteen_seconds() -> None:
    async with writing() as made:
        made.finish()
        await settle()
        assert made.runs == 1
        made.scene.watch()
        made.finish(2)
        made.finish(3)
        await asyncio.sleep(14.9)
        assert made.runs == 1
        await asyncio.sleep(0.2)
        assert made.runs == 6, "in one write"
        assert len(made.scene.client.writes()) == 2
        await asyncio.sleep(3600)
        assert len(made.scene.client.writes()) == 2


@in_virtual_time
async def test_a_run_is_counted_in_its_week_by_the_bound_of_its_bucket() -> None:
    async with writing() as made:
        made.finish(2, seconds=1800)
        made.finish(1, seconds=60)
        await settle()
        (period,) = made.scene.get("runtimehistories", "gpu")["periods"]
        assert period == {"from": "2026-01-01T00:00:00Z", "runs": {"60": 1, "1920": 2}}


@pytest.mark.parametrize(
    "error", [refused(500, "etcd"), refused(404, "no kind"), refused(409, "changed"), lost_answer()]
)
@in_virtual_time
async def test_what_could_not_be_written_is_written_with_the_next_round(error: Exception) -> None:
    async with writing() as made:
        made.scene.client.fail("POST runtimehistories", error, times=1)
        made.finish(2)
        await settle()
        assert made.runs == 0
        made.finish(1)
        await asyncio.sleep(15.1)
        assert made.runs == 3


@in_virtual_time
async def test_a_follower_keeps_what_it_has_counted() -> None:
    async with writing() as made:
        made.scene.leads = False
        made.finish(2)
        await asyncio.sleep(60)
        assert made.scene.client.writes() == []
        made.scene.leads = True
        await asyncio.sleep(15.1)
        assert made.runs == 2


@in_virtual_time
async def test_without_its_kind_runs_are_kept_until_it_is_served() -> None:
    async with writing() as made:
        served = made.scene.api.groups.pop("windlass.dev/v1")
        made.finish(2)
        await asyncio.sleep(60)
        assert made.scene.client.writes() == []
        made.scene.api.groups["windlass.dev/v1"] = served
        made.finish(1)
        await asyncio.sleep(15.1)
        assert made.runs == 3


@in_virtual_time
async def test_a_conflict_adds_to_what_the_other_has_written() -> None:
    async with writing() as made:
        made.finish(1)
        await settle()
        made.scene.watch()
        made.scene.snapshot()
        others = copy.deepcopy(made.scene.get("runtimehistories", "gpu"))
        others["periods"][0]["runs"]["60"] = 5
        made.finish(1)
        made.scene.put({**HISTORY, **others})  # the watch has not shown it
        await asyncio.sleep(15.1)
        assert made.runs == 6, "the write on the old version was refused"
        made.scene.watch()
        made.scene.snapshot()
        await asyncio.sleep(15.1)
        assert made.runs == 7


@in_virtual_time
async def test_runs_from_the_future_are_dropped_with_the_next_write() -> None:
    async with writing() as made:
        future = [{"from": "2030-01-03T00:00:00Z", "runs": {"60": 9}}]
        meta = {"name": "gpu", "namespace": "team", "uid": "h"}
        made.scene.put({**HISTORY, "metadata": meta, "periods": future})
        made.finish(1)
        await settle()
        assert made.runs == 1


@in_virtual_time
async def test_each_queue_has_its_own_history() -> None:
    async with writing() as made:
        made.scene.put(local_queue("cpu"))
        status = {"startTime": format_timestamp(int(time.time()) - 60)}
        labels = {"kueue.x-k8s.io/queue-name": "cpu"}
        for phase in ("Running", "Succeeded"):
            made.scene.put(pod("c", on="n", gpus=0, labels=labels, status={**status, "phase": phase}))
            made.scene.watch()
            made.scene.snapshot()
        made.finish(2)
        await settle()
        assert made.runs == 2
        assert {request.path.rpartition("/")[2] for request in made.scene.client.writes()} == {"runtimehistories"}
        assert made.scene.get("runtimehistories", "cpu")["metadata"]["ownerReferences"] == [
            {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "name": "cpu", "uid": "uid-cpu"}
        ]


@in_virtual_time
async def test_a_history_without_a_served_local_queue_has_no_owner() -> None:
    async with writing() as made:
        del made.scene.api.groups["kueue.x-k8s.io/v1beta2"]
        made.finish(1)
        await settle()
        assert made.scene.get("runtimehistories", "gpu")["metadata"]["ownerReferences"] == []


@in_virtual_time
async def test_only_what_is_seen_to_finish_while_leading_is_counted() -> None:
    async with writing() as made:
        made.writer.start_leading()
        made.finish(4)
        await asyncio.sleep(60)
        assert made.scene.client.writes() == []
        made.finish(1)
        await settle()
        assert made.runs == 1
