"""All objects, one version counter, and the listeners to changes.

Only `registry` writes here. A write is applied at once and passed to listeners in this process; with a journal,
network watchers and responses wait until it is on disk (`durable`), so that nothing which was acknowledged can be
lost. Everything runs on the loop's thread, except the journal's own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from windlass.embedded.store.interning import FieldInterner
from windlass.embedded.store.resource_storage import MAX_CHANGES, ResourceStorage
from windlass.embedded.store.stored_object import ADDED, DELETED, MODIFIED, Change, Key, StoredObject
from windlass.model.unstructured import Unstructured

log = logging.getLogger(__name__)

FIRST_VERSION = 1000
"""Versions start here, so that a small made-up version is too old, as in a cluster that has run for a while."""

ALL = "*"
"""Subscribes to changes of every kind."""

Listener = Callable[[Change], None]


class Journal(Protocol):
    """Stores changes. Calls `Store.on_committed` on the loop's thread once they are on disk."""

    def append(self, change: Change) -> None: ...


class Store:
    def __init__(self, version: int = FIRST_VERSION, max_changes: int = MAX_CHANGES) -> None:
        self.version = self.durable_version = self._start = version
        self.journal: Journal | None = None
        self._max_changes = max_changes
        self._interner = FieldInterner()
        self._storages: dict[str, ResourceStorage] = {}
        self._listeners: dict[str, list[Listener]] = {}
        self._durable_listeners: dict[str, dict[int, Listener]] = {}
        self._last_ticket = self.watcher_count = 0
        self._to_notify: deque[Change] = deque()
        self._is_notifying = False
        self._not_durable: deque[Change] = deque()
        self._durable_waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.failure = ""
        """Why nothing can be written any more, if so."""

    def storage(self, resource: str) -> ResourceStorage:
        found = self._storages.get(resource)
        if found is None:
            found = self._storages[resource] = ResourceStorage(resource, self._start, self._max_changes)
        return found

    def storages(self) -> Iterable[ResourceStorage]:
        return self._storages.values()

    @property
    def size_bytes(self) -> int:
        """Of all current objects, encoded."""
        return sum(storage.size_bytes for storage in self._storages.values())

    def put(self, resource: str, key: Key, tree: Unstructured) -> StoredObject:
        """Stores an object, which the store may keep. Its resourceVersion is set."""
        old = self.storage(resource).items.get(key)
        version = self.version + 1
        tree["metadata"]["resourceVersion"] = str(version)
        self._interner.intern(tree)
        new = StoredObject(key, version, msgspec.json.encode(tree), tree)
        self._apply(Change(resource, version, ADDED if old is None else MODIFIED, new, old))
        return new

    def remove(self, resource: str, key: Key) -> StoredObject:
        """Removes an object. Returns its last state, with the version of its deletion."""
        old = self.storage(resource).items[key]
        version = self.version + 1
        tree = dict(old.tree)
        tree["metadata"] = {**tree["metadata"], "resourceVersion": str(version)}
        removed = StoredObject(key, version, msgspec.json.encode(tree), tree)
        self._apply(Change(resource, version, DELETED, removed, old))
        return removed

    def _apply(self, change: Change) -> None:
        if self.failure:
            raise OSError(self.failure)
        self.version = change.version
        self.storage(change.resource).apply(change)
        if self.journal is not None:
            self._not_durable.append(change)
            self.journal.append(change)
        else:
            self.durable_version = change.version
            self._notify_durable(change)
        self._notify_listeners(change)  # last, since listeners may write

    def _notify_listeners(self, change: Change) -> None:
        """Listeners may write; those changes are queued, so that every listener gets all changes in order."""
        self._to_notify.append(change)
        if self._is_notifying:
            return
        self._is_notifying = True
        try:
            while self._to_notify:
                queued = self._to_notify.popleft()
                for listener in (*self._listeners.get(queued.resource, ()), *self._listeners.get(ALL, ())):
                    _call_listener(listener, queued)
        finally:
            self._is_notifying = False

    def _notify_durable(self, change: Change) -> None:
        listeners = self._durable_listeners.get(change.resource)
        if listeners:
            for listener in tuple(listeners.values()):
                _call_listener(listener, change)

    def subscribe(self, resource: str, listener: Listener) -> Callable[[], None]:
        """Calls the listener at once after each change. Returns the function that unsubscribes."""
        listeners = self._listeners.setdefault(resource, [])
        listeners.append(listener)

        def stop() -> None:
            if listener in listeners:
                listeners.remove(listener)

        return stop

    def subscribe_durable(self, resource: str, listener: Listener) -> Callable[[], None]:
        """Calls the listener when a change is durable. Returns the function that unsubscribes."""
        self._last_ticket += 1
        ticket = self._last_ticket
        listeners = self._durable_listeners.setdefault(resource, {})
        listeners[ticket] = listener
        self.watcher_count += 1

        def stop() -> None:
            if listeners.pop(ticket, None) is not None:
                self.watcher_count -= 1

        return stop

    @property
    def is_durable(self) -> bool:
        """Whether everything that was written is durable."""
        return self.durable_version == self.version

    async def wait_durable(self) -> None:
        """Waits until everything that was written before this call is durable."""
        if self.durable_version >= self.version:
            return
        if self.failure:
            raise OSError(self.failure)
        future = asyncio.get_running_loop().create_future()
        self._durable_waiters.append((self.version, future))
        await future

    def on_committed(self, version: int) -> None:
        """Everything up to a version is on disk."""
        self.durable_version = version
        while (
            self._durable_waiters and self._durable_waiters[0][0] <= version
        ):  # responses first: there may be many watchers
            future = self._durable_waiters.popleft()[1]
            if not future.done():
                future.set_result(None)
        while self._not_durable and self._not_durable[0].version <= version:
            self._notify_durable(self._not_durable.popleft())

    def on_journal_failed(self, problem: str) -> None:
        """The journal can't be written: further writes fail, and pending ones are not acknowledged."""
        self.failure = problem
        while self._durable_waiters:
            future = self._durable_waiters.popleft()[1]
            if not future.done():
                future.set_exception(OSError(problem))


def _call_listener(listener: Listener, change: Change) -> None:
    try:
        listener(change)
    except Exception:  # the write has happened; a listener's error must not undo it
        log.exception("a listener failed on %s of %s %s", change.type, change.resource, change.key)
