"""Takes the CUDA state of a process off its GPUs and puts it back: the checkpoint calls of `libcuda.so.1` from 570 on.

Used by `node.suspension`. The process is named by its PID and need not know; its device memory moves to its own host
memory, so that it counts in its pod's memory cgroup, and its GPUs are free of it until it is restored.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum

from windlass.node.backend.protocol import DeviceError
from windlass.node.validator.cuda import CudaError

OLDEST_DRIVER = 570


class CudaState(IntEnum):
    """`CUprocessState`."""

    RUNNING = 0
    LOCKED = 1
    """Its CUDA calls wait; what it had submitted has ended."""
    CHECKPOINTED = 2
    FAILED = 3


class _LockArguments(ctypes.Structure):
    _fields_ = (("timeout_ms", ctypes.c_uint), ("reserved", ctypes.c_uint), ("reserved_words", ctypes.c_uint64 * 7))


class CudaCheckpoint:
    """The calls, each on one process. A `CudaError` has the driver's words."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DeviceError(f"libcuda.so.1 can't be loaded: {error}") from None
        if not hasattr(self._library, "cuCheckpointProcessLock"):
            raise DeviceError(f"this driver can't suspend processes: that takes {OLDEST_DRIVER} or newer")
        self._call("cuInit", ctypes.c_uint(0))

    def state(self, pid: int) -> CudaState | None:
        """None for a process that doesn't use CUDA, or has ended."""
        state = ctypes.c_int()
        if self._library.cuCheckpointProcessGetState(ctypes.c_int(pid), ctypes.byref(state)) != 0:
            return None
        return CudaState(state.value)

    def lock(self, pid: int, timeout_ms: int) -> None:
        """Lets no further CUDA call begin, and waits for those under way."""
        arguments = _LockArguments(timeout_ms=timeout_ms)
        self._call("cuCheckpointProcessLock", ctypes.c_int(pid), ctypes.byref(arguments))

    def checkpoint(self, pid: int) -> None:
        """Moves the device memory of a locked process to host memory and lets its GPUs go."""
        self._call("cuCheckpointProcessCheckpoint", ctypes.c_int(pid), None)

    def restore(self, pid: int) -> None:
        """Takes the same GPUs again and moves the memory back; the process is locked afterwards."""
        self._call("cuCheckpointProcessRestore", ctypes.c_int(pid), None)

    def unlock(self, pid: int) -> None:
        self._call("cuCheckpointProcessUnlock", ctypes.c_int(pid), None)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(text))
            raise CudaError(f"{name}: {(text.value or b'unknown error').decode()} ({code})", code)
