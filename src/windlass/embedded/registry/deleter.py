"""Deleting: preconditions, grace for pods, finalizers, and what becomes of the objects that are owned.

    grace left        the object is marked, and whoever runs it deletes it again with grace 0 when it has stopped
    finalizers left   the object is marked, and goes with the last of them (`registry.writer`)
    otherwise         the object goes

Foreground and orphan deletion are finalizers that the garbage collector takes off.
"""

from __future__ import annotations

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.registry.context import Context
from windlass.embedded.registry.metadata import format_time, parse_time, with_metadata
from windlass.embedded.registry.options import FOREGROUND, ORPHAN, DeleteOptions
from windlass.embedded.registry.writer import Writer
from windlass.embedded.store.stored_object import StoredObject
from windlass.model.unstructured import Unstructured

FOREGROUND_FINALIZER, ORPHAN_FINALIZER = "foregroundDeletion", "orphan"
DEFAULT_GRACE_SECONDS = 30
CRD = "customresourcedefinitions.apiextensions.k8s.io"
CRD_CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
"""Holds a definition until its objects are gone; `registry.definitions` sees to that."""
IMMORTAL_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


class Deleter:
    def __init__(self, context: Context, writer: Writer) -> None:
        self._context, self._writer = context, writer

    def delete(
        self, kind: Kind, namespace: str, name: str, options: DeleteOptions
    ) -> tuple[StoredObject, bool]:
        """What is left or was last there, and whether it is gone."""
        stored = self._context.get(kind, namespace, name)
        self.check_preconditions(kind, name, stored, options)
        storage = self._context.storage_kind(kind)
        if storage.resource == "namespaces":
            return self._namespace(storage, stored, options)
        tree, grace = stored.tree, 0
        if storage.resource == "pods":
            grace = _pod_grace(tree, options.grace_seconds)
            pending = tree["metadata"].get("deletionGracePeriodSeconds")
            if pending and (options.grace_seconds is None or grace >= pending):
                return stored, False
        finalizers = _finalizers(storage, tree, options)
        if (
            storage.resource == CRD
            and CRD_CLEANUP_FINALIZER not in finalizers
            and len(self._context.store.storage(name))
        ):
            finalizers.append(CRD_CLEANUP_FINALIZER)
        marked = self._marked(tree, grace, finalizers)
        if not marked["metadata"].get("finalizers") and grace == 0:
            if options.dry_run:
                return stored, True
            if storage.resource == "pods" and marked != tree:  # in two steps, so that watchers see the first
                self._context.store.put(storage.storage_resource, stored.key, marked)
            return self._context.store.remove(storage.storage_resource, stored.key), True
        if marked == tree:
            return stored, False
        return self._writer.write_unchecked(storage, stored, marked, options.dry_run), False

    def check_preconditions(
        self, kind: Kind, name: str, stored: StoredObject, options: DeleteOptions
    ) -> None:
        uid = stored.tree["metadata"].get("uid", "")
        if options.uid and options.uid != uid:
            raise _precondition(kind, name, "UID", options.uid, uid, "deleted and then recreated")
        if options.resource_version and options.resource_version != str(stored.version):
            known = str(stored.version)
            raise _precondition(kind, name, "ResourceVersion", options.resource_version, known, "modified")

    def _namespace(
        self, kind: Kind, stored: StoredObject, options: DeleteOptions
    ) -> tuple[StoredObject, bool]:
        """A namespace is emptied first: the controller takes its finalizer off when nothing is left in it."""
        name, tree = stored.key[1], stored.tree
        if name in IMMORTAL_NAMESPACES:
            raise ApiError.forbidden(kind, name, "this namespace may not be deleted")
        held = (tree.get("spec") or {}).get("finalizers") or tree["metadata"].get("finalizers")
        if not held:
            if options.dry_run:
                return stored, True
            return self._context.store.remove(kind.storage_resource, stored.key), True
        if "deletionTimestamp" in tree["metadata"]:
            return stored, False
        marked = with_metadata(tree, deletionTimestamp=format_time(self._context.clock()))
        marked["status"] = {**(tree.get("status") or {}), "phase": "Terminating"}
        return self._writer.write_unchecked(kind, stored, marked, options.dry_run), False

    def _marked(self, tree: Unstructured, grace: int, finalizers: list[str]) -> Unstructured:
        """The tree with its deletion written into it. A second deletion can only shorten the first one's grace."""
        metadata = tree["metadata"]
        before = metadata.get("deletionTimestamp")
        changed = (metadata.get("finalizers") or []) != finalizers
        if before is not None and metadata.get("deletionGracePeriodSeconds", 0) == grace and not changed:
            return tree
        now = self._context.clock()
        if before is None:
            moment = now + grace
            generation = metadata.get("generation")
            generation = generation + 1 if isinstance(generation, int) else None
        else:
            moment = max(now, parse_time(before) - metadata.get("deletionGracePeriodSeconds", 0) + grace)
            generation = metadata.get("generation")
        return with_metadata(
            tree,
            deletionTimestamp=format_time(moment),
            deletionGracePeriodSeconds=grace,
            finalizers=finalizers or None,
            generation=generation,
        )


def _pod_grace(tree: Unstructured, asked: int | None) -> int:
    """Seconds that a pod gets to stop: none where nothing runs."""
    spec, status = tree.get("spec") or {}, tree.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    grace = asked
    if grace is None:
        grace = spec.get("terminationGracePeriodSeconds")
    if grace is None:
        grace = DEFAULT_GRACE_SECONDS
    return 1 if grace < 0 else int(grace)


def _finalizers(kind: Kind, tree: Unstructured, options: DeleteOptions) -> list[str]:
    """Those there are, with the one that the propagation asks for and without the other."""
    known = [str(each) for each in tree["metadata"].get("finalizers") or []]
    wanted = options.propagation
    if not wanted:
        if FOREGROUND_FINALIZER in known or ORPHAN_FINALIZER in known:
            return known
        wanted = ORPHAN if kind.resource == "jobs.batch" else ""
    others = [each for each in known if each not in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)]
    if wanted == FOREGROUND:
        return [*others, FOREGROUND_FINALIZER]
    if wanted == ORPHAN:
        return [*others, ORPHAN_FINALIZER]
    return others


def _precondition(kind: Kind, name: str, what: str, asked: str, known: str, maybe: str) -> ApiError:
    return ApiError.conflict(
        kind,
        name,
        f"the {what} in the precondition ({asked}) does not match the {what} in record ({known}). "
        f"The object might have been {maybe}",
    )
