"""CUDA through the driver API alone: `libcuda.so.1` by ctypes and kernels as PTX, so that no toolkit is needed.

Used by the validator's computation and by the measurements in `tools/gpu`. One `Cuda` is one context on one device
(a GPU or a MIG device, chosen by `CUDA_VISIBLE_DEVICES` before the process touches CUDA). Every call is checked; an
error is a `CudaError` with the driver's own words.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import TracebackType

from windlass.node.backend.protocol import DeviceError

Argument = ctypes.c_uint64 | ctypes.c_uint32


DEVICE_UNAVAILABLE = 46
"""In exclusive mode: another process, such as an MPS server, has the device."""


class CudaError(DeviceError):
    """The driver refused a call or a kernel failed."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Cuda:
    """A context on one device; close it, or use it as a context manager."""

    def __init__(self, ordinal: int = 0) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError(f"libcuda.so.1 can't be loaded: {error}") from None
        self._modules: list[ctypes.c_void_p] = []
        self._call("cuInit", ctypes.c_uint(0))
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
        self._context = ctypes.c_void_p()
        self._call("cuCtxCreate_v2", ctypes.byref(self._context), ctypes.c_uint(0), device)
        self._device = device

    def __enter__(self) -> Cuda:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._library.cuCtxDestroy_v2(self._context)

    def name(self) -> str:
        text = ctypes.create_string_buffer(128)
        self._call("cuDeviceGetName", text, ctypes.c_int(len(text)), self._device)
        return text.value.decode()

    def memory(self) -> tuple[int, int]:
        """`(free, total)` in bytes, as this context sees it."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def multiprocessors(self) -> int:
        count = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(count), ctypes.c_int(16), self._device)
        return count.value

    def kernel(self, ptx: str, name: str) -> ctypes.c_void_p:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ptx.encode() + b"\0")
        self._modules.append(module)
        self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def allocate(self, size: int) -> ctypes.c_uint64:
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def free(self, pointer: ctypes.c_uint64) -> None:
        self._call("cuMemFree_v2", pointer)

    def to_device(self, pointer: ctypes.c_uint64, data: bytes) -> None:
        self._call("cuMemcpyHtoD_v2", pointer, data, ctypes.c_size_t(len(data)))

    def from_device(self, pointer: ctypes.c_uint64, size: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        self._call("cuMemcpyDtoH_v2", data, pointer, ctypes.c_size_t(size))
        return data.raw

    def launch(self, kernel: ctypes.c_void_p, blocks: int, threads: int, arguments: Sequence[Argument]) -> None:
        """Starts a kernel; `wait` sees its outcome."""
        pointers = (ctypes.c_void_p * len(arguments))(
            *(ctypes.cast(ctypes.byref(argument), ctypes.c_void_p) for argument in arguments)
        )
        single = ctypes.c_uint(1)
        self._call(
            "cuLaunchKernel",
            kernel,
            ctypes.c_uint(blocks),
            single,
            single,
            ctypes.c_uint(threads),
            single,
            single,
            ctypes.c_uint(0),
            None,
            pointers,
            None,
        )

    def wait(self) -> None:
        self._call("cuCtxSynchronize")

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise CudaError(f"{name}: {self._error_message(code)}", code)

    def _error_message(self, code: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(code, ctypes.byref(text))
        return f"{(text.value or b'unknown error').decode()} ({code})"
