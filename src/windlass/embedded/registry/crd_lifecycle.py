"""Serves the kinds of CustomResourceDefinitions, and stops serving them when these are deleted.

Listens to the store, whatever wrote the definition. A deleted definition stays, with a finalizer, until all its
objects are deleted.
"""

from __future__ import annotations

from windlass.embedded.api import crds
from windlass.embedded.api.kinds import Kind
from windlass.embedded.registry.admission_chain import CRD
from windlass.embedded.registry.context import Context
from windlass.embedded.registry.deleter import CRD_CLEANUP_FINALIZER, Deleter
from windlass.embedded.registry.metadata import with_metadata
from windlass.embedded.registry.options import BACKGROUND, DeleteOptions
from windlass.embedded.registry.writer import Writer
from windlass.embedded.store.store import ALL
from windlass.embedded.store.stored_object import DELETED, Change
from windlass.model.unstructured import Unstructured


class CrdLifecycle:
    def __init__(self, context: Context, writer: Writer, deleter: Deleter) -> None:
        self._context, self._writer, self._deleter = context, writer, deleter
        self._terminating: set[str] = set()
        for stored in context.store.storage(CRD).list_current():
            self._serve(stored.tree)
        context.store.subscribe(CRD, self._on_crd_change)
        context.store.subscribe(ALL, self._on_object_change)

    def _on_crd_change(self, change: Change) -> None:
        if change.type == DELETED:
            self._context.machinery.stop_serving_crd(change.new.tree)
        else:
            self._serve(change.new.tree)

    def _serve(self, definition: Unstructured) -> None:
        if crds.is_established(definition):
            self._context.machinery.serve_crd(definition)
        if "deletionTimestamp" in definition["metadata"]:
            self._delete_objects(definition["metadata"]["name"])

    def _delete_objects(self, resource: str) -> None:
        """Deletes the kind's objects; the definition goes when the last of them is gone."""
        if resource in self._terminating:
            return
        self._terminating.add(resource)
        kind = self._context.kinds.by_resource(resource)
        if kind is not None:
            for stored in list(self._context.store.storage(kind.storage_resource).list_current()):
                self._deleter.delete(kind, *stored.key, DeleteOptions(propagation=BACKGROUND))
        self._remove_finalizer_if_empty(resource)

    def _on_object_change(self, change: Change) -> None:
        if change.type == DELETED and change.resource in self._terminating:
            self._remove_finalizer_if_empty(change.resource)

    def _remove_finalizer_if_empty(self, resource: str) -> None:
        if len(self._context.store.storage(resource)):
            return
        self._terminating.discard(resource)
        kind: Kind = self._context.kind(CRD)
        stored = self._context.find(kind, "", resource)
        if stored is None or "deletionTimestamp" not in stored.tree["metadata"]:
            return
        remaining = [name for name in stored.tree["metadata"].get("finalizers") or [] if name != CRD_CLEANUP_FINALIZER]
        self._writer.write_unchecked(kind, stored, with_metadata(stored.tree, finalizers=remaining or None))
