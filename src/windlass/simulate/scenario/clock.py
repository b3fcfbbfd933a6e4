"""Moments of a scenario as people write them: `5m` after the start, `-5m` before it."""

from __future__ import annotations

from windlass.model.errors import InputError
from windlass.model.times import duration_seconds


def moment_of(text: str, path: str) -> int:
    """Seconds since the start of `5m`; `-5m` is before it."""
    seconds = seconds_in(text.removeprefix("-"), path)
    return -seconds if text.startswith("-") else seconds


def seconds_in(text: str, path: str) -> int:
    try:
        return duration_seconds(text)
    except InputError as error:
        raise error.with_context(path=path) from None


def words(seconds: int) -> str:
    """`1h30m`, `90s` as `1m30s`, `0s`."""
    parts = [(seconds // 3600, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s")]
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"
