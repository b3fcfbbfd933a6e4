"""How memory is asked for and given back, where that is glibc's work.

`windlass up` calls it before its threads start. By itself glibc keeps a heap for each thread and holds on to what was
freed: with thousands of nodes that is more than a hundred MiB that nobody uses.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Of `mallopt(3)`."""
MMAP_THRESHOLD_BYTES = 256 << 10


def limit_malloc() -> None:
    """One heap for all threads; large blocks go back to the system when they are freed."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # another C library, with ways of its own
    mallopt(_ARENA_MAX, 1)
    mallopt(_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
    mallopt(_TRIM_THRESHOLD, MMAP_THRESHOLD_BYTES)
