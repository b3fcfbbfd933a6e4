"""The scenario's clock: moments as people write them, as seconds since the start, as Kubernetes' timestamps.

Every scenario starts at the same instant, so that the objects of two runs are equal.
"""

from __future__ import annotations

from windlass.model.errors import InputError
from windlass.model.times import duration_seconds, timestamp_of

START = 1_767_225_600
"""2026-01-01T00:00:00Z."""


def stamp(at: int) -> str:
    """The timestamp of a moment `at` seconds after the start (before it, where negative)."""
    return timestamp_of(START + at)


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
