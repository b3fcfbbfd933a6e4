"""What everything in `registry` works with: the store, the kinds, the clock, and the way between versions of a kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windlass.embedded.api import events
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.machinery import Machinery
from windlass.embedded.store.record import Stored
from windlass.embedded.store.store import Store

Tree = dict[str, Any]

_EVENTS = "events.k8s.io"


class Context:
    def __init__(self, store: Store, machinery: Machinery, clock: Callable[[], float]) -> None:
        self.store, self.machinery, self.clock = store, machinery, clock
        self.kinds = machinery.kinds

    def kind(self, resource: str) -> Kind:
        found = self.kinds.named(resource)
        if found is None:
            raise ApiError.no_such_path()
        return found

    def find(self, kind: Kind, namespace: str, name: str) -> Stored | None:
        return self.store.shelf(kind.store).items.get((namespace, name))

    def stored(self, kind: Kind, namespace: str, name: str) -> Stored:
        found = self.store.shelf(kind.store).items.get((namespace, name))
        if found is None:
            raise ApiError.not_found(kind, name)
        return found

    def storage(self, kind: Kind) -> Kind:
        """The kind in the version that is stored; a custom one in its preferred version."""
        return self.kinds.named(kind.store) or kind

    def to_stored(self, kind: Kind, tree: Tree) -> tuple[Kind, Tree]:
        """From the version of a request to the one that is stored."""
        storage = self.storage(kind)
        if storage.api_version == kind.api_version:
            return kind, tree
        if kind.group == _EVENTS:
            return storage, events.as_core(tree)
        return storage, {**tree, "apiVersion": storage.api_version}

    def from_stored(self, kind: Kind, stored: Stored) -> Tree:
        """What is stored, in the version of a request. Shared: not to be changed."""
        tree = stored.tree
        if kind.group == _EVENTS:
            return events.as_events(tree)
        if tree.get("apiVersion") != kind.api_version:
            tree = {**tree, "apiVersion": kind.api_version}
        return tree
