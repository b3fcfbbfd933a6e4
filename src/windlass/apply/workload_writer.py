"""Writes to Workloads and their owners: one at a time for each object, in the order in which they were begun.

`apply.admission` and `apply.owner_workloads` write through here. What has just failed is left alone for a while; what
is only words gives way to what changes something.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from windlass.apply.cluster_cache import ClusterCache
from windlass.apply.owners import SUSPEND_FIELDS, suspend_owner
from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, Conflict, LeaseLost, NotFound, ServerUnavailable
from windlass.kube.request import Request
from windlass.kube.resources import KUEUE_API_GROUP, Resource
from windlass.kube.write_requests import patch_status
from windlass.model.kueue import WorkloadObject

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
"""After a write that failed, and between two writes of the same Workload that only change words."""
MOST_REMEMBERED = 1_000

Work = Callable[[], Awaitable[object]]


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Written(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


_VERSIONS = msgspec.json.Decoder(_Written)


class WorkloadWriter:
    def __init__(
        self,
        client: KubeClient,
        cache: ClusterCache,
        may_write: Callable[[], bool],
        resource_for: Callable[[str, str], Resource | None],
    ) -> None:
        """`served` says in which version the server has a kind of an API group, if it has it."""
        self._client, self._cache, self._may_write, self.resource_for = client, cache, may_write, resource_for
        self._busy: dict[str, asyncio.Task[None]] = {}
        """What is being written, by name: never twice at once."""
        self._not_before: dict[str, float] = {}
        self.written_versions: dict[str, str] = {}
        """Workload → the version that our last write made; the watch may be behind it."""

    # What there is

    def workload(self, key: str) -> WorkloadObject | None:
        found: WorkloadObject | None = self._cache.get("Workload", key, KUEUE_API_GROUP)
        return found

    def workload_resource(self) -> Resource:
        found = self.resource_for("Workload", KUEUE_API_GROUP)
        if found is None:
            raise ServerUnavailable("the Workload kind has gone")
        return found

    async def get_raw(self, kind: str, group: str, key: str, uid: str) -> Any:
        """The object as it is written; by list, which is allowed anyway."""
        resource = self.resource_for(kind, group)
        if resource is None:
            return None
        namespace, _, name = key.partition("/")
        only = (("fieldSelector", f"metadata.name={name}"),)
        answer = await self._client.send(Request("GET", resource.namespace_collection(namespace), only))
        items: Any = msgspec.json.decode(answer)["items"] or ()
        raw = next((one for one in items if one["metadata"]["uid"] == uid), None)
        return None if raw is None else {"apiVersion": resource.api_version, "kind": kind, **raw}

    def manages_workload(self, key: str) -> bool:
        wire = self.workload(key)
        return wire is not None and self.manages_queue(wire.metadata.namespace, wire.spec.queue_name)

    def manages_queue(self, namespace: str, queue: str) -> bool:
        return not self._cache.kueue_is_live or self._cache.is_taken_over(namespace or "default", queue)

    # Turns

    def start_once(self, name: str, work: Work, *, rate_limited: bool = False) -> bool:
        """Start it, unless the same is under way or has just failed; true if it was started."""
        patience = f"words of {name}" if rate_limited else name
        if name in self._busy or not self.may_start(patience):
            return False
        if rate_limited:
            self._not_before[patience] = time.monotonic() + RETRY_SECONDS
        self.start_after_previous(name, functools.partial(self.run_with_backoff, name, work))
        return True

    def may_start(self, patience: str) -> bool:
        now = time.monotonic()
        if len(self._not_before) > MOST_REMEMBERED:
            self._not_before = {key: at for key, at in self._not_before.items() if at > now}
        return now >= self._not_before.get(patience, 0.0) and self._may_write()

    def start_after_previous(self, name: str, work: Work) -> asyncio.Task[None]:
        """After what is being written under the same name."""
        task = asyncio.create_task(_after(self._busy.get(name), work))
        self._busy[name] = task
        task.add_done_callback(lambda _: self._busy.pop(name) if self._busy.get(name) is task else None)
        return task

    async def run_with_backoff(self, name: str, work: Work) -> None:
        try:
            await work()
        except (NotFound, Conflict) as error:
            log.info("%s: %s", name, error)
        except (ApiError, ServerUnavailable, LeaseLost) as error:
            self._not_before[name] = time.monotonic() + RETRY_SECONDS
            log.warning("%s: %s", name, error)

    def is_busy(self, name: str) -> bool:
        return name in self._busy

    async def drain(self) -> None:
        while self._busy:
            await asyncio.gather(*self._busy.values(), return_exceptions=True)

    # Requests

    async def patch_workload_status(self, key: str, status: dict[str, Any], version: str = "") -> str:
        """Returns the version that the Workload has now."""
        answer = await self.send(patch_status(self.workload_resource(), key, status, version))
        written = _VERSIONS.decode(answer).metadata.resource_version
        self.written_versions[key] = written
        return written

    async def suspend_owner(self, wire: WorkloadObject, suspended: bool) -> None:
        for owner in wire.metadata.owner_references:
            resource = self.resource_for(owner.kind, owner.api_version.rpartition("/")[0])
            if owner.controller and owner.kind in SUSPEND_FIELDS and resource is not None:
                key = f"{wire.metadata.namespace}/{owner.name}"
                await self.send(suspend_owner(resource, key, owner.uid, suspended))

    async def write(self, request: Request) -> None:
        await self.send(request)

    async def send(self, request: Request) -> bytes:
        return await self._client.send(request, self._may_write)


async def _after(before: asyncio.Task[None] | None, work: Work) -> None:
    if before is not None:
        await asyncio.wait((before,))
    await work()
