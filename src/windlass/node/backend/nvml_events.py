"""Waits for the driver's faults (Xids) through an NVML event set. Used by `nvml.NvmlBackend`.

A set that holds a lost GPU fails at every wait, also for the other GPUs; so it is made again after an error, and
whenever other GPUs answer than before. The code that closes NVML frees it first.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pynvml as nv

from windlass.node.backend.nvml_calls import call_or_raise, try_call
from windlass.node.backend.protocol import DeviceError

_WANTED = nv.nvmlEventTypeXidCriticalError | nv.nvmlEventTypeDoubleBitEccError


class FaultEvents:
    def __init__(self) -> None:
        self._set: Any = None
        self._is_stale = False
        self._is_closed = False
        self._lock = threading.Lock()
        """Held while the driver is waited for: NVML must not be closed meanwhile."""

    def wait(self, seconds: float) -> Any:
        """The next event of a fault; None if there was none in time."""
        with self._lock:
            if not self._is_closed:
                return self._wait(seconds)
        time.sleep(seconds)
        return None

    def _wait(self, seconds: float) -> Any:
        if self._is_stale:
            self._free()
        if self._set is None:
            self._set = call_or_raise("faults can't be waited for", _register)
        try:
            event = nv.nvmlEventSetWait_v2(self._set, int(seconds * 1000))
        except nv.NVMLError_Timeout:
            return None
        except nv.NVMLError as error:
            self._free()
            raise DeviceError(f"waiting for faults failed: {error}") from None
        return event if event.eventType == nv.nvmlEventTypeXidCriticalError else None

    def renew(self) -> None:
        """The GPUs are others than before: the next wait makes a new set."""
        self._is_stale = True

    def open(self) -> None:
        self._is_closed = False

    def close(self) -> None:
        """Returns when nothing waits any more."""
        self._is_closed = True
        with self._lock:
            self._free()

    def _free(self) -> None:
        if self._set is not None:
            try_call(nv.nvmlEventSetFree, self._set)
        self._set, self._is_stale = None, False


def _register() -> Any:
    events = nv.nvmlEventSetCreate()
    for index in range(nv.nvmlDeviceGetCount()):
        handle = try_call(nv.nvmlDeviceGetHandleByIndex, index)
        supported = try_call(nv.nvmlDeviceGetSupportedEventTypes, handle) if handle is not None else 0
        wanted = (supported or 0) & _WANTED
        if wanted:
            try_call(nv.nvmlDeviceRegisterEvents, handle, wanted, events)
    return events
