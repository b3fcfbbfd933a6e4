"""One version of an object, and one change from a version to the next.

`resource_storage` keeps them. An object is encoded once; the bytes are shared by gets, lists, all watchers and the
journal. The decoded object is shared too, and nobody may change it.
"""

from __future__ import annotations

import msgspec

from windlass.model.unstructured import Unstructured

Key = tuple[str, str]
"""Namespace ("" for cluster-scoped kinds) and name."""

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class StoredObject:
    __slots__ = ("_tree", "key", "raw", "version")

    def __init__(self, key: Key, version: int, raw: bytes, tree: Unstructured | None = None) -> None:
        self.key, self.version, self.raw, self._tree = key, version, raw, tree

    @property
    def tree(self) -> Unstructured:
        """Shared. For a historical version it is decoded on each access."""
        return self._tree if self._tree is not None else msgspec.json.decode(self.raw)

    def drop_tree(self) -> None:
        """Keeps only the bytes: decoded objects need several times as much memory."""
        self._tree = None

    def keep_tree(self) -> None:
        self._tree = self.tree


class Change:
    """What a write did. `new` of a deletion is the last state, with the deletion's resourceVersion."""

    __slots__ = ("_watch_event", "new", "old", "resource", "type", "version")

    def __init__(
        self, resource: str, version: int, event_type: str, new: StoredObject, old: StoredObject | None
    ) -> None:
        self.resource, self.version, self.type, self.new, self.old = resource, version, event_type, new, old
        self._watch_event = b""

    @property
    def key(self) -> Key:
        return self.new.key

    @property
    def watch_event(self) -> bytes:
        """The line of a watch, encoded once for all watchers."""
        if not self._watch_event:
            self._watch_event = encode_watch_event(self.type, self.new.raw)
        return self._watch_event

    def drop_trees(self) -> None:
        """Keeps only the bytes of a historical change."""
        self._watch_event = b""
        if self.old is not None:
            self.old.drop_tree()
        if self.type == DELETED:
            self.new.drop_tree()


def encode_watch_event(event_type: str, raw: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (event_type.encode(), raw)
