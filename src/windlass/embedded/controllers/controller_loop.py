"""One loop for all controllers: changes enqueue keys, keys are synced, failed keys come back later.

`embedded.embedded_cluster` runs it; tests call `sync_due` with their own clock. A controller (or a node's kubelet)
says which resources it watches and which keys a change concerns, and syncs one key at a time.
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
"""How long the loop works before it yields to HTTP requests."""
MIN_REQUEUE_SECONDS = 0.01
MAX_SYNCS = 100_000
AGAIN = float("-inf")
"""What `sync` returns where it has done only a part, so as not to hold the others up: its turn comes again."""


class Controller(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def resources(self) -> Sequence[str]:
        """The kinds that it watches."""

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterable[str]:
        """The keys that a change concerns."""

    def sync(self, key: str, now: float) -> float | None:
        """Syncs one key; returns when to sync again, if time alone may change something, or AGAIN."""


class ControllerLoop:
    def __init__(self, cache: Cache, controllers: Sequence[Controller], clock: Callable[[], float] = time.time) -> None:
        self.cache, self._clock = cache, clock
        self._controllers = list(controllers)
        self._watchers: dict[str, list[int]] = {}
        self._queue: WorkQueue[tuple[int, str]] = WorkQueue()
        self._wake = asyncio.Event()
        for number, controller in enumerate(self._controllers):
            for resource in controller.resources:
                self._watchers.setdefault(resource, []).append(number)

    def start(self) -> None:
        """Watches all resources, then enqueues what exists, so that controllers see a complete cache."""
        for resource in self._watchers:
            self.cache.watch(resource)
        self.cache.handlers.append(self._on_change)
        for resource in self._watchers:
            for obj in self.cache.all(resource):
                self._on_change(resource, "ADDED", obj, None)

    def enqueue(self, controller: Controller, key: str) -> None:
        """For changes outside the store: a process ended, a fault was injected."""
        self._queue.add((self._controllers.index(controller), key))
        self._wake.set()

    def sync_due(self, now: float) -> None:
        """Syncs everything that is due."""
        for _ in range(MAX_SYNCS):
            item = self._queue.pop(now)
            if item is None:
                return
            self._sync(item, now)
        raise RuntimeError(f"the controllers don't settle: {MAX_SYNCS} syncs, the last of {item}")

    def next_due(self) -> float | None:
        return self._queue.next_due()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            self._wake.clear()
            now = self._clock()
            yield_at = time.monotonic() + YIELD_AFTER_SECONDS
            item = self._queue.pop(now)
            while item is not None:
                self._sync(item, now)
                if time.monotonic() > yield_at:
                    await asyncio.sleep(0)
                    yield_at = time.monotonic() + YIELD_AFTER_SECONDS
                    now = self._clock()
                item = self._queue.pop(now)
            await self._wait_for_work()

    async def _wait_for_work(self) -> None:
        due = self._queue.next_due()
        if len(self._queue):
            return
        pause = None if due is None else max(0.0, due - self._clock())
        with contextlib.suppress(TimeoutError):
            # Not wait_for: before Python 3.12 it swallows a cancellation that arrives together with the event.
            async with asyncio.timeout(pause):
                await self._wake.wait()

    def _sync(self, item: tuple[int, str], now: float) -> None:
        number, key = item
        controller = self._controllers[number]
        try:
            requeue_at = controller.sync(key, now)
        except ApiError as error:
            pause = self._queue.add_rate_limited(item, now)
            log.debug("%s: %s: %s; retrying in %.2f s", controller.name, key, error.message, pause)
            return
        except Exception:  # task boundary: one malformed object must not stop the others
            pause = self._queue.add_rate_limited(item, now)
            log.exception("%s failed on %s; retrying in %.2f s", controller.name, key, pause)
            return
        self._queue.forget(item)
        if requeue_at == AGAIN:
            self._queue.add(item)
        elif requeue_at is not None:
            # A time in the past must not make the loop spin on this key.
            self._queue.add_at(item, max(requeue_at, now + MIN_REQUEUE_SECONDS))

    def _on_change(self, resource: str, kind: str, new: Unstructured, old: Unstructured | None) -> None:
        for number in self._watchers.get(resource, ()):
            for key in self._controllers[number].keys_for(resource, kind, new, old):
                self._queue.add((number, key))
        self._wake.set()
