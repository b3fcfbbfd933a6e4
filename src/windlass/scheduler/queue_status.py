"""The status of queues, as Kueue's users know it: how many wait, how many run, what they use, whether it is active.

Made from each snapshot that a decision was made on, and written when it changed, at most every few seconds a queue.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from windlass.cluster.snapshot import Snapshot
from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, LeaseLost, NotFound, ServerUnavailable
from windlass.kube.resources import KUEUE_API_GROUP, Resource
from windlass.kube.write_requests import patch_status
from windlass.model.queue import ClusterQueue, QueueSystem
from windlass.model.quota import format_quota
from windlass.model.times import format_timestamp
from windlass.model.unstructured import Unstructured
from windlass.model.workload import Workload
from windlass.scheduler.cache import SchedulerCache

log = logging.getLogger(__name__)

WRITE_INTERVAL_SECONDS = 2.0
QueueKey = tuple[str, str]
"""Kind and key."""


def queue_statuses(system: QueueSystem, workloads: Iterable[Workload]) -> dict[QueueKey, Unstructured]:
    """What each queue's status should be, without times."""
    members: dict[QueueKey, list[Workload]] = {("ClusterQueue", name): [] for name in system.queues}
    members |= {("LocalQueue", key): [] for key in system.local_queues}
    for one in workloads:
        local = system.local_queues.get(f"{one.namespace}/{one.queue_name}") if one.queue_name else None
        if local is not None:
            members["LocalQueue", local.key].append(one)
            members.setdefault(("ClusterQueue", local.cluster_queue), []).append(one)
    statuses = {}
    for (kind, key), held in members.items():
        name = key if kind == "ClusterQueue" else system.local_queues[key].cluster_queue
        queue = system.queues.get(name)
        statuses[kind, key] = _status(kind, name, queue, held)
    return statuses


def _status(kind: str, name: str, queue: ClusterQueue | None, members: list[Workload]) -> Unstructured:
    running = [one for one in members if one.admission is not None]
    usage = _usage(queue, running)
    why, message = "", ""
    if queue is None:
        why, message = "ClusterQueueDoesNotExist", f"ClusterQueue {name} doesn't exist"
    elif queue.inactive_reason:
        why, message = "NotImplemented", queue.inactive_reason
    elif queue.stop_policy != "None":
        why, message = "Stopped", f"stopPolicy is {queue.stop_policy}"
    good = "Can admit new workloads" if kind == "ClusterQueue" else "Can submit new workloads to localQueue"
    condition = {
        "type": "Active",
        "status": "False" if why else "True",
        "reason": why or "Ready",
        "message": message or good,
    }
    return {
        "pendingWorkloads": len(members) - len(running),
        "reservingWorkloads": len(running),
        "admittedWorkloads": len(running),
        "flavorsReservation": usage,
        "flavorsUsage": usage,
        "conditions": [condition],
    }


def _usage(queue: ClusterQueue | None, running: Iterable[Workload]) -> list[Unstructured]:
    used: dict[tuple[str, str], int] = {}
    for one in running:
        for part in one.admission.assignments if one.admission is not None else ():
            for resource, amount in part.usage.items():
                where = part.flavors.get(resource, ""), resource
                used[where] = used.get(where, 0) + amount
    flavors: dict[str, list[Unstructured]] = {}
    for group in queue.resource_groups if queue is not None else ():
        for flavor in group.flavors:
            for resource, cell in flavor.quotas.items():
                total = used.get((flavor.flavor, resource), 0)
                borrowed = max(0, total - cell.nominal) if queue is not None and queue.cohort else 0
                entry = {"name": resource, "total": format_quota(resource, total)}
                entry["borrowed"] = format_quota(resource, borrowed)
                flavors.setdefault(flavor.flavor, []).append(entry)
    return [{"name": name, "resources": resources} for name, resources in flavors.items()]


class QueueStatusWriter:
    def __init__(
        self,
        client: KubeClient,
        cache: SchedulerCache,
        may_write: Callable[[], bool],
        resource_for: Callable[[str, str], Resource | None],
    ) -> None:
        self._client, self._world, self._may_write, self._served = client, cache, may_write, resource_for
        self._wanted: dict[QueueKey, Unstructured] = {}
        self._written: dict[QueueKey, Unstructured] = {}
        self._since: dict[QueueKey, tuple[str, str]] = {}
        """Status of the Active condition, and since when it has it."""
        self._work = asyncio.Event()

    def observe(self, snapshot: Snapshot) -> None:
        """A decision was made on this."""
        if self._world.kueue_is_live or not (
            snapshot.queue_system.queues or snapshot.queue_system.local_queues
        ):
            return
        for name, status in queue_statuses(snapshot.queue_system, snapshot.workloads).items():
            if self._written.get(name) != status:
                self._wanted[name] = status
                self._work.set()
            else:
                self._wanted.pop(name, None)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._wanted:
                name, status = self._wanted.popitem()
                await self._write(name, status)
            await asyncio.sleep(WRITE_INTERVAL_SECONDS)

    async def _write(self, name: QueueKey, status: Unstructured) -> None:
        resource = self._served(name[0], KUEUE_API_GROUP)
        if resource is None or self._world.get(name[0], name[1], KUEUE_API_GROUP) is None:
            return
        self._written[name] = status
        active = status["conditions"][0]["status"]
        if self._since.get(name, ("", ""))[0] != active:
            self._since[name] = active, format_timestamp(int(time.time()))
        condition = {**status["conditions"][0], "lastTransitionTime": self._since[name][1]}
        try:
            request = patch_status(resource, name[1], {**status, "conditions": [condition]})
            await self._client.send(request, self._may_write)
        except (NotFound, LeaseLost):
            self._written.pop(name, None)
        except (ApiError, ServerUnavailable) as error:
            self._written.pop(name, None)
            log.warning("status of %s %s: %s", *name, error)
