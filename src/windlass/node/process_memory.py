"""Memory given back once a process of the agent has come up; called by both of them and by `nvml_slim`.

Loading leaves holes behind that nothing fills again: two megabytes of each process, on every node.
"""

from __future__ import annotations

import ctypes
import gc


def freeze_and_trim_memory() -> None:
    """What was loaded so far stays for good: looking through it again would hold up an answer for milliseconds."""
    gc.collect()
    gc.freeze()
    trim_heap()


def trim_heap() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # only glibc has it
        trim(0)
