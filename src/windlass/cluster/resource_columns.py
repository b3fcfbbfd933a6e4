"""Which column of the node arrays holds which resource.

Fed by the store as it meets resource names in nodes and pods; read by everything that touches `NodeState.free`.
Columns are only ever added, so an older snapshot's columns keep their meaning. No decision depends on the order
in which columns were added: shapes name their resources in sorted order.
"""

from __future__ import annotations

CPU, MEMORY, EPHEMERAL, PODS = 0, 1, 2, 3
_FIRST = ("cpu", "memory", "ephemeral-storage", "pods")


class ResourceColumns:
    """Resource name → column."""

    def __init__(self) -> None:
        self._names: list[str] = list(_FIRST)
        self._columns: dict[str, int] = {name: i for i, name in enumerate(_FIRST)}

    def __len__(self) -> int:
        return len(self._names)

    def column(self, name: str) -> int:
        """The column of `name`, made if it is new."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = len(self._names)
            self._names.append(name)
        return found

    def name(self, column: int) -> str:
        return self._names[column]
