"""Which column of the node arrays holds which resource.

The store adds resources as it reads nodes and pods; everything that reads `NodeState.free` uses it. Columns are only
added, so an older snapshot's columns keep their meaning. No decision depends on their order: shapes sort resources by
name.
"""

from __future__ import annotations

from collections.abc import Set

CPU, MEMORY, EPHEMERAL, PODS = 0, 1, 2, 3
_FIXED = ("cpu", "memory", "ephemeral-storage", "pods")


class ResourceColumns:
    """Resource name → column."""

    def __init__(self) -> None:
        self._names: list[str] = list(_FIXED)
        self._columns: dict[str, int] = {name: column for column, name in enumerate(_FIXED)}

    def __len__(self) -> int:
        return len(self._names)

    def column(self, name: str) -> int:
        """The column of a resource, added if it is new."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = len(self._names)
            self._names.append(name)
        return found

    def add(self, names: Set[str]) -> None:
        """Gives each resource a column."""
        if not names <= self._columns.keys():
            for name in names:
                self.column(name)

    def name(self, column: int) -> str:
        return self._names[column]
