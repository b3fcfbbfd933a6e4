"""JSON trees: copying them, and reading a value below several names.

What the store hands out is shared and never changed in place, so whoever wants to change something copies first.
"""

from __future__ import annotations

import json
from typing import Any


def deep_copy(value: Any) -> Any:
    """A deep copy of plain JSON, several times faster than `copy.deepcopy`."""
    if type(value) is dict:
        return {key: deep_copy(each) if type(each) in _NESTED else each for key, each in value.items()}
    if type(value) is list:
        return [deep_copy(each) if type(each) in _NESTED else each for each in value]
    return value


_NESTED = (dict, list)


def hash_key(value: Any) -> Any:
    """What stands for a value in a set: lists may have many thousand elements, and are never compared pair by pair."""
    # Not msgspec, whose sorting of names takes time by the square where they are nearly sorted already.
    return (json.dumps(value, sort_keys=True),) if type(value) in _NESTED else value


def nested_value(value: Any, *names: str) -> Any:
    """What stands below several names, or none where one of them is missing."""
    for name in names:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


MAX_DEPTH = 200
"""Objects that are nested deeper are refused: nobody writes them by hand, and every walk over them is a stack."""


def exceeds_depth(value: Any, max_depth: int = MAX_DEPTH) -> bool:
    """Whether containers are nested more than so many times, found out without a stack of its own."""
    level = [value]
    for _ in range(max_depth):
        level = [
            inner
            for each in level
            for inner in (each.values() if type(each) is dict else each)
            if type(inner) in _NESTED
        ]
        if not level:
            return False
    return True
