"""Persists what the next leader needs and no other object says: usage history of queues, nodes of reservations.

`scheduler.scheduler` calls `observe` after every decision. Changes are written to the status of the LocalQueue (in
Kueue's field for admission fair sharing) or Reservation, so that the next leader decides as this one would have.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from windlass.apply.decision_sink import reserved_nodes
from windlass.cluster.snapshot import Snapshot
from windlass.kube.client import KubeClient
from windlass.kube.resources import KUEUE_API_GROUP, Resource
from windlass.kube.write_requests import patch_status
from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.model.queue import LocalQueue
from windlass.model.quota import format_quota
from windlass.model.times import format_timestamp
from windlass.model.workload import Workload
from windlass.queueing.usage_history import decay_factor
from windlass.scheduler.background_writer import BackgroundWriter
from windlass.scheduler.cache import SchedulerCache

WINDLASS_API_GROUP = "windlass.dev"


def decayed_usage(queue: LocalQueue, usage: Mapping[str, int], half_life: int, now: int) -> dict[str, int]:
    """Consumption of a queue that has used `usage` since its history was last written; Kueue's formula."""
    kept = decay_factor(now - queue.consumed_at, half_life) if queue.consumed_at else Fraction(1)
    names = {**queue.consumed, **usage} if queue.consumed_at else dict(usage)
    return {name: int(queue.consumed.get(name, 0) * kept + usage.get(name, 0) * (1 - kept)) for name in names}


def usage_by_queue(workloads: Iterable[Workload]) -> dict[str, dict[str, int]]:
    """LocalQueue → resource → amount that its admitted workloads hold."""
    usage: dict[str, dict[str, int]] = {}
    for workload in workloads:
        if workload.admission is None or not workload.queue_name:
            continue
        total = usage.setdefault(f"{workload.namespace}/{workload.queue_name}", {})
        for assignment in workload.admission.assignments:
            for resource, amount in assignment.usage.items():
                total[resource] = total.get(resource, 0) + amount
    return usage


class PersistedStateWriter(BackgroundWriter):
    def __init__(
        self,
        client: KubeClient,
        cache: SchedulerCache,
        settings: Settings,
        may_write: Callable[[], bool],
        resource_for: Callable[[str, str], Resource | None],
    ) -> None:
        super().__init__(client, cache, may_write, resource_for)
        self._settings = settings
        self._latest: Snapshot | None = None
        self._unwritten_nodes: dict[str, dict[str, int]] = {}
        """Reservation → nodes as decided, not written yet."""

    def observe(self, plan: Plan, snapshot: Snapshot) -> None:
        self._latest = snapshot
        for name, nodes in reserved_nodes(plan.reserves).items():
            known = self._cache.get("Reservation", name, WINDLASS_API_GROUP)
            if known is not None and known.status.nodes != nodes:
                self._unwritten_nodes[name] = nodes
                self._has_work.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write_reservations())
            if self._settings.usage_half_life_seconds is not None:
                group.create_task(self._write_usage_history(self._settings.usage_half_life_seconds))

    async def _write_reservations(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            while self._unwritten_nodes:
                name, nodes = self._unwritten_nodes.popitem()
                known = self._cache.get("Reservation", name, WINDLASS_API_GROUP)
                # In a merge patch, null removes a node that the reservation has left.
                removed = {} if known is None else dict.fromkeys(known.status.nodes)
                await self._patch("Reservation", WINDLASS_API_GROUP, name, {"nodes": {**removed, **nodes}})

    async def _write_usage_history(self, half_life: int) -> None:
        while True:
            await asyncio.sleep(max(1, self._settings.usage_sampling_seconds))
            snapshot = self._latest
            if snapshot is None or self._cache.responsibility.kueue_is_live or not self._may_write():
                continue
            now = int(time.time())
            usage = usage_by_queue(snapshot.workloads)
            for key, queue in snapshot.queue_system.local_queues.items():
                amounts = decayed_usage(queue, usage.get(key, {}), half_life, now)
                history = {
                    "consumedResources": {name: format_quota(name, amount) for name, amount in amounts.items()},
                    "lastUpdate": format_timestamp(now),
                }
                status = {"fairSharing": {"admissionFairSharingStatus": history}}
                await self._patch("LocalQueue", KUEUE_API_GROUP, key, status)

    async def _patch(self, kind: str, group: str, key: str, status: dict[str, Any]) -> None:
        resource = self._resource_for(kind, group)
        if resource is not None:
            await self._send(patch_status(resource, key, status), f"the status of {kind} {key}")
