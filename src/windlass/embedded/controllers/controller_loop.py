"""One loop for all workers: a change in the store names keys, keys are worked off, failures come back later.

`embedded.embedded_cluster` runs it; tests call `settle` with a clock of their own. A worker is a controller or a
node's kubelet: it says which resources it wants to hear of, which keys a change concerns, and works on one key at a
time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from windlass.embedded.api.errors import ApiError
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.work_queue import WorkQueue
from windlass.model.unstructured import Unstructured

log = logging.getLogger(__name__)

YIELD_AFTER_SECONDS = 0.01
"""How long the loop works before it lets requests through."""
MIN_REQUEUE_SECONDS = 0.01
MAX_SYNCS = 100_000


class Controller(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def resources(self) -> Sequence[str]:
        """The kinds that it wants to hear of."""

    def keys_for(
        self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None
    ) -> Iterable[str]:
        """The keys that a change concerns."""

    def sync(self, key: str, now: float) -> float | None:
        """Look at one key; returns when to look again, if time alone may change something."""


class ControllerLoop:
    def __init__(
        self, cache: Cache, controllers: Sequence[Controller], clock: Callable[[], float] = time.time
    ) -> None:
        self.cache, self._clock = cache, clock
        self._workers = list(controllers)
        self._listening: dict[str, list[int]] = {}
        self._queue: WorkQueue[tuple[int, str]] = WorkQueue()
        self._wake = asyncio.Event()
        for number, worker in enumerate(self._workers):
            for resource in worker.resources:
                self._listening.setdefault(resource, []).append(number)

    def start(self) -> None:
        """Hear of everything that exists and of every change from now on; of nothing before all of it is known."""
        for resource in self._listening:
            self.cache.watch(resource)
        self.cache.handlers.append(self._hear)
        for resource in self._listening:
            for thing in self.cache.all(resource):
                self._hear(resource, "ADDED", thing, None)

    def enqueue(self, controller: Controller, key: str) -> None:
        """Somebody else than the store has news: a process ended, a fault was injected."""
        self._queue.add((self._workers.index(controller), key))
        self._wake.set()

    def watch_resource(self, controller: Controller, resource: str) -> None:
        """A worker wants to hear of a further kind, such as one that a CustomResourceDefinition has just added."""
        number = self._workers.index(controller)
        listening = self._listening.setdefault(resource, [])
        if number not in listening:
            listening.append(number)
        self.cache.watch(resource)

    def sync_due(self, now: float) -> None:
        """Work off everything that is due."""
        for _ in range(MAX_SYNCS):
            item = self._queue.pop(now)
            if item is None:
                return
            self._work(item, now)
        raise RuntimeError(f"no rest after {MAX_SYNCS} pieces of work; last: {item}")

    def next_due(self) -> float | None:
        return self._queue.next_due()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._wake.clear()
            now = self._clock()
            until = time.monotonic() + YIELD_AFTER_SECONDS
            item = self._queue.pop(now)
            while item is not None:
                self._work(item, now)
                if time.monotonic() > until:
                    await asyncio.sleep(0)
                    until = time.monotonic() + YIELD_AFTER_SECONDS
                    now = self._clock()
                item = self._queue.pop(now)
            await self._rest()

    async def _rest(self) -> None:
        due = self._queue.next_due()
        if len(self._queue):
            return
        pause = None if due is None else max(0.0, due - self._clock())
        with contextlib.suppress(TimeoutError):
            # Not wait_for: before Python 3.12 it swallows a cancellation that comes together with the event.
            async with asyncio.timeout(pause):
                await self._wake.wait()

    def _work(self, item: tuple[int, str], now: float) -> None:
        number, key = item
        worker = self._workers[number]
        try:
            again = worker.sync(key, now)
        except ApiError as error:
            pause = self._queue.add_rate_limited(item, now)
            log.debug("%s: %s: %s; again in %.2f s", worker.name, key, error.message, pause)
            return
        except Exception:  # a task boundary: one odd object must not stop the others
            pause = self._queue.add_rate_limited(item, now)
            log.exception("%s failed on %s; again in %.2f s", worker.name, key, pause)
            return
        self._queue.forget(item)
        if again is not None:
            # A moment that has passed already must not keep the loop from everything else.
            self._queue.add_at(item, max(again, now + MIN_REQUEUE_SECONDS))

    def _hear(self, resource: str, kind: str, new: Unstructured, old: Unstructured | None) -> None:
        for number in self._listening.get(resource, ()):
            for key in self._workers[number].keys_for(resource, kind, new, old):
                self._queue.add((number, key))
        self._wake.set()
