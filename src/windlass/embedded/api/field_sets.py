"""Sets of fields, for `managedFields`: which fields an object has, how two objects differ, and their written form.

A path is a tuple of steps as FieldsV1 writes them: `f:spec`, `k:{"name":"main"}` (an element of a list with keys),
`v:"a"` (an element of a set). What is one field and what is many is the schema's to say: atomic lists and maps are one.
Feeds `api.apply`.
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
    """How a value falls into fields."""
    if isinstance(value, dict):
        if node is None or (node.type == "any" and not node.name) or node.type in ("struct", "map"):
            return LEAF if node is not None and node.is_atomic else FIELDS
        return LEAF
    if isinstance(value, list) and node is not None and node.type == "list":
        if node.list_type == "map" and all(isinstance(each, dict) for each in value):
            return KEYED
        if node.list_type == "set" and not any(isinstance(each, dict | list) for each in value):
            return SET
    return LEAF


def children(value: Any, node: SchemaNode | None, kind: str) -> Iterator[tuple[str, Any, SchemaNode | None]]:
    """What lies below, with its step."""
    if kind == FIELDS:
        for name, each in value.items():
            below = None if node is None or node.type == "any" else node.child(name)
            yield f"f:{name}", each, below
    elif kind == KEYED and node is not None:
        for each in value:
            yield key_step(each, node), each, node.items
    elif kind == SET:
        for each in value:
            yield "v:" + compact_json(each), each, None


def key_step(element: Unstructured, node: SchemaNode) -> str:
    """The step that names an element of a list with keys; a key that is silent has its default."""
    keys = {}
    for key in node.list_keys:
        if key in element:
            keys[key] = element[key]
        else:
            below = node.items.fields.get(key)
            default = below.default if below is not None else None
            if default is not None:
                keys[key] = default
    return "k:" + compact_json(keys)


def compact_json(value: Any) -> str:
    return _encode(value).decode()


_encode = msgspec.json.Encoder(order="sorted").encode


# ---- sets of objects


def all_fields(value: Any, node: SchemaNode | None, path: Path, into: Paths) -> None:
    """A value and all below it."""
    into.add(path)
    kind = field_structure(node, value)
    if kind != LEAF:
        for step, each, below in children(value, node, kind):
            all_fields(each, below, (*path, step), into)


def applied_fields(value: Any, node: SchemaNode | None, path: Path, into: Paths) -> None:
    """What somebody names who applies this: leaves, elements, and what is empty."""
    kind = field_structure(node, value)
    if kind == LEAF or (kind == FIELDS and not value):
        into.add(path)
        return
    declared = node is not None and node.type == "struct"
    for step, each, below in children(value, node, kind):
        inner = (*path, step)
        if kind != FIELDS or not declared:
            into.add(inner)
        applied_fields(each, below, inner, into)


def difference(old: Any, new: Any, node: SchemaNode | None) -> Difference:
    made = Difference(set(), set(), set())
    _compare(old, new, node, (), made)
    return made


def _compare(old: Any, new: Any, node: SchemaNode | None, path: Path, made: Difference) -> None:
    if old == new and type(old) is type(new):
        return
    if old is None and isinstance(new, list):
        old = []  # Go writes a list that was never set as null
    kind = field_structure(node, new)
    if kind == LEAF or field_structure(node, old) != kind:
        made.changed.add(path)
        return
    before = {step: (each, below) for step, each, below in children(old, node, kind)}
    for step, each, below in children(new, node, kind):
        if step in before:
            _compare(before.pop(step)[0], each, below, (*path, step), made)
        else:
            all_fields(each, below, (*path, step), made.added)
    for step, (each, below) in before.items():
        all_fields(each, below, (*path, step), made.removed)


# ---- merging


def merge_fields(live: Any, applied: Any, node: SchemaNode | None) -> Any:
    """What was applied, laid over what is there."""
    kind = field_structure(node, applied)
    if kind == LEAF or field_structure(node, live) != kind:
        return deep_copy(applied)
    if kind == FIELDS:
        made = dict(live)
        for name, each in applied.items():
            below = None if node is None or node.type == "any" else node.child(name)
            made[name] = (
                merge_fields(live[name], each, below) if live.get(name) is not None else deep_copy(each)
            )
        return made
    found = {step: each for step, each, _ in children(live, node, kind)}
    for step, each, below in children(applied, node, kind):
        found[step] = merge_fields(found[step], each, below) if step in found else deep_copy(each)
    return list(found.values())


def remove_fields(value: Any, node: SchemaNode | None, paths: Iterable[Path]) -> Any:
    """A value with some fields taken out."""
    gone: _Gone = {}
    for path in sorted(filter(None, paths), key=len):
        _mark(gone, path)
    return _pruned(value, node, gone) if gone else value


_Gone = dict[str, Any]
"""Steps of what goes: None where it goes as a whole, else what goes below."""


def _mark(gone: _Gone, path: Path) -> None:
    """Shorter paths come first: an element goes as a whole, before the fields that name it do."""
    for step in path[:-1]:
        gone = gone.setdefault(step, {})
        if gone is None:
            return
    gone[path[-1]] = None


def _pruned(value: Any, node: SchemaNode | None, gone: _Gone) -> Any:
    kind = field_structure(node, value)
    if kind == LEAF:
        return value
    left = [
        (step, each if step not in gone else _pruned(each, below, gone[step]))
        for step, each, below in children(value, node, kind)
        if step not in gone or gone[step] is not None
    ]
    return {step[2:]: each for step, each in left} if kind == FIELDS else [each for _, each in left]


# ---- FieldsV1


def to_fields_v1(paths: Iterable[Path]) -> Unstructured:
    """As FieldsV1: a tree of steps, where a dot says that a field with others below it is itself in the set."""
    tree: Unstructured = {}
    members = []
    for path in sorted(paths):
        at = tree
        for step in path:
            at = at.setdefault(step, {})
        at["."] = {}
        members.append(at)
    for each in members:
        if len(each) == 1:
            del each["."]
    return tree


_shared: dict[bytes, Unstructured] = {}
_MOST_SHARED = 4096


def intern_fields_v1(fields: Unstructured) -> Unstructured:
    """The same tree for everybody who owns the same fields: thousands of pods of one shape keep one account.

    Like everything in the store it is never changed in place.
    """
    key = msgspec.json.encode(fields)
    found = _shared.get(key)
    if found is None:
        if len(_shared) >= _MOST_SHARED:
            _shared.clear()
        found = _shared[key] = fields
    return found


def from_fields_v1(fields: Any, path: Path = ()) -> Paths:
    """The set behind a FieldsV1."""
    found: Paths = set()
    if not isinstance(fields, dict):
        return found
    for step, below in fields.items():
        if step == ".":
            found.add(path)
            continue
        inner = (*path, step)
        if not below:
            found.add(inner)
        else:
            found |= from_fields_v1(below, inner)
    return found


def format_path(path: Path) -> str:
    """For people: `.spec.template.spec.containers[name="main"].image`."""
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
    """The keys of an element; anybody may have written them."""
    try:
        keys = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return text
    return ",".join(f"{key}={compact_json(value)}" for key, value in keys.items())
