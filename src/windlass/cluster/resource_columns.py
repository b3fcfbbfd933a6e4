"""Which column of the node arrays holds which resource.

The store adds the resources that nodes advertise; everything that reads `NodeState.free` uses it. What pods request
adds none: a tenant could invent names without end, and each would cost memory on every node. Columns are only added, so
an older snapshot's columns keep their meaning. No decision depends on their order: shapes sort resources by name.
"""

from __future__ import annotations

from collections.abc import Set

CPU, MEMORY, EPHEMERAL, PODS, UNADVERTISED = 0, 1, 2, 3, 4
"""UNADVERTISED: of all resources that no node has. Nothing of it is allocatable."""
_FIXED = ("cpu", "memory", "ephemeral-storage", "pods")


class ResourceColumns:
    """Resource name → column."""

    def __init__(self) -> None:
        self._names: list[str] = [*_FIXED, ""]
        self._columns: dict[str, int] = {name: column for column, name in enumerate(_FIXED)}

    def __len__(self) -> int:
        return len(self._names)

    def add(self, names: Set[str]) -> bool:
        """Gives each resource a column; whether one of them had none."""
        if names <= self._columns.keys():
            return False
        for name in names:
            if name not in self._columns:
                self._columns[name] = len(self._names)
                self._names.append(name)
        return True

    def column(self, name: str) -> int:
        """The column of a resource; UNADVERTISED where no node has had it."""
        return self._columns.get(name, UNADVERTISED)

    def name(self, column: int) -> str:
        return self._names[column]

    def copy(self) -> ResourceColumns:
        """As they are now: later columns are not those of an older snapshot's arrays."""
        made = ResourceColumns()
        made._names, made._columns = [*self._names], {**self._columns}
        return made
