"""The objects of one kind in the order of their keys, and their recent changes.

`store` has one per kind. History is limited by count and bytes; older changes are compacted, and reading them
raises `Compacted`, which the API answers with 410.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator

from windlass.embedded.store.stored_object import DELETED, Change, Key, StoredObject

MAX_CHANGES = 20_000
MAX_HISTORY_BYTES = 16 << 20
DECODED_CHANGES = 256
"""Changes kept in decoded form, for watchers with selectors; older ones are kept as bytes only."""


class Compacted(Exception):
    """The requested version is older than the history; `oldest` is the oldest that is left."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"compacted up to {oldest}")
        self.oldest = oldest


class ResourceStorage:
    def __init__(self, resource: str, version: int, max_changes: int = MAX_CHANGES) -> None:
        self.resource = resource
        self.items: dict[Key, StoredObject] = {}
        self.compacted_version = version
        """Changes up to this version are compacted."""
        self.size_bytes = 0
        """Of the current objects, encoded."""
        self._keys: list[Key] = []
        self._history: deque[Change] = deque()
        self._bytes = 0
        self._max_changes = max_changes

    def __len__(self) -> int:
        return len(self.items)

    def restore(self, items: list[StoredObject]) -> None:
        """Sets the objects of an earlier run, without history."""
        self.items = {item.key: item for item in items}
        self._keys = sorted(self.items)
        self.size_bytes = sum(len(item.raw) for item in items)

    def apply(self, change: Change) -> None:
        key = change.key
        self.size_bytes -= len(change.old.raw) if change.old is not None else 0
        if change.type == DELETED:
            del self.items[key]
            del self._keys[bisect_left(self._keys, key)]
        else:
            if change.old is None:
                insort(self._keys, key)
            self.items[key] = change.new
            self.size_bytes += len(change.new.raw)
        self._history.append(change)
        self._bytes += len(change.new.raw)
        if len(self._history) > DECODED_CHANGES:
            self._history[-DECODED_CHANGES - 1].drop_trees()
        while len(self._history) > self._max_changes or self._bytes > MAX_HISTORY_BYTES:
            self._compact_oldest()

    def list_current(self, namespace: str = "", after: Key | None = None) -> Iterator[StoredObject]:
        """The current objects in the order of keys; of one namespace and after a key, if given."""
        keys, items = self._keys, self.items
        start = bisect_left(keys, (namespace, "")) if namespace else 0
        if after is not None:
            start = max(start, bisect_left(keys, (after[0], after[1] + "\0")))
        end = bisect_left(keys, (namespace + "\0", "")) if namespace else len(keys)
        return (items[key] for key in keys[start:end])

    def list_at(self, version: int, namespace: str = "", after: Key | None = None) -> Iterator[StoredObject]:
        """The objects at a version: later changes are undone."""
        later = self.changes_since(version)
        if not later:
            return self.list_current(namespace, after)
        undone: dict[Key, StoredObject | None] = {change.key: change.old for change in reversed(later)}
        merged = {**self.items, **undone}
        chosen = sorted(
            key
            for key, item in merged.items()
            if item is not None and (not namespace or key[0] == namespace) and (after is None or key > after)
        )
        return (item for key in chosen if (item := merged[key]) is not None)

    def changes_since(self, version: int) -> list[Change]:
        """The changes after a version, in order."""
        if version < self.compacted_version:
            raise Compacted(self.compacted_version)
        later: list[Change] = []
        for change in reversed(self._history):
            if change.version <= version:
                break
            later.append(change)
        later.reverse()
        return later

    def _compact_oldest(self) -> None:
        oldest = self._history.popleft()
        self.compacted_version = oldest.version
        self._bytes -= len(oldest.new.raw)
