"""Helpers for JSON objects: copying, hashing, nested lookup, depth limit. Used throughout `embedded`.

Objects from the store are shared and never changed in place, so a caller that changes one copies it first.
"""

from __future__ import annotations

import json
from typing import Any


def deep_copy(value: Any) -> Any:
    """A deep copy of plain JSON, several times faster than `copy.deepcopy`."""
    if type(value) is dict:
        return {key: deep_copy(item) if type(item) in _NESTED else item for key, item in value.items()}
    if type(value) is list:
        return [deep_copy(item) if type(item) in _NESTED else item for item in value]
    return value


_NESTED = (dict, list)


def copy_field(target: dict[str, Any], source: dict[str, Any], name: str) -> None:
    """The target's field becomes the source's, also if that has none."""
    if name in source:
        target[name] = deep_copy(source[name])
    else:
        target.pop(name, None)


def hash_key(value: Any) -> Any:
    """A hashable key of a value, so that long lists need not be compared pairwise."""
    # Not msgspec: its sorting of keys is quadratic if they are nearly sorted.
    return (json.dumps(value, sort_keys=True),) if type(value) in _NESTED else value


def nested_value(value: Any, *names: str) -> Any:
    """The value at a path of names; None if one is missing."""
    for name in names:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


MAX_DEPTH = 200
"""Deeper objects are refused, since most functions here are recursive."""


def exceeds_depth(value: Any, max_depth: int = MAX_DEPTH) -> bool:
    """Whether containers are nested deeper than `max_depth`; not recursive."""
    level = [value]
    for _ in range(max_depth):
        level = [
            child
            for container in level
            for child in (container.values() if type(container) is dict else container)
            if type(child) in _NESTED
        ]
        if not level:
            return False
    return True
