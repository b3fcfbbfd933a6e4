"""Creates and changes objects: a request becomes a new version in the store, or an `ApiError`.

    create   decode → metadata → admission → store
    update   stored object → requested object → decode → admission → store

`in_process_client` and the HTTP server call it. Each write runs without interruption on the loop, so nobody sees
half of it, and a refused write changes nothing. A dry run does everything but the last step.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from windlass.embedded.api import server_side_apply, strategy
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.timestamps import format_time
from windlass.embedded.registry.admission_chain import AdmissionChain
from windlass.embedded.registry.capacity import check_room
from windlass.embedded.registry.context import Context
from windlass.embedded.registry.metadata import init_metadata
from windlass.embedded.registry.options import WriteOptions
from windlass.embedded.registry.preconditions import (
    check_name,
    check_resource_version,
    check_type_and_namespace,
)
from windlass.embedded.store.stored_object import StoredObject
from windlass.model.unstructured import Unstructured

Mutation = Callable[[Unstructured], Unstructured]
"""Stored object (shared, not to be changed) → requested object."""

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_MAX_PREFIX_LENGTH = 58
_MAX_NAME_ATTEMPTS = 8


class Writer:
    def __init__(self, context: Context, admission: AdmissionChain) -> None:
        self._context, self._admission = context, admission

    def create(
        self, kind: Kind, namespace: str, tree: Unstructured, options: WriteOptions, track_fields: bool = True
    ) -> StoredObject:
        """`track_fields` is False if `managedFields` are set already."""
        check_type_and_namespace(kind, tree, namespace, self._context.kinds)
        tree = self._admission.decode(kind, tree, options)
        name = self._name_or_generate(kind, tree, namespace)
        kind, tree = self._context.to_stored(kind, tree)
        init_metadata(tree, name, namespace, format_time(self._context.clock()))
        self._admission.check_namespace(kind, namespace, name)
        tree = self._admission.admit_create(kind, tree, options, track_fields)
        if self._context.find(kind, namespace, name) is not None:
            raise ApiError.already_exists(kind, name)
        check_room(self._context.store, kind, name)
        self._admission.charge_quota(kind, tree, None, options.dry_run)
        return self._write(kind, (namespace, name), tree, options.dry_run)

    def update(self, kind: Kind, namespace: str, name: str, tree: Unstructured, options: WriteOptions) -> StoredObject:
        """Replaces an object. Kinds that allow it are created if they don't exist."""
        check_type_and_namespace(kind, tree, namespace, self._context.kinds)
        check_name(tree, name)
        missing = self._context.find(kind, namespace, name) is None
        if missing and not options.subresource and kind.storage_resource in strategy.CREATE_ON_UPDATE:
            return self.create(kind, namespace, tree, options)
        return self.modify(kind, namespace, name, lambda _: tree, options)

    def patch(
        self, kind: Kind, namespace: str, name: str, patch: Any, media_type: str, options: WriteOptions
    ) -> StoredObject:
        """A JSON, merge or strategic merge patch."""

        def patched(tree: Unstructured) -> Unstructured:
            made = self._context.machinery.patch(kind, tree, patch, media_type)
            if (made.get("apiVersion"), made.get("kind")) != (kind.api_version, kind.kind):
                why = "the kind or version of an object can't be patched"
                raise ApiError.unprocessable(f' "" is invalid: patch: Invalid value: {made.get("kind")!r}: {why}')
            return made

        return self.modify(kind, namespace, name, patched, options, patched=True)

    def apply(
        self, kind: Kind, namespace: str, name: str, applied: Unstructured, options: WriteOptions
    ) -> StoredObject:
        """Server-side apply: this manager's fields, merged with those of the others."""
        check_type_and_namespace(kind, applied, namespace, self._context.kinds)
        applied["metadata"].setdefault("name", name)
        check_name(applied, name)
        stored = self._context.find(kind, namespace, name)
        live = None if stored is None else self._context.from_stored(kind, stored)
        if live is None and options.subresource:
            raise ApiError.not_found(kind, name)
        merged = server_side_apply.apply(
            self._context.machinery,
            kind,
            live,
            applied,
            options.field_manager,
            format_time(self._context.clock()),
            force=options.force,
            subresource=options.subresource,
        )
        if live is None:
            return self.create(kind, namespace, merged, options, track_fields=False)
        if not merged["metadata"].get("resourceVersion"):  # without a precondition
            merged["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
        return self.modify(kind, namespace, name, lambda _: merged, options, track_fields=False)

    def modify(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Mutation,
        options: WriteOptions,
        *,
        track_fields: bool = True,
        patched: bool = False,
    ) -> StoredObject:
        stored = self._context.get(kind, namespace, name)
        asked = change(self._context.from_stored(kind, stored))
        check_type_and_namespace(kind, asked, namespace, self._context.kinds)
        check_name(asked, name)
        storage, tree = self._context.to_stored(kind, self._admission.decode(kind, asked, options, patched))
        check_resource_version(kind, name, tree, stored, patched)
        old = stored.tree
        tree["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        tree = self._admission.admit_update(storage, tree, old, options, track_fields)
        tree["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if is_deletable(storage, tree):
            return self._remove(storage, stored, tree, options.dry_run)
        if _is_unchanged(tree, old):
            return stored
        check_room(self._context.store, storage, name, stored, tree)
        self._admission.charge_quota(storage, tree, old, options.dry_run)
        return self._write(storage, stored.key, tree, options.dry_run)

    def write_unchecked(
        self, kind: Kind, stored: StoredObject, tree: Unstructured, dry_run: bool = False
    ) -> StoredObject:
        """Writes an object without checks: bindings, deletion marks."""
        if is_deletable(kind, tree):
            return self._remove(kind, stored, tree, dry_run)
        return self._write(kind, stored.key, tree, dry_run)

    def _write(self, kind: Kind, key: tuple[str, str], tree: Unstructured, dry_run: bool) -> StoredObject:
        if dry_run:
            return StoredObject(key, 0, msgspec.json.encode(tree), tree)
        return self._context.store.put(kind.storage_resource, key, tree)

    def _remove(self, kind: Kind, stored: StoredObject, tree: Unstructured, dry_run: bool) -> StoredObject:
        """The last finalizer of an object that is being deleted is gone: it is removed."""
        if not dry_run:
            self._context.store.remove(kind.storage_resource, stored.key)
        return StoredObject(stored.key, stored.version, msgspec.json.encode(tree), tree)

    def _name_or_generate(self, kind: Kind, tree: Unstructured, namespace: str) -> str:
        """The object's name, or an unused one made from `generateName`."""
        metadata = tree["metadata"]
        name, prefix = str(metadata.get("name") or ""), str(metadata.get("generateName") or "")
        if name or not prefix:
            return name
        taken = self._context.store.storage(kind.storage_resource).items
        for _ in range(_MAX_NAME_ATTEMPTS):
            name = prefix[:_MAX_PREFIX_LENGTH] + "".join(random.choices(_ALPHABET, k=5))
            if (namespace, name) not in taken:
                return name
        raise ApiError.already_exists(kind, name)


def is_deletable(kind: Kind, tree: Unstructured) -> bool:
    """Marked for deletion, without finalizers or grace period."""
    metadata = tree["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if kind.resource == "namespaces":
        return not (tree.get("spec") or {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def _is_unchanged(tree: Unstructured, old: Unstructured) -> bool:
    """Whether nothing changes but the times in managedFields."""
    if tree == old:
        return True
    new, before = tree["metadata"], old["metadata"]
    if new.get("managedFields") == before.get("managedFields"):
        return False
    if any(tree.get(name) != old.get(name) for name in {*tree, *old} - {"metadata"}):
        return False
    if any(new.get(name) != before.get(name) for name in {*new, *before} - {"managedFields"}):
        return False
    return _fields_without_times(new) == _fields_without_times(before)


def _fields_without_times(metadata: Unstructured) -> list[Unstructured]:
    entries = metadata.get("managedFields") or []
    return [{name: value for name, value in entry.items() if name != "time"} for entry in entries]
