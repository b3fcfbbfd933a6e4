"""All objects, one counter of versions, and whoever wants to hear of changes.

`registry` writes here and nobody else. A write is applied at once and told to the listeners in this process; where
there is a journal, watchers over the network and answers wait until it is on disk (`durable`), so that nothing which
was told can be lost.

Everything runs on the loop's thread; only the journal has one of its own.
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
"""Versions start here, so that a small one that somebody made up is too old, as it is in a cluster that has lived."""

ALL = "*"
"""Subscribes to the changes of every kind."""

Listener = Callable[[Change], None]


class Journal(Protocol):
    """Where changes are kept. It calls `Store.committed` on the loop's thread once they are on disk."""

    def append(self, change: Change) -> None: ...


class Store:
    def __init__(self, version: int = FIRST_VERSION, max_changes: int = MAX_CHANGES) -> None:
        self.version = self.durable_version = self._start = version
        self.journal: Journal | None = None
        self._most_changes = max_changes
        self._sharing = FieldInterner()
        self._shelves: dict[str, ResourceStorage] = {}
        self._near: dict[str, list[Listener]] = {}
        self._far: dict[str, dict[int, Listener]] = {}
        self._tickets = self.watcher_count = 0
        self._telling: deque[Change] = deque()
        self._busy = False
        self._unwritten: deque[Change] = deque()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._failure: str = ""

    def storage(self, resource: str) -> ResourceStorage:
        shelf = self._shelves.get(resource)
        if shelf is None:
            shelf = self._shelves[resource] = ResourceStorage(resource, self._start, self._most_changes)
        return shelf

    def storages(self) -> Iterable[ResourceStorage]:
        return self._shelves.values()

    def put(self, resource: str, key: Key, tree: Unstructured) -> StoredObject:
        """Store a tree that the store may keep. Its resourceVersion is written into it."""
        old = self.storage(resource).items.get(key)
        version = self.version + 1
        tree["metadata"]["resourceVersion"] = str(version)
        self._sharing.intern(tree)
        new = StoredObject(key, version, msgspec.json.encode(tree), tree)
        self._apply(Change(resource, version, ADDED if old is None else MODIFIED, new, old))
        return new

    def remove(self, resource: str, key: Key) -> StoredObject:
        """Take an object away. What is left of it is its last state, with the version of its end."""
        old = self.storage(resource).items[key]
        version = self.version + 1
        tree = dict(old.tree)
        tree["metadata"] = {**tree["metadata"], "resourceVersion": str(version)}
        gone = StoredObject(key, version, msgspec.json.encode(tree), tree)
        self._apply(Change(resource, version, DELETED, gone, old))
        return gone

    def _apply(self, change: Change) -> None:
        if self._failure:
            raise OSError(self._failure)
        self.version = change.version
        self.storage(change.resource).apply(change)
        if self.journal is not None:
            self._unwritten.append(change)
            self.journal.append(change)
        else:
            self.durable_version = change.version
            self._tell_far(change)
        self._tell_near(change)  # last: those who hear of it may write

    def _tell_near(self, change: Change) -> None:
        """Listeners may write; those changes are told after this one, so that everybody hears them in order."""
        self._telling.append(change)
        if self._busy:
            return
        self._busy = True
        try:
            while self._telling:
                one = self._telling.popleft()
                for listener in (*self._near.get(one.resource, ()), *self._near.get(ALL, ())):
                    _tell(listener, one)
        finally:
            self._busy = False

    def _tell_far(self, change: Change) -> None:
        listeners = self._far.get(change.resource)
        if listeners:
            for listener in tuple(listeners.values()):
                _tell(listener, change)

    def subscribe(self, resource: str, listener: Listener) -> Callable[[], None]:
        """Hear of changes at once, in this process. Returns how to stop."""
        listeners = self._near.setdefault(resource, [])
        listeners.append(listener)

        def stop() -> None:
            if listener in listeners:
                listeners.remove(listener)

        return stop

    def subscribe_durable(self, resource: str, listener: Listener) -> Callable[[], None]:
        """Hear of changes once they are durable. Returns how to stop."""
        self._tickets += 1
        ticket = self._tickets
        listeners = self._far.setdefault(resource, {})
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
        """Until everything that was written before this call is durable."""
        if self.durable_version >= self.version:
            return
        if self._failure:
            raise OSError(self._failure)
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((self.version, future))
        await future

    def on_committed(self, version: int) -> None:
        """Everything up to a version is on disk: tell those who waited for it."""
        self.durable_version = version
        while self._waiting and self._waiting[0][0] <= version:  # answers first: watchers may be many
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_result(None)
        while self._unwritten and self._unwritten[0].version <= version:
            self._tell_far(self._unwritten.popleft())

    def on_journal_failed(self, problem: str) -> None:
        """The journal can't be written: nothing more is accepted, and nobody is told that it was."""
        self._failure = problem
        while self._waiting:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_exception(OSError(problem))


def _tell(listener: Listener, change: Change) -> None:
    try:
        listener(change)
    except Exception:  # a listener's mistake is its own; the write has happened
        log.exception("a listener failed on %s of %s %s", change.type, change.resource, change.key)
