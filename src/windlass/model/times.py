"""Kubernetes' timestamps as seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=4096)
def seconds_of(timestamp: str) -> int:
    """Seconds since 1970 of an RFC 3339 time; 0 for an empty or unreadable one. Without a zone it is UTC."""
    if not timestamp:
        return 0
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return 0
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
