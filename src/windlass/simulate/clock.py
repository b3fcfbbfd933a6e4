"""The virtual clock: converts seconds since the start to Kubernetes timestamps.

Used by everything that runs on virtual time. The start is a fixed instant, so that the objects of two runs are equal.
"""

from __future__ import annotations

from windlass.model.times import format_timestamp

VIRTUAL_EPOCH = 1_767_225_600
"""2026-01-01T00:00:00Z."""


def virtual_timestamp(at: int) -> str:
    """The timestamp `at` seconds after the start; before it if negative."""
    return format_timestamp(VIRTUAL_EPOCH + at)
