"""A cache keyed by texts of clients: bounded by entries and by their length, and so by bytes.

Used where clients send the same few texts again and again: selectors, quantities, Accept headers, patterns. A text
that is longer than usual is not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

_Key = TypeVar("_Key", str, str | int | float)
_Value = TypeVar("_Value")

MAX_CACHED_LENGTH = 512


def bounded_cache(
    maxsize: int, max_length: int = MAX_CACHED_LENGTH
) -> Callable[[Callable[[_Key], _Value]], Callable[[_Key], _Value]]:
    """A decorator for a function of one text."""

    def decorate(function: Callable[[_Key], _Value]) -> Callable[[_Key], _Value]:
        cached = lru_cache(maxsize=maxsize)(function)

        def call(key: _Key) -> _Value:
            return cached(key) if not isinstance(key, str) or len(key) <= max_length else function(key)

        return call

    return decorate
