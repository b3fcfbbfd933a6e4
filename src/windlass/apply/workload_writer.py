"""Serializes writes to Workloads and their owners: one at a time per object, in the order in which they were started.

`apply.admission` and `apply.owner_workloads` write through it. A write that has failed is not repeated for a while;
writes that only change a message are rate limited, and skipped while another write to the object is under way.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from windlass.apply.assumed_status import parse_resource_version
from windlass.apply.cluster_cache import ClusterCache
from windlass.apply.owners import SUSPEND_FIELDS, suspend_owner
from windlass.apply.step_guard import StepGuard
from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, Conflict, NotFound, NotSent, ServerUnavailable, decode_answer
from windlass.kube.request import Request
from windlass.kube.resources import KUEUE_API_GROUP, Resource
from windlass.kube.write_requests import patch_status
from windlass.model.kueue import WorkloadObject

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
"""Pause after a failed write, and between two rate-limited writes to the same Workload."""
MAX_ENTRIES = 1_000
MESSAGE_BURST, MESSAGES_PER_SECOND = 100, 20
"""Of writes that only change messages, to all Workloads together: starting work is more urgent than telling."""
MESSAGE_UPDATE_SECONDS = 60.0
"""Shortest time between two messages with the same cause: numbers in them change with every decision."""

Action = Callable[[], Awaitable[object]]


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Written(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _RawItems(msgspec.Struct, frozen=True):
    items: list[dict[str, Any]] | None


class WorkloadWriter:
    def __init__(
        self,
        client: KubeClient,
        cache: ClusterCache,
        may_write: Callable[[], bool],
        resource_for: Callable[[str, str], Resource | None],
        guard: StepGuard | None = None,
    ) -> None:
        """`resource_for` returns the resource of a kind and API group, or None if the server doesn't serve it."""
        self.guard = guard or StepGuard()
        self._client, self._cache, self._may_write, self.resource_for = client, cache, may_write, resource_for
        self._running: dict[str, asyncio.Task[None]] = {}
        """Name → the last write that was started under it and has not ended."""
        self._not_before: dict[str, float] = {}
        self._prune_at = 0.0
        self._message_tokens, self._filled_at = float(MESSAGE_BURST), time.monotonic()
        self.written_versions: dict[str, str] = {}
        """Workload → resourceVersion of our last write, which the watch may not have shown yet."""

    # Lookups

    def workload(self, key: str) -> WorkloadObject | None:
        found: WorkloadObject | None = self._cache.get("Workload", key, KUEUE_API_GROUP)
        return found

    def is_behind(self, known: WorkloadObject) -> bool:
        """Whether the watch has not shown our last write to this Workload yet."""
        written = parse_resource_version(self.written_versions.get(known.key, ""))
        return written > parse_resource_version(known.metadata.resource_version)

    def workload_resource(self) -> Resource:
        found = self.resource_for("Workload", KUEUE_API_GROUP)
        if found is None:
            raise ServerUnavailable("the API server serves no kueue.x-k8s.io Workload any more")
        return found

    async def get_raw(self, kind: str, group: str, key: str, uid: str = "") -> Any:
        """The object with all of its fields; None if it was deleted. Without `uid`, the one that has the name now."""
        resource = self.resource_for(kind, group)
        items = await self._list_by_name(resource, key) if resource is not None else ()
        raw = next((item for item in items if (item.get("metadata") or {}).get("uid") == uid or not uid), None)
        return None if raw is None or resource is None else {"apiVersion": resource.api_version, "kind": kind, **raw}

    async def exists(self, kind: str, group: str, key: str) -> bool:
        """Whether the server has an object of this name now."""
        resource = self.resource_for(kind, group)
        return resource is not None and bool(await self._list_by_name(resource, key))

    async def _list_by_name(self, resource: Resource, key: str) -> Any:
        """By list, since RBAC grants that already."""
        namespace, _, name = key.partition("/")
        selector = (("fieldSelector", f"metadata.name={name}"),)
        request = Request("GET", resource.namespace_collection(namespace), selector)
        return (await self._client.read(request, _RawItems)).items or ()

    def manages_workload(self, key: str) -> bool:
        workload = self.workload(key)
        return workload is not None and self.manages_queue(workload.metadata.namespace, workload.spec.queue_name)

    def manages_queue(self, namespace: str, queue: str) -> bool:
        return self._cache.responsibility.admits_to(namespace or "default", queue)

    # Order

    def start_once(self, name: str, action: Action, *, rate_limited: bool = False) -> bool:
        """Starts the write unless one of this name is under way or has just failed; true if it was started."""
        limit_key = f"message of {name}" if rate_limited else name
        if name in self._running or not self.may_start(limit_key):
            return False
        if rate_limited:
            self._not_before[limit_key] = time.monotonic() + RETRY_SECONDS
        self.start_after_previous(name, functools.partial(self.run_with_backoff, name, action))
        return True

    def may_start(self, limit_key: str) -> bool:
        now = time.monotonic()
        if len(self._not_before) > MAX_ENTRIES and now >= self._prune_at:
            self._not_before = {key: at for key, at in self._not_before.items() if at > now}
            self._prune_at = now + RETRY_SECONDS
        return now >= self._not_before.get(limit_key, 0.0) and self._may_write()

    def start_message(self, key: str, action: Action, *, same_cause: bool) -> bool:
        """Starts a write that only changes a Workload's message, unless there were too many; true if it was started."""
        now = time.monotonic()
        filled = self._message_tokens + (now - self._filled_at) * MESSAGES_PER_SECOND
        self._message_tokens, self._filled_at = min(float(MESSAGE_BURST), filled), now
        if self._message_tokens < 1 or (same_cause and not self.may_start(f"update of {key}")):
            return False
        if not self.start_once(key, action, rate_limited=True):
            return False
        self._message_tokens -= 1
        self._not_before[f"update of {key}"] = now + MESSAGE_UPDATE_SECONDS
        return True

    def start_after_previous(self, name: str, action: Action) -> asyncio.Task[None]:
        """Starts the write as soon as the previous one of the same name has ended."""
        task = asyncio.create_task(_run_after(self._running.get(name), action))
        self._running[name] = task
        task.add_done_callback(lambda _: self._running.pop(name) if self._running.get(name) is task else None)
        return task

    async def run_with_backoff(self, name: str, action: Action) -> None:
        try:
            with self.guard.step(f"the write of {name}"):
                await action()
        except (NotFound, Conflict) as error:
            log.info("%s: %s", name, error)
        except (ApiError, ServerUnavailable, NotSent) as error:
            self._not_before[name] = time.monotonic() + RETRY_SECONDS
            # Otherwise what the failure holds up would wait for the next change of any object.
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._cache.request_decision)
            log.warning("%s: %s", name, error)

    def is_busy(self, name: str) -> bool:
        return name in self._running

    async def drain(self) -> None:
        while self._running:
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    # Requests

    async def patch_workload_status(self, key: str, status: dict[str, Any], version: str = "") -> str:
        """Returns the new resourceVersion."""
        answer = await self.send(patch_status(self.workload_resource(), key, status, version))
        written = decode_answer(answer, _Written, f"status of Workload {key}").metadata.resource_version
        self.written_versions[key] = written
        return written

    async def suspend_owner(self, workload: WorkloadObject, suspended: bool) -> None:
        for owner in workload.metadata.owner_references:
            resource = self.resource_for(owner.kind, owner.api_version.rpartition("/")[0])
            if owner.controller and owner.kind in SUSPEND_FIELDS and resource is not None:
                key = f"{workload.metadata.namespace}/{owner.name}"
                await self.send(suspend_owner(resource, key, owner.uid, suspended))

    async def write(self, request: Request) -> None:
        await self.send(request)

    async def send(self, request: Request) -> bytes:
        return await self._client.send(request, self._may_write)


async def _run_after(previous: asyncio.Task[None] | None, action: Action) -> None:
    if previous is not None:
        await asyncio.wait((previous,))
    await action()
