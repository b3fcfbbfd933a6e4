"""One informer for every kind that the server has; kinds that appear later are added, kinds that vanish are dropped.

The scheduler owns one `Informers`. It finds the kinds with `kube.discovery`, runs a `kube.informer` for each, and is
synced once all kinds of the first discovery have been listed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Sequence

from windlass.kube.backoff import Backoff
from windlass.kube.client import KubeClient
from windlass.kube.discovery import discover
from windlass.kube.errors import ApiError, ServerUnavailable
from windlass.kube.informer import Decode, DeltaHandler, Informer
from windlass.kube.resources import WATCHED_KINDS, Kind, Resource
from windlass.model.codec import decode_kind

log = logging.getLogger(__name__)

REDISCOVERY_SECONDS = 30.0
MISSES_UNTIL_DROPPED = 2


class Informers:
    def __init__(
        self,
        client: KubeClient,
        handler: DeltaHandler,
        kinds: Sequence[Kind] = WATCHED_KINDS,
        rediscovery_seconds: float = REDISCOVERY_SECONDS,
        decode: Decode = decode_kind,
    ) -> None:
        self._decode = decode
        self._client, self._handler, self._kinds = client, handler, kinds
        self._rediscovery_seconds = rediscovery_seconds
        self._running: dict[Resource, tuple[Informer, asyncio.Task[None]]] = {}
        self._missed: dict[Resource, int] = {}
        """Consecutive discoveries that did not find a watched kind."""
        self._wanted: set[tuple[str, str]] = set()
        self._absent: set[tuple[str, str]] = set()
        """(kind, API group) that a caller asked for and that the last discovery did not find."""
        self._rediscover_now = asyncio.Event()
        self.synced = asyncio.Event()
        """Set once all kinds of the first discovery are listed."""

    @property
    def informers(self) -> list[Informer]:
        return [informer for informer, _ in self._running.values()]

    def resource_for(self, kind: str, group: str = "") -> Resource | None:
        """The kind in the version that the server has; None if it has none."""
        return next((running for running in self._running if running.kind == kind and running.group == group), None)

    def is_watched(self, kind: str, group: str = "") -> bool:
        """Whether the handler gets every object of this kind. Asking for a kind that has not been found yet starts a
        discovery; until that is done the kind counts as watched."""
        resource = self.resource_for(kind, group)
        if resource is not None:
            return not self._running[resource][0].forbidden
        if (kind, group) not in self._absent:
            self._wanted.add((kind, group))
            self._rediscover_now.set()
        return (kind, group) in self._wanted

    async def relist(self, *kinds: str) -> None:
        """Lists these kinds again, so that the handler's state of them is no older than this call."""
        await asyncio.gather(*(informer.relist() for informer in self.informers if informer.resource.kind in kinds))

    async def run(self) -> None:
        """Until cancelled."""
        backoff = Backoff()
        try:
            while True:
                try:
                    await self._rediscover()
                    backoff.reset()
                    pause = self._rediscovery_seconds * random.uniform(0.8, 1.2)
                except (ApiError, ServerUnavailable) as error:
                    pause = backoff.next()
                    log.warning("API discovery failed: %s; trying again in %.1f s", error, pause)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._rediscover_now.wait()
        finally:
            for _, task in self._running.values():
                task.cancel()
            await asyncio.gather(*(task for _, task in self._running.values()), return_exceptions=True)

    async def _rediscover(self) -> None:
        self._rediscover_now.clear()
        wanted = {*self._wanted}
        found = await discover(self._client, self._kinds)
        self._absent |= wanted
        self._wanted -= wanted
        served = {running.kind for running in found}
        missing = [kind.plural for kind in self._kinds if kind.required and kind.kind not in served]
        if missing:
            raise ServerUnavailable(f"the server doesn't have {', '.join(missing)}")
        await self._restart_broken()
        for resource in found:
            self._missed.pop(resource, None)
            if resource not in self._running:
                self._start(resource)
        if not self.synced.is_set():
            await asyncio.gather(*(self._wait_synced(resource) for resource in self._running))
            self.synced.set()
        await self._drop([running for running in self._running if running not in found])

    def _start(self, resource: Resource) -> None:
        required = any(kind.required and kind.kind == resource.kind for kind in self._kinds)
        informer = Informer(self._client, resource, self._handler, required=required, decode=self._decode)
        task = asyncio.create_task(informer.run(), name=f"watch {resource.plural}.{resource.group}")
        self._running[resource] = informer, task
        if self.synced.is_set():
            log.info("%s.%s has appeared", resource.plural, resource.group)

    async def _wait_synced(self, resource: Resource) -> None:
        """Fails if the informer ends before, so that the next discovery starts it again."""
        informer, task = self._running[resource]
        synced = asyncio.create_task(informer.synced.wait())
        try:
            await asyncio.wait((synced, task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            synced.cancel()
        if not informer.synced.is_set():
            raise ServerUnavailable(f"the watch of {resource.plural} ended before it had listed anything")

    async def _restart_broken(self) -> None:
        """Replaces informers whose task died of an unexpected error."""
        for resource, (informer, task) in [*self._running.items()]:
            if task.done():
                log.error("the watch of %s ended", resource.plural, exc_info=task.exception())
                del self._running[resource]
                self._start(resource)
                await self._wait_synced(resource)
                informer.clear(self._running[resource][0])

    async def _drop(self, absent: Sequence[Resource]) -> None:
        """Stops informers of kinds that discovery missed: at once if another version is there, else at the second miss.

        A server that has just started may not list every kind yet. If all queues counted as deleted then, their
        workloads would run without quota.
        """
        for resource in absent:
            others = (
                running for running in self._running if (running.kind, running.group) == (resource.kind, resource.group)
            )
            replacement = next((running for running in others if running != resource and running not in absent), None)
            self._missed[resource] = self._missed.get(resource, 0) + 1
            if replacement is not None:
                await self._wait_synced(replacement)
                await self._stop(resource, self._running[replacement][0])
            elif self._missed[resource] >= MISSES_UNTIL_DROPPED:
                await self._stop(resource)
                log.info("%s.%s is no longer served", resource.plural, resource.group)

    async def _stop(self, resource: Resource, replacement: Informer | None = None) -> None:
        informer, task = self._running.pop(resource)
        self._missed.pop(resource, None)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        informer.clear(replacement)
