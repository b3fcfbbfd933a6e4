"""Kubernetes' timestamps as seconds."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache


@lru_cache(maxsize=4096)
def seconds_of(timestamp: str) -> int:
    """Seconds since 1970 of an RFC 3339 time; 0 for an empty or unreadable one."""
    if not timestamp:
        return 0
    try:
        return int(datetime.fromisoformat(timestamp).timestamp())
    except ValueError:
        return 0
