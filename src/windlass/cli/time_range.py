"""`--since`, for commands that look back: `90m`, `24h`, `30d`, or a time."""

from __future__ import annotations

from windlass.model.errors import InputError
from windlass.model.times import parse_duration, parse_timestamp

DAY_SECONDS = 86_400


def parse_since(text: str, now: int) -> int:
    """Seconds since 1970. Raises an `InputError` that names the option."""
    at = parse_timestamp(text)
    if at:
        return at
    try:
        if text.endswith("d"):
            return now - parse_duration(text.removesuffix("d") + "h") * 24
        return now - parse_duration(text)
    except InputError:
        raise InputError(
            f"'{text}' is neither a duration such as 24h or 30d nor a time such as 2026-01-31T12:00:00Z",
            path="--since",
        ) from None
