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


def format_duration(seconds: int) -> str:
    """`1h30m`, `90s` as `1m30s`, `0s`."""
    parts = [(seconds // 3600, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s")]
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"
