"""Checks that a body matches its path (kind, version, namespace, name) and the stored version. Called by `writer`."""

from __future__ import annotations

from typing import Any

from windlass.embedded.api import strategy
from windlass.embedded.api.errors import ApiError, invalid
from windlass.embedded.api.kinds import Kind, Kinds
from windlass.embedded.store.stored_object import StoredObject
from windlass.model.unstructured import Unstructured

_DELETION_FIELDS = ("deletionTimestamp", "deletionGracePeriodSeconds")
"""Only a deletion sets them."""


def check_type_and_namespace(kind: Kind, tree: Any, namespace: str, kinds: Kinds) -> None:
    """Kind, version and namespace; missing metadata is added to the object."""
    if not isinstance(tree, dict):
        raise ApiError.bad_request(f"the object provided is unrecognized (must be of type {kind.kind})")
    version, name = tree.get("apiVersion") or kind.api_version, tree.get("kind") or kind.kind
    if version != kind.api_version or name != kind.kind:
        raise _wrong_type(kind, str(version), str(name), kinds)
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
    """For changes: the name in the body has to be the one in the path."""
    given = tree["metadata"].get("name") or ""
    if given != name:
        raise ApiError.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def check_resource_version(kind: Kind, name: str, tree: Unstructured, stored: StoredObject, patched: bool) -> None:
    """409 if the object is based on another version than the stored one, or on another object.

    In a patch, another UID is an attempt to change an immutable field instead.
    """
    metadata = tree["metadata"]
    version = metadata.get("resourceVersion") or ""
    if version in ("", "0"):
        if not strategy.allows_unconditional_update(kind):
            error = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise ApiError.invalid(kind, name, [error])
    elif version != str(stored.version):
        if not (version.isascii() and version.isdigit()):
            detail = f'strconv.ParseUint: parsing "{version}": invalid syntax'
            error = invalid("metadata.resourceVersion", version, detail)
            raise ApiError.invalid(kind, name, [error])
        raise ApiError.conflict(kind, name)
    old = stored.tree["metadata"]
    uid, known = metadata.get("uid"), old.get("uid")
    immutable = [field for field in _DELETION_FIELDS if field in metadata and field not in old]
    if patched and uid and uid != known:
        immutable.append("uid")
    if immutable:
        errors = [invalid(f"metadata.{field}", metadata[field], "field is immutable") for field in immutable]
        raise ApiError.invalid(kind, name, errors)
    if uid and uid != known:
        reason = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {known}"
        raise ApiError.conflict(kind, name, reason)


def _wrong_type(kind: Kind, version: str, name: str, kinds: Kinds) -> ApiError:
    """The body is of another kind, or of another version of it."""
    group = version.rpartition("/")[0]
    if name == kind.kind and (group == kind.group or kinds.by_kind(version, name) is not None):
        return ApiError.bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        )
    short = version.rpartition("/")[2]
    reason = f'no kind "{name}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
    if kinds.by_kind(version, name) is not None:
        reason = f"converting ({version}).{name} to ({kind.api_version}).{kind.kind}: unknown conversion"
    return ApiError.bad_request(f'{name} in version "{short}" cannot be handled as a {kind.kind}: {reason}')
