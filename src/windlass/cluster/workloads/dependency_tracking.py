"""Maps that record every look-up, so that a change recomputes only the results that depend on it.

`workload_index` computes workloads on such maps. A computed result is a dependent; what it looked up, found or not, are
its lookups (map and key). When the entry behind a lookup changes, its dependents are computed again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Lookup = tuple[str, Any]
"""Name of a map, and the key that was looked up."""
Dependent = tuple[str, Any]
"""Kind and key of a computed result."""


class DependencyTracker:
    """Its own context manager, since every workload is built inside one: a generator as one is twice as slow."""

    def __init__(self) -> None:
        self._current: set[Lookup] | None = None
        self._dependent: Dependent = ("", None)
        self._lookups: dict[Dependent, tuple[Lookup, ...]] = {}
        self._dependents: dict[Lookup, set[Dependent]] = {}

    def record(self, lookup: Lookup) -> None:
        if self._current is not None:
            self._current.add(lookup)

    def track(self, dependent: Dependent) -> DependencyTracker:
        """Records the look-ups inside the block for the dependent, in place of its earlier ones. Not to be nested."""
        self.forget(dependent)
        self._dependent = dependent
        return self

    def __enter__(self) -> None:
        self._current = set()

    def __exit__(self, *error: object) -> None:
        lookups, self._current = self._current, None
        if lookups:
            self._lookups[self._dependent] = tuple(lookups)
            for lookup in lookups:
                self._dependents.setdefault(lookup, set()).add(self._dependent)

    def forget(self, dependent: Dependent) -> None:
        for lookup in self._lookups.pop(dependent, ()):
            dependents = self._dependents[lookup]
            dependents.discard(dependent)
            if not dependents:
                del self._dependents[lookup]

    def dependents_of(self, lookup: Lookup) -> tuple[Dependent, ...]:
        return tuple(self._dependents.get(lookup, ()))


class TrackedMap(dict[K, V], Generic[K, V]):
    """A dict that records which keys were looked up, also missing ones. Iteration is not recorded."""

    def __init__(self, tracker: DependencyTracker, map_name: str) -> None:
        super().__init__()
        self._tracker, self._map_name = tracker, map_name

    def get(self, key: K, default: V | None = None) -> V | None:  # type: ignore[override]  # one form of dict's
        self._tracker.record((self._map_name, key))
        return super().get(key, default)

    def __getitem__(self, key: K) -> V:
        self._tracker.record((self._map_name, key))
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._tracker.record((self._map_name, key))
        return super().__contains__(key)
