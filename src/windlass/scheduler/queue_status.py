"""Writes the status of ClusterQueues and LocalQueues in Kueue's form: counts, usage, and the condition Active.

`scheduler.scheduler` calls `observe` after every decision and runs the writer, which writes changed statuses every two
seconds. Where Kueue is live, it writes them itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from windlass.cluster.snapshot import Snapshot
from windlass.kube.resources import KUEUE_API_GROUP
from windlass.kube.write_requests import patch_status
from windlass.model.queue import ClusterQueue, QueueSystem
from windlass.model.queue_names import is_shared_queue
from windlass.model.quota import format_quota
from windlass.model.times import format_timestamp
from windlass.model.unstructured import Unstructured
from windlass.model.workload import Workload
from windlass.scheduler.background_writer import BackgroundWriter

QueueKey = tuple[str, str]
"""Kind and key."""


def queue_statuses(system: QueueSystem, workloads: Iterable[Workload]) -> dict[QueueKey, Unstructured]:
    """The status that each queue should have, without times."""
    members: dict[QueueKey, list[Workload]] = {
        ("ClusterQueue", name): [] for name in system.queues if not is_shared_queue(name)
    }
    members |= {("LocalQueue", key): [] for key in system.local_queues}
    for workload in workloads:
        local = system.local_queues.get(f"{workload.namespace}/{workload.queue_name}")
        if local is not None:
            members["LocalQueue", local.key].append(workload)
            members.setdefault(("ClusterQueue", local.cluster_queue), []).append(workload)
    statuses = {}
    for (kind, key), queued in members.items():
        name = key if kind == "ClusterQueue" else system.local_queues[key].cluster_queue
        statuses[kind, key] = _status(kind, name, system.queues.get(name), queued)
    return statuses


def _status(kind: str, name: str, queue: ClusterQueue | None, members: list[Workload]) -> Unstructured:
    admitted = [workload for workload in members if workload.admission is not None]
    usage = _usage(queue, admitted)
    reason, message = "", ""
    if queue is None:
        reason, message = "ClusterQueueDoesNotExist", f"ClusterQueue {name} doesn't exist"
    elif queue.inactive_reason:
        reason, message = "NotImplemented", queue.inactive_reason
    elif queue.stop_policy != "None":
        reason, message = "Stopped", f"spec.stopPolicy of ClusterQueue {name} is {queue.stop_policy}"
    # Kueue's own wording.
    ready = "Can admit new workloads" if kind == "ClusterQueue" else "Can submit new workloads to localQueue"
    condition = {
        "type": "Active",
        "status": "False" if reason else "True",
        "reason": reason or "Ready",
        "message": message or ready,
    }
    return {
        "pendingWorkloads": len(members) - len(admitted),
        "reservingWorkloads": len(admitted),
        "admittedWorkloads": len(admitted),
        "flavorsReservation": usage,
        "flavorsUsage": usage,
        "conditions": [condition],
    }


def used_quota(system: QueueSystem, workloads: Iterable[Workload]) -> dict[tuple[str, str, str], int]:
    """ClusterQueue, flavor and resource → what admitted workloads hold of it."""
    found: dict[tuple[str, str, str], int] = {}
    for workload in workloads:
        local = system.local_queues.get(f"{workload.namespace}/{workload.queue_name}")
        if local is not None:
            for (flavor, resource), amount in _used([workload]).items():
                cell = local.cluster_queue, flavor, resource
                found[cell] = found.get(cell, 0) + amount
    return found


def _used(admitted: Iterable[Workload]) -> dict[tuple[str, str], int]:
    """By flavor and resource."""
    used: dict[tuple[str, str], int] = {}
    for workload in admitted:
        for assignment in workload.admission.assignments if workload.admission is not None else ():
            for resource, amount in assignment.usage.items():
                cell = assignment.flavors.get(resource, ""), resource
                used[cell] = used.get(cell, 0) + amount
    return used


def _usage(queue: ClusterQueue | None, admitted: Iterable[Workload]) -> list[Unstructured]:
    used = _used(admitted)
    flavors: dict[str, list[Unstructured]] = {}
    for group in queue.resource_groups if queue is not None else ():
        for flavor in group.flavors:
            for resource, quota in flavor.quotas.items():
                total = used.get((flavor.flavor, resource), 0)
                borrowed = max(0, total - quota.nominal) if queue is not None and queue.cohort else 0
                entry = {"name": resource, "total": format_quota(resource, total)}
                entry["borrowed"] = format_quota(resource, borrowed)
                flavors.setdefault(flavor.flavor, []).append(entry)
    return [{"name": name, "resources": resources} for name, resources in flavors.items()]


class QueueStatusWriter(BackgroundWriter):
    interval_seconds = 2.0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._latest: Snapshot | None = None
        self._written: dict[QueueKey, tuple[str, Unstructured]] = {}
        """Uid of the queue, and its status as it was written."""
        self._transitions: dict[QueueKey, tuple[str, str]] = {}
        """Status of the condition Active, and its lastTransitionTime."""

    def start_leading(self) -> None:
        """This replica is the leader from now on; the previous leader may have written other statuses."""
        self._written.clear()

    def observe(self, snapshot: Snapshot) -> None:
        """Statuses are made of it when it is time to write them, not with every decision."""
        system = snapshot.queue_system
        if not self._cache.responsibility.kueue_is_live and (system.queues or system.local_queues):
            self._latest = snapshot
            self._has_work.set()

    async def flush(self) -> None:
        """Writes the statuses that differ from those written; what fails is tried again after the next decision."""
        snapshot, self._latest = self._latest, None
        if snapshot is None or self._cache.responsibility.kueue_is_live:
            return
        for name, status in queue_statuses(snapshot.queue_system, snapshot.workloads).items():
            if self._written.get(name) != (self._uid(name), status):
                await self._write(name, status)

    def _uid(self, name: QueueKey) -> str:
        """Empty if there is no such queue."""
        found = self._cache.get(*name, KUEUE_API_GROUP)
        return "" if found is None else str(found.metadata.uid)

    async def _write(self, name: QueueKey, status: Unstructured) -> None:
        resource, uid = self._resource_for(name[0], KUEUE_API_GROUP), self._uid(name)
        if resource is None or not uid:
            return
        self._written[name] = uid, status
        active = status["conditions"][0]["status"]
        if self._transitions.get(name, ("", ""))[0] != active:
            self._transitions[name] = active, format_timestamp(int(time.time()))
        condition = {**status["conditions"][0], "lastTransitionTime": self._transitions[name][1]}
        request = patch_status(resource, name[1], {**status, "conditions": [condition]})
        if not await self._send(request, f"the status of {name[0]} {name[1]}"):
            self._written.pop(name, None)
