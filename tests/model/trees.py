"""Trees of plain values, for tests that break objects at random."""

from __future__ import annotations

from typing import Any

Place = tuple[str | int, ...]


def places(tree: Any, path: Place = ()) -> list[Place]:
    """The path of everything inside an object."""
    children: list[tuple[Any, Any]] = []
    if isinstance(tree, dict):
        children = list(tree.items())
    elif isinstance(tree, list):
        children = list(enumerate(tree))
    return [found for key, child in children for found in [(*path, key), *places(child, (*path, key))]]
