"""Durations and moments in scenario files: `5m` after the start, `-5m` before it. Used by all of `scenario`."""

from __future__ import annotations

from windlass.model import times
from windlass.model.errors import InputError


def parse_moment(text: str, path: str) -> int:
    """Seconds since the start of `5m`; `-5m` is before it."""
    seconds = parse_duration(text.removeprefix("-"), path)
    return -seconds if text.startswith("-") else seconds


def parse_duration(text: str, path: str) -> int:
    try:
        return times.parse_duration(text)
    except InputError as error:
        raise error.with_context(path=path) from None
