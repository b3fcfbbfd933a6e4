"""Tunes glibc's malloc so that freed memory is returned.

`windlass up` calls it before its threads start. By default glibc keeps one heap per thread and holds freed memory:
with thousands of nodes that wastes more than 100 MiB.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of `mallopt(3)`."""
MMAP_THRESHOLD_BYTES = 256 << 10


def limit_malloc() -> None:
    """One heap for all threads; freed large blocks go back to the system."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # not glibc
    mallopt(_ARENA_MAX, 1)
    mallopt(_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
    mallopt(_TRIM_THRESHOLD, MMAP_THRESHOLD_BYTES)
