"""The fields of a new object as FieldsV1, compiled from its schema, since every create needs them.

`fields_of_new` comes to the same as `fieldsets.written` of the difference from an empty object (a test holds that), at
a fraction of the time. Only for built-in kinds, whose types `api.decode` has checked. Feeds `api.apply`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from windlass.embedded.api.field_sets import all_fields, compact_json, key_step, to_fields_v1
from windlass.embedded.api.schema import SchemaNode, definition_schema
from windlass.model.unstructured import Unstructured

Writer = Callable[[Any], Unstructured]
_LEAF: Unstructured = {}
"""One for all: the trees made here are shared and never changed."""
_Entry = tuple[str, Writer | None, Writer | None, bool]
"""Step, writer of what is new as a whole, writer of what was there before, and whether Go always writes the field."""


def initial_fields_v1(value: Unstructured, node: SchemaNode) -> Unstructured:
    """All fields of a new object."""
    return (_outer_of(node.name) if node.name else _outer(node))(value)


@cache
def _outer_of(definition: str) -> Writer:
    return _outer(definition_schema(definition))


@cache
def _inner_of(definition: str) -> Writer | None:
    return _inner(definition_schema(definition))


def _outer(node: SchemaNode) -> Writer:
    """Of a struct that was there before anything was written into it: it is not itself among the fields."""
    entries = _table(node)

    def write(value: Any) -> Unstructured:
        tree: Unstructured = {}
        for name, each in value.items():
            step, inner, outer, always = entries(name)
            if always and not each:
                continue  # as empty as it was
            if outer is not None:
                found = outer(each)
                if found:
                    tree[step] = found
            elif each is not None:
                tree[step] = inner(each) if inner is not None and each else _LEAF
        return tree

    return write


def _inner_struct(node: SchemaNode) -> Writer:
    """Of a struct that is new: it is among the fields, and so is everything below."""
    entries = _table(node)

    def write(value: Any) -> Unstructured:
        tree: Unstructured = {".": _LEAF}
        for name, each in value.items():
            step, inner, _, _ = entries(name)
            tree[step] = inner(each) if inner is not None and each else _LEAF
        return tree

    return write


def _table(node: SchemaNode) -> Callable[[str], _Entry]:
    """Entries by field, made at first use: definitions refer to themselves."""
    made: dict[str, _Entry] = {}

    def entry(name: str) -> _Entry:
        found = made.get(name)
        if found is None:
            found = made[name] = _entry(name, node.fields.get(name))
        return found

    return entry


def _entry(name: str, below: SchemaNode | None) -> _Entry:
    if below is None:
        return f"f:{name}", _unknown, None, False
    always = below.omit_rule == "always"
    inner = _inner_of(below.name) if _plain(below) else _inner(below)
    outer: Writer | None = None
    if always and below.type == "struct" and not below.is_atomic:
        outer = _outer_of(below.name) if below.name else _outer(below)
    elif always and inner is not None and below.type == "list":
        outer = _without_dot(inner)
    return f"f:{name}", inner, outer, always


def _plain(node: SchemaNode) -> bool:
    """A mere reference to a definition, which says nothing itself about merging."""
    return bool(node.name) and not any(key.startswith("x-kubernetes") for key in node.raw)


def _without_dot(writer: Writer) -> Writer:
    return lambda value: {step: each for step, each in writer(value).items() if step != "."}


def _inner(node: SchemaNode) -> Writer | None:
    """None for a leaf."""
    if node.type == "struct":
        return None if node.is_atomic else _inner_struct(node)
    if node.type == "map":
        return None if node.is_atomic else _inner_map(node)
    if node.type == "list" and node.list_type == "map":
        return _keyed(node)
    if node.type == "list" and node.list_type == "set":
        return lambda value: {".": _LEAF, **{"v:" + compact_json(each): _LEAF for each in value}}
    return _unknown if node.type == "any" and not node.name else None


def _inner_map(node: SchemaNode) -> Writer:
    below = node.values
    inner = _inner_of(below.name) if _plain(below) else _inner(below)

    def write(value: Any) -> Unstructured:
        tree: Unstructured = {".": _LEAF}
        for name, each in value.items():
            tree[f"f:{name}"] = inner(each) if inner is not None and each else _LEAF
        return tree

    return write


def _keyed(node: SchemaNode) -> Writer:
    below = node.items
    inner = _inner_of(below.name) if _plain(below) else _inner(below)

    def write(value: Any) -> Unstructured:
        tree: Unstructured = {".": _LEAF}
        for each in value:
            tree[key_step(each, node)] = inner(each) if inner is not None and each else _LEAF
        return tree

    return write


def _unknown(value: Any) -> Unstructured:
    """What no schema describes: objects fall into fields, lists are one."""
    if not isinstance(value, dict):
        return {}
    found: set[tuple[str, ...]] = set()
    all_fields(value, None, ("",), found)
    tree: Unstructured = to_fields_v1(found)[""]
    return tree
