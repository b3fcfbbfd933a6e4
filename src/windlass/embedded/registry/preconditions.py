"""That a body is about what the path is about: kind, version, namespace, name; and about the version that is stored."""

from __future__ import annotations

from typing import Any

from windlass.embedded.api.errors import ApiError, invalid
from windlass.embedded.api.kinds import Kind, Kinds
from windlass.embedded.registry import strategy
from windlass.embedded.store.stored_object import StoredObject
from windlass.model.unstructured import Unstructured

_FIXED = ("deletionTimestamp", "deletionGracePeriodSeconds")
"""Only a deletion writes them."""


def check_type_and_namespace(kind: Kind, tree: Any, namespace: str, kinds: Kinds) -> None:
    """Kind, version and namespace. What is missing is written into the tree."""
    if not isinstance(tree, dict):
        raise ApiError.bad_request(f"the object provided is unrecognized (must be of type {kind.kind})")
    version, name = tree.get("apiVersion") or kind.api_version, tree.get("kind") or kind.kind
    if version != kind.api_version or name != kind.kind:
        raise _another(kind, str(version), str(name), kinds)
    metadata = tree.get("metadata")
    if metadata is None:
        metadata = tree["metadata"] = {}
    if not isinstance(metadata, dict):
        raise ApiError.bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: json: cannot '
            f"unmarshal into Go struct field {kind.kind}.metadata of type v1.ObjectMeta"
        )
    if not kind.namespaced:
        metadata.pop("namespace", None)
    given = metadata.get("namespace") or ""
    if given and given != namespace:
        raise ApiError.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def check_name(tree: Unstructured, name: str) -> None:
    """The name, where an object is changed."""
    given = tree["metadata"].get("name") or ""
    if given != name:
        raise ApiError.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )


def check_resource_version(
    kind: Kind, name: str, tree: Unstructured, stored: StoredObject, patched: bool
) -> None:
    """409 where the tree is made from another version than the one that is stored, or from another object.

    A patch says what it changes, so there another uid is a change of what can't be changed.
    """
    metadata = tree["metadata"]
    version = metadata.get("resourceVersion") or ""
    if version in ("", "0"):
        if not strategy.allows_unconditional_update(kind):
            wrong = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise ApiError.invalid(kind, name, [wrong])
    elif version != str(stored.version):
        if not (version.isascii() and version.isdigit()):
            wrong = invalid(
                "metadata.resourceVersion", version, f'strconv.ParseUint: parsing "{version}": invalid syntax'
            )
            raise ApiError.invalid(kind, name, [wrong])
        raise ApiError.conflict(kind, name)
    old = stored.tree["metadata"]
    uid, known = metadata.get("uid"), old.get("uid")
    fixed = [field for field in _FIXED if field in metadata and field not in old]
    if patched and uid and uid != known:
        fixed.append("uid")
    if fixed:
        wrongs = [invalid(f"metadata.{field}", metadata[field], "field is immutable") for field in fixed]
        raise ApiError.invalid(kind, name, wrongs)
    if uid and uid != known:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {known}"
        raise ApiError.conflict(kind, name, why)


def _another(kind: Kind, version: str, name: str, kinds: Kinds) -> ApiError:
    """The body is of another kind, or of a version of it that isn't asked for here."""
    group = version.rpartition("/")[0]
    if name == kind.kind and (group == kind.group or kinds.by_kind(version, name) is not None):
        return ApiError.bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({kind.api_version})"
        )
    short = version.rpartition("/")[2]
    why = f'no kind "{name}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
    if kinds.by_kind(version, name) is not None:
        why = f"converting ({version}).{name} to ({kind.api_version}).{kind.kind}: unknown conversion"
    return ApiError.bad_request(f'{name} in version "{short}" cannot be handled as a {kind.kind}: {why}')
