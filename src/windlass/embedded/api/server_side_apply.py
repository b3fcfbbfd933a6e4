"""Server-side apply and field ownership: `apply` for apply patches, `track_managed_fields` for every other write.

`registry` calls `track_managed_fields` on each create, update and patch before it stores the result, and `apply`
for `application/apply-patch+yaml`. Ownership is in `metadata.managedFields`, as in Kubernetes: an applied field
that another manager owns with another value is a conflict (409) unless forced; a field that its only owner no
longer applies is removed. Messages are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import msgspec

from windlass.embedded.api.decode import TypeMismatch, decode, decode_as_written
from windlass.embedded.api.defaults import apply_defaults
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.field_sets import (
    Difference,
    Path,
    Paths,
    all_fields,
    applied_fields,
    difference,
    format_path,
    from_fields_v1,
    intern_fields_v1,
    merge_fields,
    remove_fields,
    to_fields_v1,
)
from windlass.embedded.api.initial_fields import initial_fields_v1
from windlass.embedded.api.json_trees import exceeds_depth
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.machinery import Machinery
from windlass.embedded.api.schema import SchemaNode
from windlass.model.names.kubernetes import LAST_APPLIED_ANNOTATION
from windlass.model.unstructured import Unstructured

_UNOWNED_METADATA = {
    *("f:name", "f:namespace", "f:creationTimestamp", "f:deletionTimestamp", "f:deletionGracePeriodSeconds"),
    *("f:selfLink", "f:uid", "f:generation", "f:managedFields", "f:resourceVersion"),
}
BEFORE_FIRST_APPLY = "before-first-apply"


class Manager(msgspec.Struct, frozen=True):
    """An owner of fields: one name may own some by applying and others by updating."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""


class _Owned:
    """The fields that a manager owns. An entry of `managedFields` is decoded only if its fields matter."""

    __slots__ = ("_fields", "entry", "time")

    def __init__(self, fields: Paths | None, time: str = "", entry: Unstructured | None = None) -> None:
        self._fields = fields
        self.time = time
        self.entry = entry

    @property
    def fields(self) -> Paths:
        if self._fields is None:
            self._fields = from_fields_v1((self.entry or {}).get("fieldsV1"))
        return self._fields

    def lose(self, paths: Paths) -> None:
        """Removes fields that this manager owns."""
        if self.entry is not None and not {path[0] for path in paths} & set(self.entry.get("fieldsV1") or ()):
            return
        common = self.fields & paths
        if common:
            self._fields = self.fields - common
            self.entry = None


Owners = dict[Manager, _Owned]


def track_managed_fields(
    machinery: Machinery,
    kind: Kind,
    live: Unstructured | None,
    new: Unstructured,
    manager: str,
    now: str,
    *,
    subresource: str = "",
) -> Unstructured:
    """The new object with updated `managedFields`. `now` is RFC 3339; `live` is the stored object.

    A new object is tracked right after decoding, before admission adds fields that its creator did not write.
    """
    node, me = machinery.schema(kind), Manager(manager, "Update", kind.api_version, subresource)
    if live is None and not kind.custom:
        apply_defaults(kind, new)
        if not new["metadata"].get("managedFields"):
            return _first_owner(kind, new, node, me, now)
    owners = _owners(new, live)
    changes = difference(live if live is not None else empty_object(machinery, kind), new, node)
    ignored = _Ignored(kind, subresource)
    written = ignored.filter(changes.added | changes.changed)
    removed = ignored.filter(changes.removed)
    if not written and not removed:
        return _with_owners(new, owners) if owners else _without_owners(new)
    for other, owned in owners.items():
        if other != me:
            owned.lose(written | removed)
    own = owners.get(me)
    fields = ((own.fields if own is not None else set()) - removed) | written
    if own is None or fields != own.fields:
        owners[me] = _Owned(fields, now)
    return _with_owners(new, owners)


def _first_owner(kind: Kind, new: Unstructured, node: SchemaNode, manager: Manager, now: str) -> Unstructured:
    """A new object has one owner: its creator."""
    fields = initial_fields_v1(new, node)
    ignored = _Ignored(kind, manager.subresource)
    for top_level_field in ignored.top_level:
        fields.pop(top_level_field, None)
    unowned = ignored.metadata | {"."}
    metadata = {step: child for step, child in fields.pop("f:metadata", {}).items() if step not in unowned}
    if metadata:
        fields["f:metadata"] = metadata
    if not fields:
        return _without_owners(new)
    entry = _entry(manager, now, fields)
    return {**new, "metadata": {**new["metadata"], "managedFields": [entry]}}


def apply(
    machinery: Machinery,
    kind: Kind,
    live: Unstructured | None,
    applied: Unstructured,
    manager: str,
    now: str,
    *,
    force: bool = False,
    subresource: str = "",
) -> Unstructured:
    """The live object merged with the applied one; a 409 with every conflict. The result is decoded like a patch."""
    _check_applied(kind, applied)
    node = machinery.schema(kind)
    config = _decode_applied(machinery, kind, applied)
    base = live if live is not None else empty_object(machinery, kind)
    owners = _owners(base, None)
    if live is not None and not owners:
        owners = _owners_before_first_apply(live, node, kind, subresource)
    me = Manager(manager, "Apply", kind.api_version, subresource)
    ignored = _Ignored(kind, subresource)
    mine: Paths = set()
    applied_fields(config, node, (), mine)
    mine = ignored.filter(mine)
    previous = owners.get(me)
    result: Unstructured = merge_fields(base, config, node)
    owners[me] = _Owned(mine, previous.time if previous is not None and previous.fields == mine else now)
    if previous is not None:
        result = remove_fields(result, node, _unowned_fields(previous.fields - mine, owners))
    forced = force or _was_own(base, result, node, owners, me)
    _resolve_conflicts(difference(base, result, node), owners, me, forced, ignored)
    result["apiVersion"], result["kind"] = kind.api_version, kind.kind
    return _with_owners(_last_applied(result, base, applied, manager), owners)


def _last_applied(result: Unstructured, live: Unstructured, applied: Unstructured, manager: str) -> Unstructured:
    """Keeps kubectl's last-applied annotation up to date if there is one, so that client-side apply keeps working."""
    if manager != "kubectl" or LAST_APPLIED_ANNOTATION not in (live["metadata"].get("annotations") or {}):
        return result
    configuration = json.dumps(applied, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    annotations = {**(result["metadata"].get("annotations") or {}), LAST_APPLIED_ANNOTATION: configuration}
    return {**result, "metadata": {**result["metadata"], "annotations": annotations}}


def _check_applied(kind: Kind, applied: object) -> None:
    if not isinstance(applied, dict):
        raise ApiError.bad_request("error decoding YAML: an object is expected")
    if exceeds_depth(applied):
        raise ApiError.bad_request("error decoding YAML: exceeded max depth")
    given = applied.get("apiVersion", ""), applied.get("kind", "")
    if given != (kind.api_version, kind.kind):
        group, _, version = str(given[0]).rpartition("/")
        raise ApiError.bad_request(f"invalid object type: {group}/{version}, Kind={given[1]}")
    metadata = applied.get("metadata", {})
    if not isinstance(metadata, dict):
        raise ApiError.bad_request("error decoding YAML: metadata is not an object")
    if metadata.get("managedFields"):
        raise ApiError.bad_request("metadata.managedFields must be nil")


def _decode_applied(machinery: Machinery, kind: Kind, applied: Unstructured) -> Unstructured:
    """The applied object, types checked and numbers canonical, with nothing filled in or dropped."""
    if kind.custom:
        return applied
    try:
        return decode_as_written(kind, applied)
    except TypeMismatch as problem:
        metadata = applied.get("metadata") or {}
        key = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        group_version = kind.api_version if kind.group else f"/{kind.version}"
        head = f"failed to create typed patch object ({key}; {group_version}, Kind={kind.kind}): "
        raise ApiError.bad_request(head + problem.message()) from None


def _owners_before_first_apply(live: Unstructured, node: SchemaNode, kind: Kind, subresource: str) -> Owners:
    """An object without managedFields: all its fields belong to the manager `before-first-apply`."""
    fields: Paths = set()
    for name, value in live.items():
        all_fields(value, node.child(name), (f"f:{name}",), fields)
    tracked = _Ignored(kind, subresource).filter(fields)
    return {Manager(BEFORE_FIRST_APPLY, "Update", kind.api_version): _Owned(tracked)}


def _unowned_fields(removed: Paths, owners: Owners) -> list[Path]:
    """Fields that are no longer applied and that no other manager owns, nor anything below them."""
    claimed: set[Path] = set()
    for owned in owners.values():
        for path in owned.fields:
            for length in range(1, len(path) + 1):
                claimed.add(path[:length])
    return [path for path in removed if path not in claimed]


def _resolve_conflicts(changes: Difference, owners: Owners, me: Manager, force: bool, ignored: _Ignored) -> None:
    """Takes fields from other managers; a conflict if they have another value, unless forced."""
    written = ignored.filter(changes.added | changes.changed)
    conflicts = {
        manager: sorted(owned.fields & written)
        for manager, owned in owners.items()
        if manager != me and owned.fields & written
    }
    if conflicts and not force:
        raise _conflict(conflicts)
    for manager, owned in owners.items():
        if manager != me:
            owned.lose(written | changes.removed)


def _was_own(live: Unstructured, result: Unstructured, node: SchemaNode, owners: Owners, me: Manager) -> bool:
    """Whether kubectl switches from client-side apply: all contested fields are ones that it applied on the
    client's side.
    """
    annotation = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED_ANNOTATION)
    if me.name != "kubectl" or not isinstance(annotation, str):
        return False
    try:
        last_applied = json.loads(annotation)
    except ValueError:
        return False
    if not isinstance(last_applied, dict):
        return False
    mine: Paths = set()
    applied_fields(last_applied, node, (), mine)
    since = difference(last_applied, live, node)
    mine -= since.changed | since.removed
    changes = difference(live, result, node)
    changed = changes.added | changes.changed
    contested = {path for manager, owned in owners.items() if manager != me for path in owned.fields & changed}
    return contested <= mine


def _conflict(conflicts: dict[Manager, list[Path]]) -> ApiError:
    count = sum(len(paths) for paths in conflicts.values())
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {_manager_text(manager)}",
            "field": format_path(path),
        }
        for manager, paths in conflicts.items()
        for path in paths
    ]
    if count == 1:
        message = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        lines = []
        for manager in sorted(conflicts, key=_manager_text):
            lines.append(f"conflicts with {_manager_text(manager)}:")
            lines += [f"- {format_path(path)}" for path in conflicts[manager]]
        message = f"Apply failed with {count} conflicts: " + "\n".join(lines)
    return ApiError(409, "Conflict", message, {"causes": causes})


def _manager_text(manager: Manager) -> str:
    text = f'"{manager.name}"'
    if manager.subresource:
        text += f' with subresource "{manager.subresource}"'
    return text if manager.operation == "Apply" else f"{text} using {manager.api_version}"


# ---- fields without owner


class _Ignored:
    """Fields that are not tracked: identity, and the part of the object that a write does not change."""

    def __init__(self, kind: Kind, subresource: str) -> None:
        self.top_level = {"f:apiVersion", "f:kind"}
        self.metadata = _UNOWNED_METADATA
        if subresource == "status":
            self.top_level |= {"f:spec", "f:metadata"}
        elif kind.has_subresource("status"):
            self.top_level.add("f:status")

    def filter(self, paths: Paths) -> Paths:
        top_level, metadata = self.top_level, self.metadata
        return {
            path
            for path in paths
            if path
            and path[0] not in top_level
            and not (path[0] == "f:metadata" and (len(path) == 1 or path[1] in metadata))
        }


@lru_cache(maxsize=256)
def _empty_built_in(kind: Kind) -> Unstructured:
    return decode(kind, {})[0]


def empty_object(machinery: Machinery, kind: Kind) -> Unstructured:
    """An object of a kind before anything is written into it."""
    return {"metadata": {}} if kind.custom else _empty_built_in(kind)


# ---- managedFields


def _owners(obj: Unstructured, live: Unstructured | None) -> Owners:
    """The owners from an object, else from the stored one. An empty list forgets all owners."""
    entries = obj["metadata"].get("managedFields")
    if entries is None and live is not None:
        entries = live["metadata"].get("managedFields")
    owners: Owners = {}
    for entry in entries or ():
        if not isinstance(entry.get("fieldsV1"), dict) or not entry.get("manager"):
            continue
        manager = Manager(
            entry["manager"],
            entry.get("operation", "Update"),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        owners[manager] = _Owned(None, entry.get("time", ""), entry)
    return owners


def _with_owners(obj: Unstructured, owners: Owners) -> Unstructured:
    remaining = [(manager, owned) for manager, owned in owners.items() if owned.entry or owned.fields]
    remaining.sort(key=lambda item: (item[0].operation, item[1].time, item[0].name, item[0].api_version))
    listed = [owned.entry or _entry(manager, owned.time, to_fields_v1(owned.fields)) for manager, owned in remaining]
    return {**obj, "metadata": {**obj["metadata"], "managedFields": listed}}


def _without_owners(obj: Unstructured) -> Unstructured:
    return {**obj, "metadata": {key: item for key, item in obj["metadata"].items() if key != "managedFields"}}


def _entry(manager: Manager, time: str, fields: Unstructured) -> Unstructured:
    entry: dict[str, Any] = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": intern_fields_v1(fields),
        "subresource": manager.subresource,
    }
    return {key: value for key, value in entry.items() if value or key == "fieldsV1"}
