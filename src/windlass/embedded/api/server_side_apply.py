"""Server-side apply, and who owns which field: `apply` for apply patches, `track` for every other write.

The server calls `track` on each create, update and patch before it stores the result, and `apply` for
`application/apply-patch+yaml`. Ownership stands in `metadata.managedFields`, as in Kubernetes: an applied field that
another manager owns with another value is a conflict (409) unless forced; a field that its only owner no longer applies
goes away. The wording is the Kubernetes API's (Apache-2.0).
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
from windlass.model.unstructured import Unstructured

_UNOWNED_METADATA = {
    "f:name",
    "f:namespace",
    "f:creationTimestamp",
    "f:deletionTimestamp",
    "f:deletionGracePeriodSeconds",
    "f:selfLink",
    "f:uid",
    "f:generation",
    "f:managedFields",
    "f:resourceVersion",
}
BEFORE_FIRST_APPLY = "before-first-apply"
LAST_APPLIED_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
"""What `kubectl apply` has applied, where the client did the work."""


class Manager(msgspec.Struct, frozen=True):
    """Somebody who owns fields: the same name may own some by applying and others by updating."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""


class _Owned:
    """What a manager owns. An entry of `managedFields` is read only where its fields matter, and kept if they don't."""

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
        """Take fields away, if they are this manager's."""
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
    """The new object with `managedFields` that say who wrote what. `now` is RFC 3339; `live` is what was stored.

    A new object is tracked right after it was decoded, before admission adds what its maker didn't write.
    """
    if live is None and not kind.custom:
        apply_defaults(kind, new)
    node = machinery.schema(kind)
    if live is None and not kind.custom and not new["metadata"].get("managedFields"):
        return _first(kind, new, node, Manager(manager, "Update", kind.api_version, subresource), now)
    owners = _owners(new, live)
    found = difference(live if live is not None else empty_object(machinery, kind), new, node)
    ignored = _Ignored(kind, subresource)
    taken = ignored.kept(found.added | found.changed)
    gone = ignored.kept(found.removed)
    me = Manager(manager, "Update", kind.api_version, subresource)
    if not taken and not gone:
        return _with_owners(new, owners) if owners else _without_owners(new)
    for each, owned in owners.items():
        if each != me:
            owned.lose(taken | gone)
    mine = owners.get(me)
    fields = ((mine.fields if mine is not None else set()) - gone) | taken
    if mine is None or fields != mine.fields:
        owners[me] = _Owned(fields, now)
    return _with_owners(new, owners)


def _first(kind: Kind, new: Unstructured, node: SchemaNode, me: Manager, now: str) -> Unstructured:
    """A new object has one owner: whoever makes it."""
    fields = initial_fields_v1(new, node)
    ignored = _Ignored(kind, me.subresource)
    for top in ignored.tops:
        fields.pop(top, None)
    metadata = {
        step: each for step, each in fields.get("f:metadata", {}).items() if step not in ignored.metadata
    }
    metadata.pop(".", None)
    fields.pop("f:metadata", None)
    if metadata:
        fields["f:metadata"] = metadata
    if not fields:
        return _without_owners(new)
    entry = _entry(me, now, fields)
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
    """What is there with what was applied laid over it; a 409 with every conflict. Goes on to `decode` like a patch."""
    _check(kind, applied)
    node = machinery.schema(kind)
    config = _typed(machinery, kind, applied)
    base = live if live is not None else empty_object(machinery, kind)
    owners = _owners(base, None)
    if live is not None and not owners:
        owners = _before(live, node, kind, subresource)
    me = Manager(manager, "Apply", kind.api_version, subresource)
    ignored = _Ignored(kind, subresource)
    mine: Paths = set()
    applied_fields(config, node, (), mine)
    mine = ignored.kept(mine)
    last = owners.get(me)
    result: Unstructured = merge_fields(base, config, node)
    owners[me] = _Owned(mine, last.time if last is not None and last.fields == mine else now)
    if last is not None:
        result = remove_fields(result, node, _orphaned(last.fields - mine, owners))
    _settle(base, result, node, owners, me, force or _taken_over(base, result, node, owners, me), ignored)
    result["apiVersion"], result["kind"] = kind.api_version, kind.kind
    return _with_owners(_with_note(result, base, applied, manager), owners)


def _with_note(result: Unstructured, live: Unstructured, applied: Unstructured, manager: str) -> Unstructured:
    """kubectl's note of what was applied stays true where it has one, so that it can go back to applying itself."""
    if manager != "kubectl" or LAST_APPLIED_ANNOTATION not in (live["metadata"].get("annotations") or {}):
        return result
    note = json.dumps(applied, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    annotations = {**(result["metadata"].get("annotations") or {}), LAST_APPLIED_ANNOTATION: note}
    return {**result, "metadata": {**result["metadata"], "annotations": annotations}}


def _check(kind: Kind, applied: object) -> None:
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


def _typed(machinery: Machinery, kind: Kind, applied: Unstructured) -> Unstructured:
    """What was applied, types checked and numbers canonical, with nothing filled in or left out."""
    if kind.custom:
        return applied
    try:
        return decode_as_written(kind, applied)
    except TypeMismatch as problem:
        metadata = applied.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        namespace = metadata.get("namespace", "") if isinstance(metadata, dict) else ""
        group_version = kind.api_version if kind.group else f"/{kind.version}"
        what = (
            f"failed to create typed patch object ({namespace}/{name}; {group_version}, Kind={kind.kind}): "
        )
        raise ApiError.bad_request(what + problem.message()) from None


def _before(live: Unstructured, node: SchemaNode, kind: Kind, subresource: str) -> Owners:
    """An object that nobody has kept account of: what is there belongs to whoever came before."""
    fields: Paths = set()
    for name, each in live.items():
        all_fields(each, node.child(name), (f"f:{name}",), fields)
    kept = _Ignored(kind, subresource).kept(fields)
    return {Manager(BEFORE_FIRST_APPLY, "Update", kind.api_version): _Owned(kept)}


def _orphaned(gone: Paths, owners: Owners) -> list[Path]:
    """Fields that nobody applies any more, and that nobody else owns, nor anything below them."""
    claimed: set[Path] = set()
    for owned in owners.values():
        for path in owned.fields:
            for length in range(1, len(path) + 1):
                claimed.add(path[:length])
    return [path for path in gone if path not in claimed]


def _settle(
    live: Unstructured,
    result: Unstructured,
    node: SchemaNode,
    owners: Owners,
    me: Manager,
    force: bool,
    ignored: _Ignored,
) -> None:
    """Take fields from others: with a conflict where they hold another value, unless forced."""
    found = difference(live, result, node)
    touched = ignored.kept(found.added | found.changed)
    conflicts = {
        each: sorted(owned.fields & touched)
        for each, owned in owners.items()
        if each != me and owned.fields & touched
    }
    if conflicts and not force:
        raise _conflict(conflicts)
    for each, owned in owners.items():
        if each != me:
            owned.lose(touched | found.removed)


def _taken_over(
    live: Unstructured, result: Unstructured, node: SchemaNode, owners: Owners, me: Manager
) -> bool:
    """Whether kubectl takes over from itself: all that it touches is what it has applied on the client's side."""
    note = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED_ANNOTATION)
    if me.name != "kubectl" or not isinstance(note, str):
        return False
    try:
        last = json.loads(note)
    except ValueError:
        return False
    if not isinstance(last, dict):
        return False
    mine: Paths = set()
    applied_fields(last, node, (), mine)
    moved = difference(last, live, node)
    mine -= moved.changed | moved.removed
    found = difference(live, result, node)
    touched = found.added | found.changed
    contested = {path for each, owned in owners.items() if each != me for path in owned.fields & touched}
    return contested <= mine


def _conflict(conflicts: dict[Manager, list[Path]]) -> ApiError:
    count = sum(len(paths) for paths in conflicts.values())
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {_described(manager)}",
            "field": format_path(path),
        }
        for manager, paths in conflicts.items()
        for path in paths
    ]
    if count == 1:
        message = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        lines = []
        for manager in sorted(conflicts, key=_described):
            lines.append(f"conflicts with {_described(manager)}:")
            lines += [f"- {format_path(path)}" for path in conflicts[manager]]
        message = f"Apply failed with {count} conflicts: " + "\n".join(lines)
    return ApiError(409, "Conflict", message, {"causes": causes})


def _described(manager: Manager) -> str:
    text = f'"{manager.name}"'
    if manager.subresource:
        text += f' with subresource "{manager.subresource}"'
    return text if manager.operation == "Apply" else f"{text} using {manager.api_version}"


# ---- what nobody owns


class _Ignored:
    """Fields that are not accounted for: identity, and the half of the object that a write doesn't touch."""

    def __init__(self, kind: Kind, subresource: str) -> None:
        self.tops = {"f:apiVersion", "f:kind"}
        self.metadata = _UNOWNED_METADATA
        if subresource == "status":
            self.tops |= {"f:spec", "f:metadata"}
        elif kind.has_subresource("status"):
            self.tops.add("f:status")

    def kept(self, paths: Paths) -> Paths:
        tops, metadata = self.tops, self.metadata
        return {
            path
            for path in paths
            if path
            and path[0] not in tops
            and not (path[0] == "f:metadata" and (len(path) == 1 or path[1] in metadata))
        }


@lru_cache(maxsize=256)
def _empty_built_in(kind: Kind) -> Unstructured:
    return decode(kind, {})[0]


def empty_object(machinery: Machinery, kind: Kind) -> Unstructured:
    """An object of a kind before anything was written into it."""
    return {"metadata": {}} if kind.custom else _empty_built_in(kind)


# ---- managedFields


def _owners(obj: Unstructured, live: Unstructured | None) -> Owners:
    """From an object, or where it doesn't say, from what is stored. An empty list forgets everybody."""
    listed = obj["metadata"].get("managedFields")
    if listed is None and live is not None:
        listed = live["metadata"].get("managedFields")
    made: Owners = {}
    for entry in listed or ():
        if not isinstance(entry.get("fieldsV1"), dict) or not entry.get("manager"):
            continue
        who = Manager(
            entry["manager"],
            entry.get("operation", "Update"),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        made[who] = _Owned(None, entry.get("time", ""), entry)
    return made


def _with_owners(obj: Unstructured, owners: Owners) -> Unstructured:
    kept = [(manager, owned) for manager, owned in owners.items() if owned.entry or owned.fields]
    kept.sort(key=lambda each: (each[0].operation, each[1].time, each[0].name, each[0].api_version))
    listed = [
        owned.entry or _entry(manager, owned.time, to_fields_v1(owned.fields)) for manager, owned in kept
    ]
    return {**obj, "metadata": {**obj["metadata"], "managedFields": listed}}


def _without_owners(obj: Unstructured) -> Unstructured:
    return {**obj, "metadata": {key: each for key, each in obj["metadata"].items() if key != "managedFields"}}


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
