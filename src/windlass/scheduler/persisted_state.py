"""What the next leader has to know and no other object says: usage history in queue status, places of reservations.

`scheduler.scheduler` lets it see every decision; it writes what changed into the objects' own status, as Kueue does
with its fair-share history, so that a replica that takes over decides as this one would have.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from windlass.apply.decision_sink import reserved_nodes
from windlass.cluster.snapshot import Snapshot
from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, LeaseLost, NotFound, ServerUnavailable
from windlass.kube.resources import KUEUE_API_GROUP, Resource
from windlass.kube.write_requests import patch_status
from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.model.queue import LocalQueue
from windlass.model.quota import format_quota
from windlass.model.times import format_timestamp
from windlass.model.workload import Workload
from windlass.queueing.usage_history import decay_factor
from windlass.scheduler.cache import SchedulerCache

log = logging.getLogger(__name__)

WINDLASS_API_GROUP = "windlass.dev"


def decayed_usage(queue: LocalQueue, usage: Mapping[str, int], half_life: int, now: int) -> dict[str, int]:
    """What the queue has consumed by now, if it used that much since its history was last written."""
    kept = decay_factor(now - queue.consumed_at, half_life) if queue.consumed_at else Fraction(1)
    names = {**queue.consumed, **usage} if queue.consumed_at else dict(usage)
    return {name: int(queue.consumed.get(name, 0) * kept + usage.get(name, 0) * (1 - kept)) for name in names}


def usage_by_queue(workloads: Iterable[Workload]) -> dict[str, dict[str, int]]:
    """LocalQueue → resource → what its workloads hold now."""
    found: dict[str, dict[str, int]] = {}
    for one in workloads:
        total = (
            found.setdefault(f"{one.namespace}/{one.queue_name}", {})
            if one.queue_name and one.admission
            else {}
        )
        for part in one.admission.assignments if one.admission is not None else ():
            for name, amount in part.usage.items():
                total[name] = total.get(name, 0) + amount
    return found


class PersistedStateWriter:
    def __init__(
        self,
        client: KubeClient,
        cache: SchedulerCache,
        settings: Settings,
        may_write: Callable[[], bool],
        resource_for: Callable[[str, str], Resource | None],
    ) -> None:
        self._client, self._world, self._settings = client, cache, settings
        self._may_write, self._served = may_write, resource_for
        self._latest: Snapshot | None = None
        self._places: dict[str, dict[str, int]] = {}
        """Reservation → its nodes, as decided and not written yet."""
        self._work = asyncio.Event()

    def observe(self, plan: Plan, snapshot: Snapshot) -> None:
        self._latest = snapshot
        for name, nodes in reserved_nodes(plan.reserves).items():
            known = self._world.get("Reservation", name, WINDLASS_API_GROUP)
            if known is not None and known.status.nodes != nodes:
                self._places[name] = nodes
                self._work.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write_places())
            if self._settings.usage_half_life_seconds is not None:
                group.create_task(self._write_history(self._settings.usage_half_life_seconds))

    async def _write_places(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while self._places:
                name, nodes = self._places.popitem()
                known = self._world.get("Reservation", name, WINDLASS_API_GROUP)
                gone = {} if known is None else dict.fromkeys(known.status.nodes)
                await self._patch("Reservation", WINDLASS_API_GROUP, name, {"nodes": {**gone, **nodes}})

    async def _write_history(self, half_life: int) -> None:
        while True:
            await asyncio.sleep(max(1, self._settings.usage_sampling_seconds))
            snapshot = self._latest
            if snapshot is None or self._world.kueue_is_live or not self._may_write():
                continue
            now = int(time.time())
            usage = usage_by_queue(snapshot.workloads)
            for key, queue in snapshot.queue_system.local_queues.items():
                amounts = decayed_usage(queue, usage.get(key, {}), half_life, now)
                history = {
                    "consumedResources": {
                        name: format_quota(name, amount) for name, amount in amounts.items()
                    },
                    "lastUpdate": format_timestamp(now),
                }
                status = {"fairSharing": {"admissionFairSharingStatus": history}}
                await self._patch("LocalQueue", KUEUE_API_GROUP, key, status)

    async def _patch(self, kind: str, group: str, key: str, status: dict[str, Any]) -> None:
        resource = self._served(kind, group)
        if resource is None:
            return
        try:
            await self._client.send(patch_status(resource, key, status), self._may_write)
        except (NotFound, LeaseLost):
            pass
        except (ApiError, ServerUnavailable) as error:
            log.warning("status of %s %s: %s", kind, key, error)
