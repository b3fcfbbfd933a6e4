"""Finds what an operation on many things fails on, by trying it on fewer of them. Used by `isolation` and `cluster`."""

from __future__ import annotations

from collections.abc import Callable


def first_failing(count: int, error: Exception, attempt: Callable[[int], Exception | None]) -> tuple[int, Exception]:
    """Index of the item with which `attempt` on the first items begins to fail, and its error.

    `attempt(n)` is the error of trying the first `n` items, None if there is none. All `count` items are known to fail
    with `error`, and no items not to.
    """
    works, fails = 0, count
    while fails - works > 1:
        middle = (works + fails) // 2
        found = attempt(middle)
        if found is None:
            works = middle
        else:
            fails, error = middle, found
    return fails - 1, error
