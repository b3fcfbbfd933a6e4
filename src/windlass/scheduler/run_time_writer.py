"""How long work of each queue has run, written where the next leader finds it: a RunTimeHistory beside the LocalQueue.

`scheduler.scheduler` lets it see every decision; the store has noted which queued work has come to a good end
meanwhile. What is written comes back through the watch, and only then counts: every replica, a dump and a record know
the same. Only what was seen to end while leading is counted, so nothing is counted twice; what ends while nobody
leads is missed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, LeaseLost, NotFound, ServerUnavailable
from windlass.kube.request import Request
from windlass.kube.resources import KUEUE_API_GROUP, Resource
from windlass.kube.write_requests import create_object, patch_object
from windlass.model.run_time_history import (
    RunTimeHistoryObject,
    RunTimes,
    run_time_periods,
    run_times_from_object,
)
from windlass.queueing.run_time_estimates import add_runs, merge_run_times, without_future_runs
from windlass.scheduler.cache import SchedulerCache

log = logging.getLogger(__name__)

WINDLASS_API_GROUP, KIND = "windlass.dev", "RunTimeHistory"
WRITE_INTERVAL_SECONDS = 15.0
"""Seconds between two rounds of writing."""


class RunTimeWriter:
    def __init__(
        self,
        client: KubeClient,
        cache: SchedulerCache,
        may_write: Callable[[], bool],
        resource_for: Callable[[str, str], Resource | None],
    ) -> None:
        self._client, self._world, self._may_write, self._served = client, cache, may_write, resource_for
        self._unwritten: dict[str, RunTimes] = {}
        """By LocalQueue."""
        self._work = asyncio.Event()
        self._is_new = False

    def start_leading(self) -> None:
        """We lead from now on. What ended before was the last leader's to count."""
        self._is_new = True

    def observe(self) -> None:
        """A decision was made."""
        runs = self._world.store.pop_finished_runs()
        if self._is_new:
            self._is_new = False
            return
        for run in runs:
            self._unwritten[run.local_queue] = add_runs(
                self._unwritten.get(run.local_queue, RunTimes()), [run]
            )
        if runs:
            self._work.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            await self.flush()
            await asyncio.sleep(WRITE_INTERVAL_SECONDS)

    async def flush(self) -> None:
        """Write what is known now; what fails is kept for the next time."""
        resource = self._served(KIND, WINDLASS_API_GROUP)
        for queue in list(self._unwritten) if resource is not None else ():
            assert resource is not None
            times = self._unwritten.pop(queue)
            request = self._request(resource, queue, times)
            if request is not None and not await self._is_sent(request, queue):
                self._unwritten[queue] = merge_run_times(times, self._unwritten.get(queue, RunTimes()))
                self._work.set()

    def _request(self, resource: Resource, queue: str, times: RunTimes) -> Request | None:
        """Adds to what the object says; nothing is written of a queue that is gone."""
        local = self._world.get("LocalQueue", queue, KUEUE_API_GROUP)
        if local is None:
            return None
        known: RunTimeHistoryObject | None = self._world.get(KIND, queue, WINDLASS_API_GROUP)
        if known is not None:
            before = without_future_runs(run_times_from_object(known), int(time.time()))
            periods = run_time_periods(merge_run_times(before, times))
            version = known.metadata.resource_version
            return patch_object(resource, queue, {"periods": periods}, version)
        namespace, _, name = queue.partition("/")
        body: dict[str, Any] = {
            "apiVersion": resource.api_version,
            "kind": KIND,
            "metadata": {"name": name, "ownerReferences": self._owner(name, local.metadata.uid)},
            "periods": run_time_periods(times),
        }
        return create_object(resource, namespace, body)

    def _owner(self, name: str, uid: str) -> list[dict[str, Any]]:
        """It goes with its queue."""
        queues = self._served("LocalQueue", KUEUE_API_GROUP)
        version = queues.api_version if queues is not None else ""
        return [{"apiVersion": version, "kind": "LocalQueue", "name": name, "uid": uid}] if version else []

    async def _is_sent(self, request: Request, queue: str) -> bool:
        try:
            await self._client.send(request, self._may_write)
        except (NotFound, LeaseLost):
            return False
        except (ApiError, ServerUnavailable) as error:
            log.warning("run times of %s: %s", queue, error)
            return False
        return True
