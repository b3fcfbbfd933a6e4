"""Writes how long the workloads of each queue have run: a RunTimeHistory of the same name as the LocalQueue.

`scheduler.scheduler` calls `observe` after every decision; the store has collected the queued workloads that have
succeeded since. Estimates use only what comes back through the watch, so that every replica, a dump and a record agree.
Only the leader counts, and only what it saw finish: nothing is counted twice, and what finishes without a leader is
missed.
"""

from __future__ import annotations

import time
from typing import Any

from windlass.kube.request import Request
from windlass.kube.resources import KUEUE_API_GROUP, Resource
from windlass.kube.write_requests import create_object, patch_object
from windlass.model.run_time_history import (
    RunTimeHistoryObject,
    RunTimes,
    run_time_fields,
    run_times_from_object,
)
from windlass.queueing.run_time_estimates import add_runs, merge_run_times, without_future_runs
from windlass.scheduler.background_writer import BackgroundWriter

WINDLASS_API_GROUP, KIND = "windlass.dev", "RunTimeHistory"


class RunTimeWriter(BackgroundWriter):
    interval_seconds = 15.0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._unwritten: dict[str, RunTimes] = {}
        """By LocalQueue."""
        self._skip_next = False

    def start_leading(self) -> None:
        """This replica is the leader from now on; the previous leader has counted what finished before."""
        self._skip_next = True

    def observe(self) -> None:
        """Collects the runs that have finished since the last decision."""
        runs = self._cache.store.pop_finished_runs()
        if self._skip_next:
            self._skip_next = False
            return
        for run in runs:
            known = self._unwritten.get(run.local_queue, RunTimes())
            self._unwritten[run.local_queue] = add_runs(known, [run])
        if runs:
            self._has_work.set()

    async def flush(self) -> None:
        resource = self._resource_for(KIND, WINDLASS_API_GROUP)
        for queue in list(self._unwritten) if resource is not None else ():
            assert resource is not None
            times = self._unwritten.pop(queue)
            request = self._request(resource, queue, times)
            if request is not None and not await self._send(request, f"the run times of LocalQueue {queue}"):
                self._unwritten[queue] = merge_run_times(times, self._unwritten.get(queue, RunTimes()))
                self._has_work.set()

    def _request(self, resource: Resource, queue: str, times: RunTimes) -> Request | None:
        """Adds `times` to the existing object or creates it; None if the LocalQueue was deleted."""
        local = self._cache.get("LocalQueue", queue, KUEUE_API_GROUP)
        if local is None:
            return None
        known: RunTimeHistoryObject | None = self._cache.get(KIND, queue, WINDLASS_API_GROUP)
        if known is not None:
            before = without_future_runs(run_times_from_object(known), int(time.time()))
            fields = run_time_fields(merge_run_times(before, times))
            return patch_object(resource, queue, fields, known.metadata.resource_version)
        namespace, _, name = queue.partition("/")
        body: dict[str, Any] = {
            "apiVersion": resource.api_version,
            "kind": KIND,
            "metadata": {"name": name, "ownerReferences": self._owner_references(name, local.metadata.uid)},
            **run_time_fields(times),
        }
        return create_object(resource, namespace, body)

    def _owner_references(self, name: str, uid: str) -> list[dict[str, Any]]:
        """The LocalQueue as owner, so that the history is deleted with it."""
        queues = self._resource_for("LocalQueue", KUEUE_API_GROUP)
        version = queues.api_version if queues is not None else ""
        return [{"apiVersion": version, "kind": "LocalQueue", "name": name, "uid": uid}] if version else []
