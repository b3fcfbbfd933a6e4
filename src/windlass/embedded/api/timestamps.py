"""Timestamps of the API: RFC 3339 in UTC, with whole seconds (`Time`) or six digits (`MicroTime`); ages as in
kubectl.

Used throughout `embedded`. The usual form is returned unchanged; other forms are parsed and formatted again.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

_USUAL = re.compile(r"\d{4}-(0\d|1[0-2])-([0-2]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ")
_USUAL_MICRO = re.compile(r"\d{4}-(0\d|1[0-2])-([0-2]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}Z")
_ANY = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")


class InvalidTimestamp(ValueError):
    """With the API server's message."""


def canonical_time(text: str) -> str:
    """With a resolution of seconds."""
    return text if _USUAL.fullmatch(text) else _utc(text).strftime("%Y-%m-%dT%H:%M:%SZ")


def canonical_micro_time(text: str) -> str:
    """With a resolution of microseconds; the input must have exactly six digits."""
    if _USUAL_MICRO.fullmatch(text):
        return text
    match = _ANY.fullmatch(text)
    if match is None or len(match[2] or "") != 6:
        raise InvalidTimestamp(_error_message(text, ".000000"))
    return _utc(text).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _utc(text: str) -> datetime:
    match = _ANY.fullmatch(text)
    if match is None:
        raise InvalidTimestamp(_error_message(text))
    seconds_text, fraction, zone = match.groups()
    try:
        parsed = datetime.fromisoformat(seconds_text + ("+00:00" if zone == "Z" else zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidTimestamp(_error_message(text)) from None
    return parsed + timedelta(microseconds=int((fraction or "0").ljust(6, "0")[:6]))


def _error_message(text: str, fraction: str = "") -> str:
    found = re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", text)
    rest, wanted = (text[found.end() :], fraction or "Z07:00") if found else (text, "2006")
    return f'parsing time "{text}" as "2006-01-02T15:04:05{fraction}Z07:00": cannot parse "{rest}" as "{wanted}"'


def parse_time(timestamp: object) -> float:
    """Seconds since 1970; 0 for none, and for what is no timestamp."""
    if not isinstance(timestamp, str) or not timestamp:
        return 0.0
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return 0.0


def format_time(seconds: float) -> str:
    """As Kubernetes writes `metav1.Time`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def format_micro_time(seconds: float) -> str:
    """As Kubernetes writes `metav1.MicroTime`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_since(text: str | None, now: float) -> float | None:
    """Seconds since a timestamp of the API; `now` is in seconds since 1970."""
    at = parse_time(text)
    return now - at if at else None


def age(text: str | None, now: float) -> str:
    """How long ago, as kubectl writes it; `<unknown>` without a valid timestamp."""
    seconds = seconds_since(text, now)
    return "<unknown>" if seconds is None else human_duration(seconds)


def human_duration(duration: float) -> str:
    """A duration in at most two units, coarser if it is longer: 90s, 5m30s, 3h5m, 4d2h, 300d."""
    seconds = int(duration)
    if seconds < 0:
        return "0s" if seconds >= -1 else "<invalid>"
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 180:
        return _two_units(minutes, "m", seconds % 60, "s", minutes < 10)
    if hours < 48:
        return _two_units(hours, "h", minutes % 60, "m", hours < 8)
    if days < 730:
        return _two_units(days, "d", hours % 24, "h", hours < 24 * 8)
    return _two_units(days // 365, "y", days % 365, "d", days < 365 * 8)


def _two_units(large: int, unit: str, small: int, small_unit: str, precise: bool) -> str:
    return f"{large}{unit}{small}{small_unit}" if precise and small else f"{large}{unit}"
