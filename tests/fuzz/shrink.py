"""Makes an input smaller that still fails in the same way. `runner` calls it for each kind of failure once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.fuzz.mutate import places

from windlass.embedded.api.json_trees import deep_copy

MAX_SECONDS = 20.0


def shrunk(tree: Any, still_fails: Callable[[Any], bool]) -> Any:
    """Removes what can be removed, larger parts first, until nothing more can or the time is over."""
    deadline, smaller = time.monotonic() + MAX_SECONDS, True
    while smaller and time.monotonic() < deadline:
        smaller = False
        for number in range(sum(1 for _ in places(tree))):
            if time.monotonic() > deadline:
                break
            attempt = _without(tree, number)
            if attempt is not None and still_fails(attempt):
                tree, smaller = attempt, True
                break
    return tree


def _without(tree: Any, number: int) -> Any:
    """The tree without the part at its so-manieth place."""
    made = deep_copy(tree)
    for position, (container, key) in enumerate(places(made)):
        if position == number:
            del container[key]
            return made
    return None
