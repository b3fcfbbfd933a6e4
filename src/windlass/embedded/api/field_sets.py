"""Sets of fields for `managedFields`: which fields an object has, how two objects differ, and FieldsV1.

Used by `server_side_apply`. A path is a tuple of steps as in FieldsV1: `f:spec`, `k:{"name":"main"}` (an element of
a list with keys), `v:"a"` (an element of a set). The schema says what is one field: atomic lists and maps are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from windlass.embedded.api.json_trees import deep_copy
from windlass.embedded.api.schema import SchemaNode
from windlass.model.unstructured import Unstructured

Path = tuple[str, ...]
Paths = set[Path]

LEAF, FIELDS, KEYED, SET = "leaf", "fields", "keyed", "set"


class Difference(msgspec.Struct):
    """Where two objects differ."""

    added: Paths
    changed: Paths
    removed: Paths


def field_structure(node: SchemaNode | None, value: Any) -> str:
    """How a value is divided into fields."""
    if isinstance(value, dict):
        if node is None or (node.type == "any" and not node.name) or node.type in ("struct", "map"):
            return LEAF if node is not None and node.is_atomic else FIELDS
        return LEAF
    if isinstance(value, list) and node is not None and node.type == "list":
        if node.list_type == "map" and all(isinstance(item, dict) for item in value):
            return KEYED
        if node.list_type == "set" and not any(isinstance(item, dict | list) for item in value):
            return SET
    return LEAF


def children(value: Any, node: SchemaNode | None, kind: str) -> Iterator[tuple[str, Any, SchemaNode | None]]:
    """The parts of a value, each with its step."""
    if kind == FIELDS:
        for name, item in value.items():
            child = None if node is None or node.type == "any" else node.child(name)
            yield f"f:{name}", item, child
    elif kind == KEYED and node is not None:
        for item in value:
            yield key_step(item, node), item, node.items
    elif kind == SET:
        for item in value:
            yield "v:" + compact_json(item), item, None


def key_step(element: Unstructured, node: SchemaNode) -> str:
    """The step of an element of a list with keys; a missing key has its default."""
    keys = {}
    for key in node.list_keys:
        if key in element:
            keys[key] = element[key]
        else:
            child = node.items.fields.get(key)
            default = child.default if child is not None else None
            if default is not None:
                keys[key] = default
    return "k:" + compact_json(keys)


def compact_json(value: Any) -> str:
    return _encode(value).decode()


_encode = msgspec.json.Encoder(order="sorted").encode


# ---- sets of objects


def all_fields(value: Any, node: SchemaNode | None, path: Path, into: Paths) -> None:
    """A value and everything below it."""
    into.add(path)
    kind = field_structure(node, value)
    if kind != LEAF:
        for step, item, child in children(value, node, kind):
            all_fields(item, child, (*path, step), into)


def applied_fields(value: Any, node: SchemaNode | None, path: Path, into: Paths) -> None:
    """The fields that an applied configuration names: leaves, elements, and empty values."""
    kind = field_structure(node, value)
    if kind == LEAF or (kind == FIELDS and not value):
        into.add(path)
        return
    declared = node is not None and node.type == "struct"
    for step, item, child in children(value, node, kind):
        inner = (*path, step)
        if kind != FIELDS or not declared:
            into.add(inner)
        applied_fields(item, child, inner, into)


def difference(old: Any, new: Any, node: SchemaNode | None) -> Difference:
    result = Difference(set(), set(), set())
    _compare(old, new, node, (), result)
    return result


def _compare(old: Any, new: Any, node: SchemaNode | None, path: Path, result: Difference) -> None:
    if old == new and type(old) is type(new):
        return
    if old is None and isinstance(new, list):
        old = []  # Go writes an unset list as null
    kind = field_structure(node, new)
    if kind == LEAF or field_structure(node, old) != kind:
        result.changed.add(path)
        return
    old_items = {step: (item, child) for step, item, child in children(old, node, kind)}
    for step, item, child in children(new, node, kind):
        if step in old_items:
            _compare(old_items.pop(step)[0], item, child, (*path, step), result)
        else:
            all_fields(item, child, (*path, step), result.added)
    for step, (item, child) in old_items.items():
        all_fields(item, child, (*path, step), result.removed)


# ---- merging


def merge_fields(live: Any, applied: Any, node: SchemaNode | None) -> Any:
    """The applied value merged into the live one."""
    kind = field_structure(node, applied)
    if kind == LEAF or field_structure(node, live) != kind:
        return deep_copy(applied)
    if kind == FIELDS:
        merged = dict(live)
        for name, item in applied.items():
            child = None if node is None or node.type == "any" else node.child(name)
            merged[name] = merge_fields(live[name], item, child) if live.get(name) is not None else deep_copy(item)
        return merged
    found = {step: element for step, element, _ in children(live, node, kind)}
    for step, element, child_node in children(applied, node, kind):
        found[step] = merge_fields(found[step], element, child_node) if step in found else deep_copy(element)
    return list(found.values())


def remove_fields(value: Any, node: SchemaNode | None, paths: Iterable[Path]) -> Any:
    """A value without the given fields."""
    removed: _Removed = {}
    for path in sorted(filter(None, paths), key=len):
        _mark(removed, path)
    return _pruned(value, node, removed) if removed else value


_Removed = dict[str, Any]
"""Steps to remove: None if everything below is removed, else the steps below."""


def _mark(removed: _Removed, path: Path) -> None:
    """Shorter paths come first, so that an element is removed as a whole before the fields that name it."""
    for step in path[:-1]:
        removed = removed.setdefault(step, {})
        if removed is None:
            return
    removed[path[-1]] = None


def _pruned(value: Any, node: SchemaNode | None, removed: _Removed) -> Any:
    kind = field_structure(node, value)
    if kind == LEAF:
        return value
    remaining = [
        (step, item if step not in removed else _pruned(item, child, removed[step]))
        for step, item, child in children(value, node, kind)
        if step not in removed or removed[step] is not None
    ]
    return {step[2:]: item for step, item in remaining} if kind == FIELDS else [item for _, item in remaining]


# ---- FieldsV1


def to_fields_v1(paths: Iterable[Path]) -> Unstructured:
    """As FieldsV1: a tree of steps; a dot marks a field that is itself in the set although it has fields below."""
    tree: Unstructured = {}
    members = []
    for path in sorted(paths):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        node["."] = {}
        members.append(node)
    for member in members:
        if len(member) == 1:
            del member["."]
    return tree


_shared: dict[bytes, Unstructured] = {}
_MAX_SHARED = 4096


def intern_fields_v1(fields: Unstructured) -> Unstructured:
    """One shared tree for all objects with the same fields, such as thousands of pods of one owner.

    Like everything in the store it is never changed in place.
    """
    key = msgspec.json.encode(fields)
    found = _shared.get(key)
    if found is None:
        if len(_shared) >= _MAX_SHARED:
            _shared.clear()
        found = _shared[key] = fields
    return found


def from_fields_v1(fields: Any, path: Path = ()) -> Paths:
    """The set of a FieldsV1."""
    found: Paths = set()
    if not isinstance(fields, dict):
        return found
    for step, child in fields.items():
        if step == ".":
            found.add(path)
            continue
        inner = (*path, step)
        if not child:
            found.add(inner)
        else:
            found |= from_fields_v1(child, inner)
    return found


def format_path(path: Path) -> str:
    """For messages: `.spec.template.spec.containers[name="main"].image`."""
    text = ""
    for step in path:
        kind, rest = step[:2], step[2:]
        if kind == "f:":
            text += f".{rest}"
        elif kind == "k:":
            text += f"[{_keys(rest)}]"
        else:
            text += f"[={rest}]"
    return text


def _keys(text: str) -> str:
    """The keys of an element; the client may have sent any text."""
    try:
        keys = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return text
    return ",".join(f"{key}={compact_json(value)}" for key, value in keys.items())
