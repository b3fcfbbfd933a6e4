"""Records Kubernetes events (events.k8s.io): rate limited, and repeats are counted as a series.

`apply` and `scheduler` call `EventRecorder.record`; a few workers send the requests. No caller waits for an event:
beyond the rate limit, events which only say that a pod still waits are dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, NotFound, NotSent, ServerUnavailable
from windlass.kube.request import MERGE_PATCH, Request
from windlass.kube.resources import EVENTS
from windlass.model.message_code import shorten_message
from windlass.model.names.kubernetes import EVENTS_API_VERSION

log = logging.getLogger(__name__)

CONTROLLER = "windlass.dev/scheduler"
MAX_QUEUED = 20_000
WORKERS, PRIORITY_WORKERS = 16, 4
"""Concurrent requests, and how many of them go on while more urgent requests wait (`should_yield`)."""
YIELD_SECONDS, FROZEN_SECONDS = 0.1, 1.0
"""Pauses while more urgent requests wait, and while writes are frozen."""
RATE, BURST = 50.0, 500.0
"""Token bucket, per second and at once, for events that only say that a pod still waits."""
SERIES_UPDATE_SECONDS = 60.0
"""Minimum time between two updates of the same series."""
MAX_REMEMBERED, REMEMBERED_SECONDS = 50_000, 3600.0
"""Series that are remembered: an API server deletes an Event after an hour."""
MAX_NOTE_LENGTH = 1024


class EventRegarding(msgspec.Struct, frozen=True):
    """The object that an event is about."""

    kind: str
    key: str
    uid: str = ""
    api_version: str = "v1"

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0] if "/" in self.key else "default"

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def object_reference(self) -> dict[str, str]:
        found = {"apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": self.uid}
        if "/" in self.key:
            found["namespace"] = self.namespace
        return {key: value for key, value in found.items() if value}


class Event(msgspec.Struct, frozen=True):
    regarding: EventRegarding
    reason: str
    note: str
    action: str
    type: str = "Normal"
    related: EventRegarding | None = None


class _Sent(msgspec.Struct):
    path: str
    sent_at: float
    count: int = 1
    is_there: bool = False
    """The server has stored it; before that its series can't be patched."""


class EventRecorder:
    def __init__(self, client: KubeClient, instance: str, controller: str = CONTROLLER) -> None:
        self._client, self._instance, self._controller = client, instance, controller
        self._queue: asyncio.Queue[tuple[Request, _Sent]] = asyncio.Queue(MAX_QUEUED)
        self._sent: OrderedDict[tuple[str, str, str, str], _Sent] = OrderedDict()
        self._tokens, self._filled_at = BURST, time.monotonic()
        self._serial = 0
        self.dropped = 0
        self.should_yield: Callable[[], bool] = lambda: False
        """Whether more urgent requests wait: then few events are sent at a time, unless the queue is half full."""

    def record(self, event: Event, *, droppable: bool = False) -> None:
        """Queues the event. `droppable`: it is dropped beyond the rate limit."""
        identity = (event.regarding.kind, event.regarding.key, event.reason, event.note)
        known = self._sent.get(identity)
        now = time.monotonic()
        if known is not None and (known.sent_at + SERIES_UPDATE_SECONDS > now or not known.is_there):
            known.count += 1
            return
        if droppable and not self._may_send(now):
            self.dropped += 1
            return
        if known is not None:
            known.count, known.sent_at = known.count + 1, now
            self._sent.move_to_end(identity)
            self._push(_series(known), known)
            return
        name, request = self._request(event)
        # Backdated, so that the first repeat is sent at once and only later ones wait for SERIES_UPDATE_SECONDS.
        path = EVENTS.path(f"{event.regarding.namespace}/{name}")
        fresh = self._sent[identity] = _Sent(path, now - SERIES_UPDATE_SECONDS)
        self._forget_old(now)
        self._push(request, fresh)

    def _forget_old(self, now: float) -> None:
        oldest = next(iter(self._sent.values()))
        while len(self._sent) > MAX_REMEMBERED or oldest.sent_at + REMEMBERED_SECONDS < now:
            self._sent.popitem(last=False)
            oldest = next(iter(self._sent.values()))

    async def run(self) -> None:
        """Sends queued events until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                group.create_task(self._work(may_yield=number >= PRIORITY_WORKERS))

    async def drain(self, seconds: float) -> None:
        """Waits until the queue is empty, at most so many seconds."""
        try:
            await asyncio.wait_for(self._queue.join(), seconds)
        except TimeoutError:
            self.dropped += self._queue.qsize()

    async def _work(self, *, may_yield: bool) -> None:
        while True:
            while may_yield and self.should_yield() and self._queue.qsize() < MAX_QUEUED // 2:
                await asyncio.sleep(YIELD_SECONDS)
            request, sent = await self._queue.get()
            try:
                await self._send(request)
                sent.is_there = True
            except NotFound:
                pass  # the namespace, or the event whose series was to be patched, was deleted
            except (ApiError, ServerUnavailable) as error:
                self.dropped += 1
                log.debug("the server refused an event: %s", error)
            finally:
                self._queue.task_done()

    async def _send(self, request: Request) -> None:
        """Waits while writes are frozen."""
        while True:
            try:
                await self._client.send(request)
                return
            except NotSent:
                await asyncio.sleep(FROZEN_SECONDS)

    def _push(self, request: Request, sent: _Sent) -> None:
        try:
            self._queue.put_nowait((request, sent))
        except asyncio.QueueFull:
            self.dropped += 1

    def _may_send(self, now: float) -> bool:
        self._tokens = min(BURST, self._tokens + (now - self._filled_at) * RATE)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _request(self, event: Event) -> tuple[str, Request]:
        self._serial += 1
        about = event.regarding
        name = f"{about.name[:200]}.{time.time_ns() // 1000:x}{self._serial & 0xFFFF:04x}"
        body = {
            "apiVersion": EVENTS_API_VERSION,
            "kind": "Event",
            "metadata": {"name": name, "namespace": about.namespace},
            "eventTime": micro_time(),
            "regarding": about.object_reference,
            "reason": event.reason,
            "note": shorten_message(event.note, MAX_NOTE_LENGTH),
            "action": event.action,
            "type": event.type,
            "reportingController": self._controller,
            "reportingInstance": self._instance[:128],
        }
        if event.related is not None:
            body["related"] = event.related.object_reference
        return name, Request("POST", EVENTS.namespace_collection(about.namespace), body=body)


def _series(sent: _Sent) -> Request:
    body = {"series": {"count": sent.count, "lastObservedTime": micro_time()}}
    return Request("PATCH", sent.path, body=body, content_type=MERGE_PATCH)


def micro_time(seconds: float | None = None) -> str:
    """Now, or that time, as Kubernetes' MicroTime."""
    at = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
