"""Times of the API: RFC 3339, written back in UTC, with whole seconds (`time`) or six digits (`microtime`).

Fed by `api.decode`. The usual form passes untouched; anything else is read and written anew.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_USUAL = re.compile(r"\d{4}-(0\d|1[0-2])-([0-2]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ")
_USUAL_MICRO = re.compile(r"\d{4}-(0\d|1[0-2])-([0-2]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}Z")
_ANY = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")


class InvalidTimestamp(ValueError):
    """With the API server's words for it."""


def canonical_time(text: str) -> str:
    """To the second."""
    return text if _USUAL.fullmatch(text) else _utc(text).strftime("%Y-%m-%dT%H:%M:%SZ")


def canonical_micro_time(text: str) -> str:
    """To the microsecond, which must be written out: six digits, no more and no fewer."""
    if _USUAL_MICRO.fullmatch(text):
        return text
    match = _ANY.fullmatch(text)
    if match is None or len(match[2] or "") != 6:
        raise InvalidTimestamp(_words(text, ".000000"))
    return _utc(text).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _utc(text: str) -> datetime:
    match = _ANY.fullmatch(text)
    if match is None:
        raise InvalidTimestamp(_words(text))
    whole, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(whole + ("+00:00" if zone == "Z" else zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidTimestamp(_words(text)) from None
    return moment + timedelta(microseconds=int((fraction or "0").ljust(6, "0")[:6]))


def _words(text: str, fraction: str = "") -> str:
    found = re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", text)
    rest, wanted = (text[found.end() :], fraction or "Z07:00") if found else (text, "2006")
    return (
        f'parsing time "{text}" as "2006-01-02T15:04:05{fraction}Z07:00": cannot parse "{rest}" as "{wanted}"'
    )


def seconds_since(text: str | None, now: float) -> float | None:
    """How long ago a time of the API was; `now` in seconds since 1970."""
    if not text:
        return None
    try:
        return now - _utc(text).timestamp()
    except InvalidTimestamp:
        return None


def age(text: str | None, now: float) -> str:
    """How long ago, as kubectl writes it; `<unknown>` where nobody knows."""
    passed = seconds_since(text, now)
    return "<unknown>" if passed is None else human_duration(passed)


def human_duration(duration: float) -> str:
    """A duration in at most two units, the coarser the longer it is: 90s, 5m30s, 3h5m, 4d2h, 300d."""
    seconds = int(duration)
    if seconds < 0:
        return "0s" if seconds >= -1 else "<invalid>"
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 180:
        return _two(minutes, "m", seconds % 60, "s", minutes < 10)
    if hours < 48:
        return _two(hours, "h", minutes % 60, "m", hours < 8)
    if days < 730:
        return _two(days, "d", hours % 24, "h", hours < 24 * 8)
    return _two(days // 365, "y", days % 365, "d", days < 365 * 8)


def _two(large: int, unit: str, small: int, small_unit: str, precise: bool) -> str:
    return f"{large}{unit}{small}{small_unit}" if precise and small else f"{large}{unit}"
