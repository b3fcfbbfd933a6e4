"""Objects that are nearly right: samples with something in them replaced, removed or added."""

from __future__ import annotations

import random
from typing import Any

from windlass.embedded.api.json_trees import deep_copy
from windlass.model.unstructured import Unstructured

STRANGE: list[Any] = [
    None,
    "",
    "x",
    "-1",
    "0.5",
    "999999999999999999999999",
    "1e400",
    "é\u2028\x00",
    "a" * 300,
    0,
    -1,
    1.5,
    2**40,
    2**70,
    True,
    False,
    [],
    [None],
    [[]],
    [{}],
    ["a", "a"],
    [1, "b"],
    {},
    {"": ""},
    {"a": None},
    {"a": {"b": {"c": 1}}},
    {"name": {}},
    {"$patch": "delete"},
    {"$ref": "#"},
]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every place of a tree: the container and the key."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        for key, item in value.items():
            found += [(value, key), *places(item)]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += [(value, index), *places(item)]
    return found


def mutated(obj: Unstructured, seed: int) -> Unstructured:
    """The object after one to three changes."""
    chance = random.Random(seed)
    made: Unstructured = deep_copy(obj)
    for _ in range(chance.randint(1, 3)):
        there = [place for place in places(made) if place[1] not in ("apiVersion", "kind")]
        if not there:
            return made
        container, key = chance.choice(there)
        how = chance.random()
        if how < 0.2 and isinstance(container, dict):
            del container[key]
        elif how < 0.3 and isinstance(container, dict):
            container[chance.choice(["foo", "name", "$patch", ""])] = deep_copy(chance.choice(STRANGE))
        else:
            container[key] = deep_copy(chance.choice(STRANGE))
    return made
