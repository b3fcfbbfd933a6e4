"""One version of an object, and one change from a version to the next.

`store.shelf` keeps them. An object is encoded once; its bytes are shared by gets, lists, all watchers and the journal.
The tree beside the bytes is for whoever has to look inside, and is shared too: nobody may change it.
"""

from __future__ import annotations

from typing import Any

import msgspec

Tree = dict[str, Any]
Key = tuple[str, str]
"""Namespace ("" for kinds without) and name."""

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class Stored:
    """An object as it was at one resourceVersion."""

    __slots__ = ("_tree", "key", "raw", "version")

    def __init__(self, key: Key, version: int, raw: bytes, tree: Tree | None = None) -> None:
        self.key, self.version, self.raw, self._tree = key, version, raw, tree

    @property
    def tree(self) -> Tree:
        """Shared. The tree of a version that is history is decoded again for whoever asks."""
        return self._tree if self._tree is not None else msgspec.json.decode(self.raw)

    def retire(self) -> None:
        """Keep the bytes only: trees take several times their room."""
        self._tree = None

    def load(self) -> None:
        self._tree = self.tree


class Change:
    """What a write did. `new` of a deletion is the last state, with the deletion's own resourceVersion."""

    __slots__ = ("_line", "new", "old", "resource", "type", "version")

    def __init__(self, resource: str, version: int, kind: str, new: Stored, old: Stored | None) -> None:
        self.resource, self.version, self.type, self.new, self.old = resource, version, kind, new, old
        self._line = b""

    @property
    def key(self) -> Key:
        return self.new.key

    @property
    def line(self) -> bytes:
        """The line of a watch, made once for all who watch."""
        if not self._line:
            self._line = line_of(self.type, self.new.raw)
        return self._line

    def retire(self) -> None:
        """It is history: keep the bytes of the object only."""
        self._line = b""
        if self.old is not None:
            self.old.retire()
        if self.type == DELETED:
            self.new.retire()


def line_of(kind: str, raw: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), raw)
