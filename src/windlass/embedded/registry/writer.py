"""Creating and changing objects: what a request asks for becomes a new version in the store, or an `ApiError`.

    create   metadata → strategy → default → admit → validate → store
    update   what is stored → merged with what is asked for → strategy → default → admit → validate → store

`verbs` and the HTTP server call it. Everything happens between two turns of the loop, so nobody sees half of it, and a
refusal leaves the store as it was. A dry run does all of it but the last step.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from windlass.embedded.api.errors import ApiError, invalid
from windlass.embedded.api.kinds import Kind
from windlass.embedded.registry import strategy
from windlass.embedded.registry.checks import Checks
from windlass.embedded.registry.context import Context
from windlass.embedded.registry.metadata import begin, carry_over, rfc3339
from windlass.embedded.registry.options import WriteOptions
from windlass.embedded.store.record import Stored

Tree = dict[str, Any]
Changer = Callable[[Tree], Tree]
"""Takes what is stored, which is shared, and gives a tree of the writer's own."""

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_TRIES = 8


class Writer:
    def __init__(self, context: Context, checks: Checks) -> None:
        self._context, self._checks = context, checks

    def create(self, kind: Kind, namespace: str, tree: Tree, options: WriteOptions) -> Stored:
        """Takes the tree over."""
        self._check_identity(kind, tree, namespace)
        name = self._name_of(kind, tree, namespace)
        kind, tree = self._context.to_stored(kind, tree)
        begin(tree, name, namespace, rfc3339(self._context.clock()))
        self._checks.namespace(kind, namespace, name)
        strategy.prepare_create(kind, tree)
        self._checks.creation(kind, tree, options)
        if (namespace, name) in self._context.store.shelf(kind.store).items:
            raise ApiError.already_exists(kind, name)
        return self._write(kind, (namespace, name), tree, options.dry_run)

    def update(self, kind: Kind, namespace: str, name: str, tree: Tree, options: WriteOptions) -> Stored:
        """Replace an object by a tree, which is taken over. Kinds that allow it are created where there is none."""
        self._check_identity(kind, tree, namespace)
        given = tree["metadata"].get("name", "")
        if given != name:
            raise ApiError.bad_request(
                f"the name of the object ({given}) does not match the name on the URL ({name})"
            )
        missing = (namespace, name) not in self._context.store.shelf(kind.store).items
        if missing and not options.subresource and kind.store in strategy.PUT_CREATES:
            return self.create(kind, namespace, tree, options)
        return self.modify(kind, namespace, name, lambda _: tree, options)

    def modify(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Changer,
        options: WriteOptions,
        managed: bool = True,
    ) -> Stored:
        """Change what is stored. `managed` is False where the change has seen to `managedFields` itself."""
        stored = self._context.stored(kind, namespace, name)
        asked = change(self._context.from_stored(kind, stored))
        storage, tree = self._context.to_stored(kind, asked)
        self._check_version(kind, name, tree, stored)
        old = stored.tree
        carry_over(tree, old)
        strategy.prepare_update(storage, tree, old, options.subresource)
        tree["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        self._checks.change(storage, tree, old, options, managed)
        if _ready_to_go(storage, tree):
            return self._finish(storage, stored, tree, options.dry_run)
        if tree == old:
            return stored
        return self._write(storage, stored.key, tree, options.dry_run)

    def replace(self, kind: Kind, stored: Stored, tree: Tree, dry_run: bool = False) -> Stored:
        """Write a tree that is known to be right: bindings, deletion marks. No checks."""
        if _ready_to_go(kind, tree):
            return self._finish(kind, stored, tree, dry_run)
        return self._write(kind, stored.key, tree, dry_run)

    def _write(self, kind: Kind, key: tuple[str, str], tree: Tree, dry_run: bool) -> Stored:
        if dry_run:
            return Stored(key, 0, msgspec.json.encode(tree), tree)
        return self._context.store.put(kind.store, key, tree)

    def _finish(self, kind: Kind, stored: Stored, tree: Tree, dry_run: bool) -> Stored:
        """The last finalizer is off an object that is being deleted: it goes."""
        if dry_run:
            return Stored(stored.key, 0, msgspec.json.encode(tree), tree)
        return self._context.store.remove(kind.store, stored.key, tree)

    def _check_identity(self, kind: Kind, tree: Tree, namespace: str) -> None:
        """That the body is about the kind and the namespace that the path is about."""
        metadata = tree.get("metadata")
        if metadata is None:
            metadata = tree["metadata"] = {}
        if not isinstance(metadata, dict):
            raise ApiError.bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: json: cannot '
                f"unmarshal into Go struct field {kind.kind}.metadata of type v1.ObjectMeta"
            )
        version, name = tree.get("apiVersion") or kind.api_version, tree.get("kind") or kind.kind
        if version != kind.api_version:
            raise ApiError.bad_request(
                f"the API version in the data ({version}) does not match the expected API version "
                f"({kind.api_version})"
            )
        if name != kind.kind:
            raise ApiError.bad_request(
                f'{name} in version "{kind.version}" cannot be handled as a {kind.kind}: converting '
                f"({kind.group}).{name} to ({kind.group}).{kind.kind}: unknown conversion"
            )
        given = metadata.get("namespace") or ""
        if given and given != namespace:
            raise ApiError.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        tree["apiVersion"], tree["kind"] = kind.api_version, kind.kind

    def _name_of(self, kind: Kind, tree: Tree, namespace: str) -> str:
        """The object's name, or one made from `generateName` that nobody has."""
        metadata = tree["metadata"]
        name, prefix = metadata.get("name"), metadata.get("generateName")
        if name or not isinstance(prefix, str) or not prefix:
            return name if isinstance(name, str) else ""
        taken = self._context.store.shelf(kind.store).items
        for _ in range(_TRIES):
            name = prefix[:58] + "".join(random.choices(_ALPHABET, k=5))
            if (namespace, name) not in taken:
                return name
        raise ApiError.already_exists(kind, name)

    def _check_version(self, kind: Kind, name: str, tree: Tree, stored: Stored) -> None:
        metadata = tree["metadata"]
        version = metadata.get("resourceVersion") or ""
        if version in ("", "0"):
            if not strategy.may_update_blindly(kind):
                wrong = invalid("metadata.resourceVersion", 0, "must be specified for an update")
                raise ApiError.invalid(kind, name, [wrong])
        elif version != str(stored.version):
            if not (isinstance(version, str) and version.isdigit()):
                wrong = invalid("metadata.resourceVersion", version, "must be a number")
                raise ApiError.invalid(kind, name, [wrong])
            raise ApiError.conflict(kind, name)
        uid, known = metadata.get("uid"), stored.tree["metadata"].get("uid")
        if uid and uid != known:
            raise ApiError.conflict(
                kind, name, f"Precondition failed: UID in precondition: {uid}, UID in object meta: {known}"
            )


def _ready_to_go(kind: Kind, tree: Tree) -> bool:
    """Marked for deletion, with nothing left that holds it."""
    metadata = tree["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if kind.resource == "namespaces":
        return not (tree.get("spec") or {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")
