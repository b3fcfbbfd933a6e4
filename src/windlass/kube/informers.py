"""All kinds that the server has, watched; kinds that come later are taken in, and those that go are dropped.

The scheduler owns one of these. It finds the kinds by `kube.discovery`, runs a `kube.informer` each, and says when
everything that was there at the start is known.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence

from windlass.kube.backoff import Backoff
from windlass.kube.client import KubeClient
from windlass.kube.discovery import discover
from windlass.kube.errors import ApiError, ServerAway
from windlass.kube.informer import Informer, Sink
from windlass.kube.resources import KINDS, Kind, Resource
from windlass.model.errors import ClusterUnreachable

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 30.0


class Informers:
    def __init__(
        self,
        client: KubeClient,
        sink: Sink,
        kinds: Sequence[Kind] = KINDS,
        look_again: float = LOOK_AGAIN_SECONDS,
    ) -> None:
        self._client, self._sink, self._kinds, self._look_again = client, sink, kinds, look_again
        self._running: dict[Resource, tuple[Informer, asyncio.Task[None]]] = {}
        self.synced = asyncio.Event()
        """Set once all that was found at the start is listed."""

    @property
    def informers(self) -> list[Informer]:
        return [informer for informer, _ in self._running.values()]

    def served(self, kind: str, group: str = "") -> Resource | None:
        """The kind in the version that the server has, if it has it."""
        return next((one for one in self._running if one.kind == kind and one.group == group), None)

    @property
    def all_synced(self) -> bool:
        return self.synced.is_set() and all(informer.synced.is_set() for informer in self.informers)

    async def refresh(self, *kinds: str) -> None:
        """List these kinds again, so that what the sink knows of them is no older than this call."""
        await asyncio.gather(*(one.refresh() for one in self.informers if one.resource.kind in kinds))

    async def run(self) -> None:
        """Until cancelled."""
        backoff = Backoff()
        try:
            while True:
                try:
                    await self._look()
                    backoff.reset()
                    pause = self._look_again * random.uniform(0.8, 1.2)
                except (ApiError, ServerAway) as error:
                    pause = backoff.next()
                    log.warning("kinds can't be looked up: %s; trying again in %.1f s", error, pause)
                await asyncio.sleep(pause)
        finally:
            await self._stop([*self._running])

    async def _look(self) -> None:
        found = await discover(self._client, self._kinds)
        missing = [
            kind.plural
            for kind in self._kinds
            if kind.required and kind.kind not in {one.kind for one in found}
        ]
        if missing:
            raise ServerAway(f"the server doesn't have {', '.join(missing)}")
        ended = [one for one, (_, task) in self._running.items() if task.done() or one not in found]
        await self._stop(ended)
        for resource in found:
            if resource not in self._running:
                self._start(resource)
        if not self.synced.is_set():
            await asyncio.gather(*(informer.synced.wait() for informer in self.informers))
            self.synced.set()

    def _start(self, resource: Resource) -> None:
        required = any(kind.required and kind.kind == resource.kind for kind in self._kinds)
        informer = Informer(self._client, resource, self._sink, required=required)
        task = asyncio.create_task(informer.run(), name=f"watch {resource.plural}.{resource.group}")
        self._running[resource] = informer, task
        if self.synced.is_set():
            log.info("%s.%s has appeared", resource.plural, resource.group)

    async def _stop(self, resources: Sequence[Resource]) -> None:
        for resource in resources:
            informer, task = self._running.pop(resource)
            task.cancel()
            outcome = (await asyncio.gather(task, return_exceptions=True))[0]
            if isinstance(outcome, Exception) and not isinstance(outcome, ClusterUnreachable):
                log.error("watch of %s ended", resource.plural, exc_info=outcome)
            informer.clear()
