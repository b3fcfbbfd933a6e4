"""Returns memory to the system once a process of the agent has started; called by both processes and `nvml_prune`.

Imports leave holes in the heap that are never filled again: two megabytes per process, on every node.
"""

from __future__ import annotations

import ctypes
import gc


def freeze_and_trim_memory() -> None:
    """Exempts the objects so far from garbage collection, which would pause the process for milliseconds."""
    gc.collect()
    gc.freeze()
    trim_heap()


def trim_heap() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc only
        trim(0)
