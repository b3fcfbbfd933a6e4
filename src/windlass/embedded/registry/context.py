"""Shared by all of `registry`: the store, the kinds, the clock, and conversion between versions of a kind."""

from __future__ import annotations

from collections.abc import Callable

from windlass.embedded.api import events
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.machinery import Machinery
from windlass.embedded.store.store import Store
from windlass.embedded.store.stored_object import StoredObject
from windlass.model.unstructured import Unstructured

_EVENTS = "events.k8s.io"


class Context:
    def __init__(self, store: Store, machinery: Machinery, clock: Callable[[], float]) -> None:
        self.store, self.machinery, self.clock = store, machinery, clock
        self.kinds = machinery.kinds

    def kind(self, resource: str) -> Kind:
        found = self.kinds.by_resource(resource)
        if found is None:
            raise ApiError.no_such_path()
        return found

    def find(self, kind: Kind, namespace: str, name: str) -> StoredObject | None:
        return self.store.storage(kind.storage_resource).items.get((namespace, name))

    def get(self, kind: Kind, namespace: str, name: str) -> StoredObject:
        found = self.store.storage(kind.storage_resource).items.get((namespace, name))
        if found is None:
            raise ApiError.not_found(kind, name)
        return found

    def storage_kind(self, kind: Kind) -> Kind:
        """The kind in its storage version; for a custom kind its preferred version."""
        return self.kinds.by_resource(kind.storage_resource) or kind

    def to_stored(self, kind: Kind, tree: Unstructured) -> tuple[Kind, Unstructured]:
        """Converts from the request's version to the storage version."""
        storage = self.storage_kind(kind)
        if storage.api_version == kind.api_version:
            return kind, tree
        if kind.group == _EVENTS:
            return storage, events.to_core_v1(tree)
        return storage, {**tree, "apiVersion": storage.api_version}

    def from_stored(self, kind: Kind, stored: StoredObject) -> Unstructured:
        """Converts a stored object to the request's version. Shared: not to be changed."""
        tree = stored.tree
        if kind.group == _EVENTS:
            return events.to_events_v1(tree)
        if tree.get("apiVersion") != kind.api_version:
            tree = {**tree, "apiVersion": kind.api_version}
        return tree
