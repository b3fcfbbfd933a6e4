"""Run times as the leader writes them: created once, added to, kept when a write fails, nothing of others counted."""

from __future__ import annotations

import asyncio
import time
from typing import Any

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
