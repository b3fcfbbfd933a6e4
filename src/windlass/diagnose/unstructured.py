"""Reads fields of objects without a struct: nested dicts and lists of any content.

All of diagnosis reads status, events and configuration through these functions. A missing or mistyped field gives an
empty value, never an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.model.digits import is_digits

Tree = Mapping[str, Any]


def nested(tree: object, *path: str | int) -> Any:
    """The value at the path, or None."""
    for step in path:
        if isinstance(step, int):
            tree = tree[step] if isinstance(tree, list) and -len(tree) <= step < len(tree) else None
        else:
            tree = tree.get(step) if isinstance(tree, Mapping) else None
    return tree


def nested_string(tree: object, *path: str | int) -> str:
    """The string at the path, or ""."""
    found = nested(tree, *path)
    return found if isinstance(found, str) else ""


def nested_int(tree: object, *path: str | int) -> int:
    """The whole number at the path, or 0."""
    found = nested(tree, *path)
    if isinstance(found, bool):
        return 0
    if isinstance(found, str) and is_digits(found):
        return int(found)
    return int(found) if isinstance(found, int | float) and abs(found) < 1 << 62 else 0


def nested_bool(tree: object, *path: str | int) -> bool:
    return nested(tree, *path) is True


def nested_map(tree: object, *path: str | int) -> dict[str, Any]:
    """The mapping at the path, or an empty one. Keys that are not strings (YAML allows them) are left out."""
    found = nested(tree, *path)
    return {key: value for key, value in found.items() if isinstance(key, str)} if isinstance(found, Mapping) else {}


def nested_maps(tree: object, *path: str | int) -> list[dict[str, Any]]:
    """The mappings in the list at the path."""
    found = nested(tree, *path)
    return [dict(row) for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def nested_strings(tree: object, *path: str | int) -> list[str]:
    """The strings in the list at the path."""
    found = nested(tree, *path)
    return [word for word in found if isinstance(word, str)] if isinstance(found, list) else []


def find_condition(tree: object, kind: str) -> dict[str, Any]:
    """The entry of `status.conditions` with that type; empty if there is none."""
    return next((row for row in nested_maps(tree, "status", "conditions") if nested_string(row, "type") == kind), {})
