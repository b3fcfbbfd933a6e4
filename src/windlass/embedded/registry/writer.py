"""Creating and changing objects: what a request asks for becomes a new version in the store, or an `ApiError`.

    create   decode → metadata → checks → store
    change   what is stored → what is asked for → decode → checks → store

`verbs` and the HTTP server call it. Everything happens between two turns of the loop, so nobody sees half of it, and a
refusal leaves the store as it was. A dry run does all of it but the last step.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from windlass.embedded.api import server_side_apply
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.registry import strategy
from windlass.embedded.registry.admission_chain import AdmissionChain
from windlass.embedded.registry.context import Context
from windlass.embedded.registry.metadata import format_time, init_metadata
from windlass.embedded.registry.options import WriteOptions
from windlass.embedded.registry.preconditions import (
    check_name,
    check_resource_version,
    check_type_and_namespace,
)
from windlass.embedded.store.stored_object import StoredObject
from windlass.model.unstructured import Unstructured

Mutation = Callable[[Unstructured], Unstructured]
"""Takes what is stored, which is shared, and gives what should be there instead."""

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_PREFIX = 58
_TRIES = 8


class Writer:
    def __init__(self, context: Context, admission: AdmissionChain) -> None:
        self._context, self._checks = context, admission

    def create(
        self, kind: Kind, namespace: str, tree: Unstructured, options: WriteOptions, track_fields: bool = True
    ) -> StoredObject:
        """`managed` is False where `managedFields` have been seen to."""
        check_type_and_namespace(kind, tree, namespace, self._context.kinds)
        tree = self._checks.decode(kind, tree, options)
        name = self._name_of(kind, tree, namespace)
        kind, tree = self._context.to_stored(kind, tree)
        init_metadata(tree, name, namespace, format_time(self._context.clock()))
        self._checks.check_namespace(kind, namespace, name)
        tree = self._checks.admit_create(kind, tree, options, track_fields)
        if self._context.find(kind, namespace, name) is not None:
            raise ApiError.already_exists(kind, name)
        self._checks.charge_quota(kind, tree, None, options.dry_run)
        return self._write(kind, (namespace, name), tree, options.dry_run)

    def update(
        self, kind: Kind, namespace: str, name: str, tree: Unstructured, options: WriteOptions
    ) -> StoredObject:
        """Replace an object by a tree. Kinds that allow it are created where there is none."""
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
                raise ApiError.unprocessable(
                    f' "" is invalid: patch: Invalid value: {made.get("kind")!r}: {why}'
                )
            return made

        return self.modify(kind, namespace, name, patched, options, patched=True)

    def apply(
        self, kind: Kind, namespace: str, name: str, applied: Unstructured, options: WriteOptions
    ) -> StoredObject:
        """Server-side apply: the fields that this manager wants, merged with those of the others."""
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
        if not merged["metadata"].get("resourceVersion"):  # applied to whatever is there
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
        """Change what is stored."""
        stored = self._context.get(kind, namespace, name)
        asked = change(self._context.from_stored(kind, stored))
        check_type_and_namespace(kind, asked, namespace, self._context.kinds)
        check_name(asked, name)
        storage, tree = self._context.to_stored(kind, self._checks.decode(kind, asked, options, patched))
        check_resource_version(kind, name, tree, stored, patched)
        old = stored.tree
        tree["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        tree = self._checks.admit_update(storage, tree, old, options, track_fields)
        tree["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if is_deletable(storage, tree):
            return self._finish(storage, stored, tree, options.dry_run)
        if _same(tree, old):
            return stored
        self._checks.charge_quota(storage, tree, old, options.dry_run)
        return self._write(storage, stored.key, tree, options.dry_run)

    def write_unchecked(
        self, kind: Kind, stored: StoredObject, tree: Unstructured, dry_run: bool = False
    ) -> StoredObject:
        """Write a tree that is known to be right: bindings, deletion marks. No checks."""
        if is_deletable(kind, tree):
            return self._finish(kind, stored, tree, dry_run)
        return self._write(kind, stored.key, tree, dry_run)

    def _write(self, kind: Kind, key: tuple[str, str], tree: Unstructured, dry_run: bool) -> StoredObject:
        if dry_run:
            return StoredObject(key, 0, msgspec.json.encode(tree), tree)
        return self._context.store.put(kind.storage_resource, key, tree)

    def _finish(self, kind: Kind, stored: StoredObject, tree: Unstructured, dry_run: bool) -> StoredObject:
        """The last finalizer is off an object that is being deleted: it goes, as it was stored last."""
        if not dry_run:
            self._context.store.remove(kind.storage_resource, stored.key)
        return StoredObject(stored.key, stored.version, msgspec.json.encode(tree), tree)

    def _name_of(self, kind: Kind, tree: Unstructured, namespace: str) -> str:
        """The object's name, or one made from `generateName` that nobody has."""
        metadata = tree["metadata"]
        name, prefix = str(metadata.get("name") or ""), str(metadata.get("generateName") or "")
        if name or not prefix:
            return name
        taken = self._context.store.storage(kind.storage_resource).items
        for _ in range(_TRIES):
            name = prefix[:_LONGEST_PREFIX] + "".join(random.choices(_ALPHABET, k=5))
            if (namespace, name) not in taken:
                return name
        raise ApiError.already_exists(kind, name)


def is_deletable(kind: Kind, tree: Unstructured) -> bool:
    """Marked for deletion, with nothing left that holds it."""
    metadata = tree["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if kind.resource == "namespaces":
        return not (tree.get("spec") or {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def _same(tree: Unstructured, old: Unstructured) -> bool:
    """Whether nothing changes but the times at which managers last wrote."""
    if tree == old:
        return True
    mine, theirs = tree["metadata"], old["metadata"]
    if mine.get("managedFields") == theirs.get("managedFields"):
        return False
    if any(tree.get(name) != old.get(name) for name in {*tree, *old} - {"metadata"}):
        return False
    if any(mine.get(name) != theirs.get(name) for name in {*mine, *theirs} - {"managedFields"}):
        return False
    return _timeless(mine) == _timeless(theirs)


def _timeless(metadata: Unstructured) -> list[Unstructured]:
    entries = metadata.get("managedFields") or []
    return [{name: value for name, value in each.items() if name != "time"} for each in entries]
