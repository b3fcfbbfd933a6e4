"""The fields of a new object as FieldsV1, compiled from its schema, since every create needs them.

Used by `server_side_apply`. `initial_fields_v1` gives the same result as `field_sets` for the difference from an
empty object (a test checks that), in a fraction of the time. Only for built-in kinds, whose types `decode` has
checked.
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
"""Shared, since these trees are never changed."""
_Entry = tuple[str, Writer | None, Writer | None, bool]
"""Step, writer for a new value, writer for a value that an empty object has too, whether Go always writes the field."""


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
    """For a struct that an empty object has too: it is not itself among the fields."""
    entries = _table(node)

    def write(value: Any) -> Unstructured:
        tree: Unstructured = {}
        for name, item in value.items():
            step, inner, outer, always = entries(name)
            if always and not item:
                continue  # unchanged
            if outer is not None:
                found = outer(item)
                if found:
                    tree[step] = found
            elif item is not None:
                tree[step] = inner(item) if inner is not None and item else _LEAF
        return tree

    return write


def _inner_struct(node: SchemaNode) -> Writer:
    """For a struct that is new: it is among the fields, and so is everything below."""
    entries = _table(node)

    def write(value: Any) -> Unstructured:
        tree: Unstructured = {".": _LEAF}
        for name, item in value.items():
            step, inner, _, _ = entries(name)
            tree[step] = inner(item) if inner is not None and item else _LEAF
        return tree

    return write


def _table(node: SchemaNode) -> Callable[[str], _Entry]:
    """Entries by field, made at first use, since definitions refer to themselves."""
    entries: dict[str, _Entry] = {}

    def entry(name: str) -> _Entry:
        found = entries.get(name)
        if found is None:
            found = entries[name] = _entry(name, node.fields.get(name))
        return found

    return entry


def _entry(name: str, child: SchemaNode | None) -> _Entry:
    if child is None:
        return f"f:{name}", _unknown, None, False
    always = child.omit_rule == "always"
    inner = _inner_of(child.name) if _plain(child) else _inner(child)
    outer: Writer | None = None
    if always and child.type == "struct" and not child.is_atomic:
        outer = _outer_of(child.name) if child.name else _outer(child)
    elif always and inner is not None and child.type == "list":
        outer = _without_dot(inner)
    return f"f:{name}", inner, outer, always


def _plain(node: SchemaNode) -> bool:
    """A plain reference to a definition, without merge settings of its own."""
    return bool(node.name) and not any(key.startswith("x-kubernetes") for key in node.raw)


def _without_dot(writer: Writer) -> Writer:
    return lambda value: {step: child for step, child in writer(value).items() if step != "."}


def _inner(node: SchemaNode) -> Writer | None:
    """None for a leaf."""
    if node.type == "struct":
        return None if node.is_atomic else _inner_struct(node)
    if node.type == "map":
        return None if node.is_atomic else _inner_map(node)
    if node.type == "list" and node.list_type == "map":
        return _keyed(node)
    if node.type == "list" and node.list_type == "set":
        return lambda value: {".": _LEAF, **{"v:" + compact_json(item): _LEAF for item in value}}
    return _unknown if node.type == "any" and not node.name else None


def _inner_map(node: SchemaNode) -> Writer:
    values_node = node.values
    inner = _inner_of(values_node.name) if _plain(values_node) else _inner(values_node)

    def write(value: Any) -> Unstructured:
        tree: Unstructured = {".": _LEAF}
        for name, item in value.items():
            tree[f"f:{name}"] = inner(item) if inner is not None and item else _LEAF
        return tree

    return write


def _keyed(node: SchemaNode) -> Writer:
    items_node = node.items
    inner = _inner_of(items_node.name) if _plain(items_node) else _inner(items_node)

    def write(value: Any) -> Unstructured:
        tree: Unstructured = {".": _LEAF}
        for element in value:
            tree[key_step(element, node)] = inner(element) if inner is not None and element else _LEAF
        return tree

    return write


def _unknown(value: Any) -> Unstructured:
    """Values without a schema: objects are divided into fields, lists are not."""
    if not isinstance(value, dict):
        return {}
    found: set[tuple[str, ...]] = set()
    all_fields(value, None, ("",), found)
    tree: Unstructured = to_fields_v1(found)[""]
    return tree
