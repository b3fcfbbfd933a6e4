"""One version of an object, and one change from a version to the next.

`store.shelf` keeps them. An object is encoded once; its bytes are shared by gets, lists, all watchers and the journal.
The tree beside the bytes is for whoever has to look inside, and is shared too: nobody may change it.
"""

from __future__ import annotations

import msgspec

from windlass.model.unstructured import Unstructured

Key = tuple[str, str]
"""Namespace ("" for kinds without) and name."""

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class StoredObject:
    """An object as it was at one resourceVersion."""

    __slots__ = ("_tree", "key", "raw", "version")

    def __init__(self, key: Key, version: int, raw: bytes, tree: Unstructured | None = None) -> None:
        self.key, self.version, self.raw, self._tree = key, version, raw, tree

    @property
    def tree(self) -> Unstructured:
        """Shared. The tree of a version that is history is decoded again for whoever asks."""
        return self._tree if self._tree is not None else msgspec.json.decode(self.raw)

    def drop_tree(self) -> None:
        """Keep the bytes only: trees take several times their room."""
        self._tree = None

    def keep_tree(self) -> None:
        self._tree = self.tree


class Change:
    """What a write did. `new` of a deletion is the last state, with the deletion's own resourceVersion."""

    __slots__ = ("_line", "new", "old", "resource", "type", "version")

    def __init__(
        self, resource: str, version: int, event_type: str, new: StoredObject, old: StoredObject | None
    ) -> None:
        self.resource, self.version, self.type, self.new, self.old = resource, version, event_type, new, old
        self._line = b""

    @property
    def key(self) -> Key:
        return self.new.key

    @property
    def watch_event(self) -> bytes:
        """The line of a watch, made once for all who watch."""
        if not self._line:
            self._line = encode_watch_event(self.type, self.new.raw)
        return self._line

    def drop_trees(self) -> None:
        """It is history: keep the bytes of the object only."""
        self._line = b""
        if self.old is not None:
            self.old.drop_tree()
        if self.type == DELETED:
            self.new.drop_tree()


def encode_watch_event(event_type: str, raw: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (event_type.encode(), raw)
