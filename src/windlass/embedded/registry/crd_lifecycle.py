"""CustomResourceDefinitions as they come and go: the kinds that they define are served, or not any more.

Listens to the store, so that it doesn't matter who wrote a definition. A definition that is deleted takes its objects
along: it stays, marked, until the last of them is gone.
"""

from __future__ import annotations

from windlass.embedded.api import crds
from windlass.embedded.api.kinds import Kind
from windlass.embedded.registry.context import Context
from windlass.embedded.registry.deleter import CRD, CRD_CLEANUP_FINALIZER, Deleter
from windlass.embedded.registry.metadata import with_metadata
from windlass.embedded.registry.options import BACKGROUND, DeleteOptions
from windlass.embedded.registry.writer import Writer
from windlass.embedded.store.store import ALL
from windlass.embedded.store.stored_object import DELETED, Change
from windlass.model.unstructured import Unstructured


class CrdLifecycle:
    def __init__(self, context: Context, writer: Writer, deleter: Deleter) -> None:
        self._context, self._writer, self._deleter = context, writer, deleter
        self._going: set[str] = set()
        for stored in context.store.storage(CRD).list_current():
            self._serve(stored.tree)
        context.store.subscribe(CRD, self._changed)
        context.store.subscribe(ALL, self._emptied)

    def _changed(self, change: Change) -> None:
        if change.type == DELETED:
            self._context.machinery.stop_serving_crd(change.new.tree)
        else:
            self._serve(change.new.tree)

    def _serve(self, definition: Unstructured) -> None:
        if crds.is_established(definition):
            self._context.machinery.serve_crd(definition)
        if "deletionTimestamp" in definition["metadata"]:
            self._clean(definition["metadata"]["name"])

    def _clean(self, resource: str) -> None:
        """Delete what is left; go on when the last of it has gone."""
        if resource in self._going:
            return
        self._going.add(resource)
        kind = self._context.kinds.by_resource(resource)
        if kind is not None:
            for stored in list(self._context.store.storage(kind.storage_resource).list_current()):
                self._deleter.delete(kind, *stored.key, DeleteOptions(propagation=BACKGROUND))
        self._release(resource)

    def _emptied(self, change: Change) -> None:
        if change.type == DELETED and change.resource in self._going:
            self._release(change.resource)

    def _release(self, resource: str) -> None:
        if len(self._context.store.storage(resource)):
            return
        self._going.discard(resource)
        kind: Kind = self._context.kind(CRD)
        stored = self._context.find(kind, "", resource)
        if stored is None or "deletionTimestamp" not in stored.tree["metadata"]:
            return
        left = [
            each for each in stored.tree["metadata"].get("finalizers") or [] if each != CRD_CLEANUP_FINALIZER
        ]
        self._writer.write_unchecked(kind, stored, with_metadata(stored.tree, finalizers=left or None))
