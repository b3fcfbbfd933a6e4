"""`PodScheduled=False` on pods that wait, kept up to date without writing the same again and again.

The scheduler hands over what holds each pod after every decision; workers write what changed, a pod at most every few
seconds unless its reason changes, the newest state only. The event `FailedScheduling` comes with it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, Conflict, LeaseLost, NotFound, ServerUnavailable
from windlass.kube.events import Event, EventRecorder, EventRegarding
from windlass.kube.write_requests import patch_pod_condition
from windlass.model.times import format_timestamp

log = logging.getLogger(__name__)

WORKERS = 8
MESSAGE_UPDATE_SECONDS = 10.0
"""Seconds between two writes to one pod that only change the words."""
RETRY_SECONDS = 5.0


class PendingCondition(msgspec.Struct, frozen=True):
    """A pod that waits, and why."""

    key: str
    uid: str
    reason: str
    message: str
    nominated_node: str | None = None
    """Node where it will go once others have left; empty takes an earlier word back; None says nothing."""


class _Written(msgspec.Struct):
    waiting: PendingCondition
    at: float


class PodConditionWriter:
    def __init__(self, client: KubeClient, recorder: EventRecorder, may_write: Callable[[], bool]) -> None:
        self._client, self._recorder, self._may_write = client, recorder, may_write
        self._wanted: dict[str, PendingCondition] = {}
        """Not written yet, the newest state of each pod."""
        self._written: dict[str, _Written] = {}
        self._work = asyncio.Event()
        self.failures = 0

    def enqueue(self, waiting: PendingCondition) -> None:
        last = self._written.get(waiting.key)
        if last is not None and last.waiting == waiting:
            self._wanted.pop(waiting.key, None)
            return
        if (
            last is not None
            and _same_reason(last.waiting, waiting)
            and time.monotonic() - last.at < MESSAGE_UPDATE_SECONDS
        ):
            return  # the next decision asks again
        self._wanted[waiting.key] = waiting
        self._work.set()

    def forget(self, key: str) -> None:
        """The pod waits no more."""
        self._wanted.pop(key, None)
        self._written.pop(key, None)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            await self._work.wait()
            if not self._wanted:
                self._work.clear()
                continue
            waiting = self._wanted.pop(next(iter(self._wanted)))
            await self._write(waiting)

    async def _write(self, waiting: PendingCondition) -> None:
        self._written[waiting.key] = _Written(waiting, time.monotonic())
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": waiting.reason,
            "message": waiting.message,
            "lastProbeTime": None,
            "lastTransitionTime": format_timestamp(int(time.time())),
        }
        try:
            request = patch_pod_condition(waiting.key, waiting.uid, condition, waiting.nominated_node)
            await self._client.send(request, self._may_write)
        except (NotFound, Conflict, LeaseLost):
            return  # it is gone, or another one has its name, or another one leads
        except (ApiError, ServerUnavailable) as error:
            self.failures += 1
            self._written.pop(waiting.key, None)  # so that the next decision asks for it again
            log.warning("pod %s: its condition could not be written: %s", waiting.key, error)
            await asyncio.sleep(RETRY_SECONDS)
            return
        about = EventRegarding("Pod", waiting.key, waiting.uid)
        event = Event(about, "FailedScheduling", waiting.message, "Scheduling", "Warning")
        self._recorder.record(event, droppable=True)


def _same_reason(old: PendingCondition, new: PendingCondition) -> bool:
    return (old.uid, old.reason, old.nominated_node) == (new.uid, new.reason, new.nominated_node)
