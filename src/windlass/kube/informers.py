"""All kinds that the server has, watched; kinds that come later are taken in, and those that go are dropped.

The scheduler owns one of these. It finds the kinds by `kube.discovery`, runs a `kube.informer` each, and says when
everything that was there at the start is known.
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
from windlass.kube.informer import DeltaHandler, Informer
from windlass.kube.resources import WATCHED_KINDS, Kind, Resource

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
    ) -> None:
        self._client, self._sink, self._kinds, self._look_again = client, handler, kinds, rediscovery_seconds
        self._running: dict[Resource, tuple[Informer, asyncio.Task[None]]] = {}
        self._missed: dict[Resource, int] = {}
        """How often a kind that we watch was not there."""
        self._wanted: set[tuple[str, str]] = set()
        self._absent: set[tuple[str, str]] = set()
        """Kinds and their API groups that were asked for, and were not there when looked for."""
        self._hurry = asyncio.Event()
        self.synced = asyncio.Event()
        """Set once all that was found at the start is listed."""

    @property
    def informers(self) -> list[Informer]:
        return [informer for informer, _ in self._running.values()]

    def resource_for(self, kind: str, group: str = "") -> Resource | None:
        """The kind in the version that the server has, if it has it."""
        return next(
            (running for running in self._running if running.kind == kind and running.group == group), None
        )

    def is_watched(self, kind: str, group: str = "") -> bool:
        """Whether an object of this kind is on its way to the sink if it exists. A kind that has not been found yet is
        looked for at once, and counts until that is done."""
        resource = self.resource_for(kind, group)
        if resource is not None:
            return not self._running[resource][0].forbidden
        if (kind, group) not in self._absent:
            self._wanted.add((kind, group))
            self._hurry.set()
        return (kind, group) in self._wanted

    @property
    def all_synced(self) -> bool:
        return self.synced.is_set() and all(informer.synced.is_set() for informer in self.informers)

    async def relist(self, *kinds: str) -> None:
        """List these kinds again, so that what the sink knows of them is no older than this call."""
        await asyncio.gather(
            *(informer.relist() for informer in self.informers if informer.resource.kind in kinds)
        )

    async def run(self) -> None:
        """Until cancelled."""
        backoff = Backoff()
        try:
            while True:
                try:
                    await self._look()
                    backoff.reset()
                    pause = self._look_again * random.uniform(0.8, 1.2)
                except (ApiError, ServerUnavailable) as error:
                    pause = backoff.next()
                    log.warning("kinds can't be looked up: %s; trying again in %.1f s", error, pause)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._hurry.wait()
        finally:
            for _, task in self._running.values():
                task.cancel()
            await asyncio.gather(*(task for _, task in self._running.values()), return_exceptions=True)

    async def _look(self) -> None:
        self._hurry.clear()
        wanted = {*self._wanted}
        found = await discover(self._client, self._kinds)
        self._absent |= wanted
        self._wanted -= wanted
        missing = [
            kind.plural
            for kind in self._kinds
            if kind.required and kind.kind not in {running.kind for running in found}
        ]
        if missing:
            raise ServerUnavailable(f"the server doesn't have {', '.join(missing)}")
        await self._restart_broken()
        for resource in found:
            self._missed.pop(resource, None)
            if resource not in self._running:
                self._start(resource)
        if not self.synced.is_set():
            await asyncio.gather(*(informer.synced.wait() for informer in self.informers))
            self.synced.set()
        await self._drop([running for running in self._running if running not in found])

    def _start(self, resource: Resource) -> None:
        required = any(kind.required and kind.kind == resource.kind for kind in self._kinds)
        informer = Informer(self._client, resource, self._sink, required=required)
        task = asyncio.create_task(informer.run(), name=f"watch {resource.plural}.{resource.group}")
        self._running[resource] = informer, task
        if self.synced.is_set():
            log.info("%s.%s has appeared", resource.plural, resource.group)

    async def _restart_broken(self) -> None:
        """A watch that ended by an error of our own begins again, knowing nothing."""
        for resource, (informer, task) in [*self._running.items()]:
            if task.done():
                log.error("the watch of %s ended", resource.plural, exc_info=task.exception())
                del self._running[resource]
                self._start(resource)
                await self._running[resource][0].synced.wait()
                informer.clear(self._running[resource][0])

    async def _drop(self, absent: Sequence[Resource]) -> None:
        """Kinds that are gone: replaced by another version at once, for good only if they are missed twice.

        A server that has just started may not list every kind yet, and to take all queues for deleted because of that
        would let their work run without quota.
        """
        for resource in absent:
            others = (
                running
                for running in self._running
                if (running.kind, running.group) == (resource.kind, resource.group)
            )
            replacement = next(
                (running for running in others if running != resource and running not in absent), None
            )
            self._missed[resource] = self._missed.get(resource, 0) + 1
            if replacement is not None:
                await self._running[replacement][0].synced.wait()
                await self._stop(resource, self._running[replacement][0])
            elif self._missed[resource] >= MISSES_UNTIL_DROPPED:
                await self._stop(resource)
                log.info("%s.%s is gone", resource.plural, resource.group)

    async def _stop(self, resource: Resource, replacement: Informer | None = None) -> None:
        informer, task = self._running.pop(resource)
        self._missed.pop(resource, None)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        informer.clear(replacement)
