"""Who has read what: maps that note every look-up, so that a change reaches those who looked, and nobody else.

`book` works workloads out on maps of this kind. Whatever is worked out is a reader; what it looked up, found or not,
are names (a map and a key). When the thing behind a name changes, its readers are worked out again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Lookup = tuple[str, Any]
"""Which map, and the key that was looked up."""
Dependent = tuple[str, Any]
"""What was worked out: its kind and key."""


class DependencyTracker:
    """Which reader has read which names."""

    def __init__(self) -> None:
        self._noting: set[Lookup] | None = None
        self._names: dict[Dependent, tuple[Lookup, ...]] = {}
        self._readers: dict[Lookup, set[Dependent]] = {}

    def record(self, name: Lookup) -> None:
        if self._noting is not None:
            self._noting.add(name)

    @contextmanager
    def track(self, reader: Dependent) -> Iterator[None]:
        """What is looked up inside is what the reader has read; what it had read before is forgotten."""
        self.forget(reader)
        noting = self._noting = set()
        try:
            yield
        finally:
            self._noting = None
            if noting:
                self._names[reader] = tuple(noting)
                for name in noting:
                    self._readers.setdefault(name, set()).add(reader)

    def forget(self, reader: Dependent) -> None:
        for name in self._names.pop(reader, ()):
            readers = self._readers[name]
            readers.discard(reader)
            if not readers:
                del self._readers[name]

    def dependents_of(self, name: Lookup) -> tuple[Dependent, ...]:
        """The readers of a name."""
        return tuple(self._readers.get(name, ()))


class TrackedMap(dict[K, V], Generic[K, V]):
    """A dict that notes which keys were looked up, also those that it hasn't got. Going through it is not noted."""

    def __init__(self, reads: DependencyTracker, name: str) -> None:
        super().__init__()
        self._reads, self._name = reads, name

    def get(self, key: K, default: V | None = None) -> V | None:  # type: ignore[override]  # one form of dict's
        self._reads.record((self._name, key))
        return super().get(key, default)

    def __getitem__(self, key: K) -> V:
        self._reads.record((self._name, key))
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._reads.record((self._name, key))
        return super().__contains__(key)
