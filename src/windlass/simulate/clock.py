"""The virtual clock: seconds since the start, and what Kubernetes' timestamps say then.

Used by everything that is played on virtual time. The start is always the same instant, so that the objects of two
runs are equal.
"""

from __future__ import annotations

from windlass.model.times import format_timestamp

VIRTUAL_EPOCH = 1_767_225_600
"""2026-01-01T00:00:00Z."""


def virtual_timestamp(at: int) -> str:
    """The timestamp of a moment `at` seconds after the start (before it, where negative)."""
    return format_timestamp(VIRTUAL_EPOCH + at)
