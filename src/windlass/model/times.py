"""Kubernetes' timestamps and durations as seconds. Used by every package."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache

from windlass.model.errors import InputError

_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?(?:h|ms|m|s))+")
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?)(h|ms|m|s)")
_UNITS = {"h": Fraction(3600), "m": Fraction(60), "s": Fraction(1), "ms": Fraction(1, 1000)}
_LONGEST_DURATION = 10**10


@lru_cache(maxsize=1 << 15)
def parse_timestamp(timestamp: str) -> int:
    """Seconds since 1970 of an RFC 3339 time; 0 for an empty or unreadable one."""
    if not timestamp:
        return 0
    try:
        return int(datetime.fromisoformat(timestamp).timestamp())
    except (ValueError, OverflowError):
        return 0


_FIRST_TIMESTAMP, _LAST_TIMESTAMP = -62_135_596_800, 253_402_300_799
"""The first second of the year 1 and the last one of the year 9999: RFC 3339 has no others."""


def format_timestamp(seconds: int) -> str:
    """The RFC 3339 time, in UTC, as Kubernetes writes it."""
    shown = max(_FIRST_TIMESTAMP, min(seconds, _LAST_TIMESTAMP))
    return datetime.fromtimestamp(shown, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_duration(seconds: int) -> str:
    """As people write it: `45s`, `10m`, `1h4m`; `parse_duration` reads it."""
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    parts = [f"{number}{unit}" for number, unit in ((hours, "h"), (minutes, "m"), (left, "s")) if number]
    return "".join(parts) or "0s"


@lru_cache(maxsize=1 << 12)  # only what can be read is kept, so no text is longer than 64 characters
def parse_duration(text: str) -> int:
    """Whole seconds, rounded up, of `90`, `90s`, `1h30m` or `1.5h`; an `InputError` for anything else."""
    if text.isascii() and text.isdigit() and len(text) <= 10:
        return int(text)
    if len(text) > 64 or not _DURATION.fullmatch(text):
        raise InputError(f"{text[:64]!r} is not a duration", remedy="write it as 90s, 15m or 1h30m")
    total = sum((Fraction(number) * _UNITS[unit] for number, unit in _PART.findall(text)), Fraction(0))
    if total > _LONGEST_DURATION:
        raise InputError(f"{text!r} is too long", remedy="write it as 90s, 15m or 1h30m")
    return -(-total.numerator // total.denominator)
