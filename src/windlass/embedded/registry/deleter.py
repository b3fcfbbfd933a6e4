"""Deletion: preconditions, grace period of pods, finalizers, propagation to dependents.

    grace period left   the object is marked; the kubelet deletes it again with grace 0 when it has stopped
    finalizers left     the object is marked, and removed with the last finalizer (`writer`)
    otherwise           the object is removed

Foreground and orphan deletion are finalizers that the garbage collector removes.
"""

from __future__ import annotations

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.timestamps import format_time, parse_time
from windlass.embedded.registry.admission_chain import CRD
from windlass.embedded.registry.context import Context
from windlass.embedded.registry.metadata import with_metadata
from windlass.embedded.registry.options import FOREGROUND, ORPHAN, DeleteOptions
from windlass.embedded.registry.writer import Writer
from windlass.embedded.store.stored_object import StoredObject
from windlass.model.unstructured import Unstructured

FOREGROUND_FINALIZER, ORPHAN_FINALIZER = "foregroundDeletion", "orphan"
DEFAULT_GRACE_SECONDS = 30
CRD_CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
"""Keeps a definition until its objects are deleted; `crd_lifecycle` removes it."""
IMMORTAL_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


class Deleter:
    def __init__(self, context: Context, writer: Writer) -> None:
        self._context, self._writer = context, writer

    def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions) -> tuple[StoredObject, bool]:
        """The remaining or last state, and whether the object was removed."""
        stored = self._context.get(kind, namespace, name)
        self.check_preconditions(kind, name, stored, options)
        storage = self._context.storage_kind(kind)
        if storage.resource == "namespaces":
            return self._delete_namespace(storage, stored, options)
        tree, grace = stored.tree, 0
        if storage.resource == "pods":
            grace = _pod_grace(tree, options.grace_seconds)
            pending = tree["metadata"].get("deletionGracePeriodSeconds")
            if pending and (options.grace_seconds is None or grace >= pending):
                return stored, False
        finalizers = _finalizers(storage, tree, options)
        has_objects = storage.resource == CRD and len(self._context.store.storage(name))
        if has_objects and CRD_CLEANUP_FINALIZER not in finalizers:
            finalizers.append(CRD_CLEANUP_FINALIZER)
        marked = self._mark_deleted(tree, grace, finalizers)
        if not marked["metadata"].get("finalizers") and grace == 0:
            if options.dry_run:
                return stored, True
            if storage.resource == "pods" and marked != tree:  # in two steps, so that watchers see the mark
                self._context.store.put(storage.storage_resource, stored.key, marked)
            return self._context.store.remove(storage.storage_resource, stored.key), True
        if marked == tree:
            return stored, False
        return self._writer.write_unchecked(storage, stored, marked, options.dry_run), False

    def check_preconditions(self, kind: Kind, name: str, stored: StoredObject, options: DeleteOptions) -> None:
        uid = stored.tree["metadata"].get("uid", "")
        if options.uid and options.uid != uid:
            raise _mismatch(kind, name, "UID", options.uid, uid, "deleted and then recreated")
        if options.resource_version and options.resource_version != str(stored.version):
            known = str(stored.version)
            raise _mismatch(kind, name, "ResourceVersion", options.resource_version, known, "modified")

    def _delete_namespace(self, kind: Kind, stored: StoredObject, options: DeleteOptions) -> tuple[StoredObject, bool]:
        """The namespace controller empties it first and then removes its finalizer."""
        name, tree = stored.key[1], stored.tree
        if name in IMMORTAL_NAMESPACES:
            raise ApiError.forbidden(kind, name, "this namespace may not be deleted")
        finalizers = (tree.get("spec") or {}).get("finalizers") or tree["metadata"].get("finalizers")
        if not finalizers:
            if options.dry_run:
                return stored, True
            return self._context.store.remove(kind.storage_resource, stored.key), True
        if "deletionTimestamp" in tree["metadata"]:
            return stored, False
        marked = with_metadata(tree, deletionTimestamp=format_time(self._context.clock()))
        marked["status"] = {**(tree.get("status") or {}), "phase": "Terminating"}
        return self._writer.write_unchecked(kind, stored, marked, options.dry_run), False

    def _mark_deleted(self, tree: Unstructured, grace: int, finalizers: list[str]) -> Unstructured:
        """The object with its deletion mark. A second deletion can only shorten the grace period."""
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


def _pod_grace(tree: Unstructured, requested: int | None) -> int:
    """Seconds that a pod gets to stop: 0 if it does not run."""
    spec, status = tree.get("spec") or {}, tree.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    given = (requested, spec.get("terminationGracePeriodSeconds"), DEFAULT_GRACE_SECONDS)
    grace = next(seconds for seconds in given if seconds is not None)
    return 1 if grace < 0 else int(grace)


def _finalizers(kind: Kind, tree: Unstructured, options: DeleteOptions) -> list[str]:
    """The object's finalizers, with the one that the propagation policy needs and without the other."""
    known = [str(name) for name in tree["metadata"].get("finalizers") or []]
    wanted = options.propagation
    if not wanted:
        if FOREGROUND_FINALIZER in known or ORPHAN_FINALIZER in known:
            return known
        wanted = ORPHAN if kind.resource == "jobs.batch" else ""
    others = [name for name in known if name not in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)]
    added = {FOREGROUND: [FOREGROUND_FINALIZER], ORPHAN: [ORPHAN_FINALIZER]}.get(wanted, [])
    return [*others, *added]


def _mismatch(kind: Kind, name: str, field: str, expected: str, actual: str, cause: str) -> ApiError:
    values = f"the {field} in the precondition ({expected}) does not match the {field} in record ({actual})"
    return ApiError.conflict(kind, name, f"{values}. The object might have been {cause}")
