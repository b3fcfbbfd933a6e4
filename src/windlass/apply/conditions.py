"""Writes the condition `PodScheduled=False` and the event `FailedScheduling` of pods that wait.

`apply.executor` enqueues the condition of every pending pod after each decision. Workers write only what has changed,
and only the newest state; a pod whose reason stays the same is written at most every ten seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, Conflict, NotFound, NotSent, ServerUnavailable
from windlass.kube.events import Event, EventRecorder, EventRegarding
from windlass.kube.write_requests import patch_pod_condition
from windlass.model.times import format_timestamp

log = logging.getLogger(__name__)

WORKERS = 8
MESSAGE_UPDATE_SECONDS = 10.0
"""Shortest time between two writes to one pod that only change the message."""
RETRY_SECONDS = 5.0


class PendingCondition(msgspec.Struct, frozen=True):
    key: str
    uid: str
    reason: str
    message: str
    nominated_node: str | None = None
    """Node for which the pod waits; empty clears the pod's nomination; None leaves it as it is."""


class _Written(msgspec.Struct):
    pending: PendingCondition
    at: float
    """Monotonic seconds."""


class PodConditionWriter:
    def __init__(self, client: KubeClient, recorder: EventRecorder, may_write: Callable[[], bool]) -> None:
        self._client, self._recorder, self._may_write = client, recorder, may_write
        self._wanted: dict[str, PendingCondition] = {}
        """Newest state of each pod that is not written yet."""
        self._written: dict[str, _Written] = {}
        self._has_work = asyncio.Event()
        self.failures = 0

    def enqueue(self, pending: PendingCondition) -> None:
        last = self._written.get(pending.key)
        if last is not None and last.pending == pending:
            self._wanted.pop(pending.key, None)
            return
        if (
            last is not None
            and _same_reason(last.pending, pending)
            and time.monotonic() - last.at < MESSAGE_UPDATE_SECONDS
        ):
            return  # the next decision enqueues it again
        self._wanted[pending.key] = pending
        self._has_work.set()

    def start_leading(self) -> None:
        """This replica is the leader from now on; the previous leader may have written other conditions."""
        self._written.clear()

    def forget(self, key: str) -> None:
        """The pod was bound or deleted."""
        self._wanted.pop(key, None)
        self._written.pop(key, None)

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            await self._has_work.wait()
            if not self._wanted:
                self._has_work.clear()
                continue
            pending = self._wanted.pop(next(iter(self._wanted)))
            await self._write(pending)

    async def _write(self, pending: PendingCondition) -> None:
        self._written[pending.key] = _Written(pending, time.monotonic())
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": pending.reason,
            "message": pending.message,
            "lastProbeTime": None,
            "lastTransitionTime": format_timestamp(int(time.time())),
        }
        try:
            request = patch_pod_condition(pending.key, pending.uid, condition, pending.nominated_node)
            await self._client.send(request, self._may_write)
        except (NotFound, Conflict):
            return  # the pod was deleted or replaced
        except NotSent:
            self._written.pop(pending.key, None)
            return
        except (ApiError, ServerUnavailable) as error:
            self.failures += 1
            self._written.pop(pending.key, None)  # so that the next decision enqueues it again
            log.warning("can't write the condition of pod %s: %s", pending.key, error)
            await asyncio.sleep(RETRY_SECONDS)
            return
        regarding = EventRegarding("Pod", pending.key, pending.uid)
        event = Event(regarding, "FailedScheduling", pending.message, "Scheduling", "Warning")
        self._recorder.record(event, droppable=True)


def _same_reason(old: PendingCondition, new: PendingCondition) -> bool:
    return (old.uid, old.reason, old.nominated_node) == (new.uid, new.reason, new.nominated_node)
