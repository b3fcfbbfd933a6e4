"""Loads the placement kernels that were compiled ahead of time, without numba and LLVM.

`windlass.jit` asks here first. `tools/kernel_library` builds the library; each of its functions takes the address of
one block of 64-bit integers: a slot for each argument, then a slot for each result. An integer stands in its slot. For
a tuple, or an array alone, the slot has the address of another block, with SLOTS_OF_AN_ARRAY slots for each array
(address, shape), or one for each integer.

A call costs a few microseconds, since the blocks of tuples are kept until another tuple takes their place.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

FOLDER = Path(__file__).parent / "placement" / "kernels" / "native"
SLOTS_OF_AN_ARRAY = 4
"""Its address, and its shape of up to three dimensions."""
PROCESSORS = {"x86_64": ("x86-64-v2", "x86-64-v3"), "aarch64": ("generic",)}
"""By architecture the kinds of processors that a library has code for: the least that it must be able to do, and what
nearly all can that are in use, for which loops are up to twice as fast."""
X86_64_V3 = frozenset(("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"))
"""What /proc/cpuinfo says of a processor of that kind beyond the kind before."""
DTYPES = {"i": np.dtype(np.int64), "u": np.dtype(np.uint64), "f": np.dtype(np.float64)}


class Interface(msgspec.Struct, frozen=True):
    """What a function of the library takes, as it stands in the JSON file beside the library."""

    parameters: tuple[str | tuple[str, ...], ...]
    """`int` or `uint`; or for each member of a tuple: `int`, or type and dimensions of an array, such as `i2`."""
    results: str | tuple[str, ...] | None
    """One, or those of a tuple: `int` or `uint`."""


Converter = Callable[[Any], tuple[Any, Any]]
"""Gives the value of the slot, and what has to live as long as the call."""


def file_name(digest: str, machine: str) -> str:
    return f"{digest}-{machine}.so"


def symbol(name: str, processor: str) -> str:
    return f"windlass_{processor.replace('-', '_')}_{name}"


def processor_of(machine: str, cpuinfo: str) -> str:
    """The best kind that the library has code for and that this processor is, by the text of /proc/cpuinfo."""
    kinds = PROCESSORS[machine]
    flags = next((line.partition(":")[2].split() for line in cpuinfo.splitlines() if line.startswith("flags")), [])
    return kinds[-1] if set(flags) >= X86_64_V3 else kinds[0]


def load(digest: str, processor: str | None = None) -> dict[str, Callable[..., Any]] | None:
    """The functions of the library for these sources and this machine; None if there is none."""
    path = FOLDER / file_name(digest, platform.machine())
    if sys.platform != "linux" or platform.machine() not in PROCESSORS or not path.exists():
        return None
    try:
        library, described = ctypes.CDLL(str(path)), path.with_suffix(".json").read_bytes()
    except OSError:  # another C library, as on Alpine; or only a part of it was copied
        return None
    interfaces = msgspec.json.decode(described, type=dict[str, Interface])
    processor = processor or processor_of(platform.machine(), Path("/proc/cpuinfo").read_text())
    return {name: _function(library, symbol(name, processor), interface) for name, interface in interfaces.items()}


def _function(library: ctypes.CDLL, name: str, interface: Interface) -> Callable[..., Any]:
    native = library[name]
    native.argtypes, native.restype = (ctypes.c_void_p,), None
    converters = [_converter(parameter) for parameter in interface.parameters]
    results = results_of(interface)
    count, block_type = len(converters), ctypes.c_int64 * (len(converters) + len(results))

    def call(*arguments: Any) -> Any:
        slots = [convert(argument) for convert, argument in zip(converters, arguments, strict=True)]
        block = block_type(*[value for value, _ in slots])
        native(ctypes.addressof(block))
        found = [value % 2**64 if kind == "uint" else value for kind, value in zip(results, block[count:], strict=True)]
        return found[0] if isinstance(interface.results, str) else tuple(found) or None

    return call


def results_of(interface: Interface) -> tuple[str, ...]:
    return (interface.results,) if isinstance(interface.results, str) else interface.results or ()


@cache
def _converter(parameter: str | tuple[str, ...]) -> Converter:
    """The same for all functions that take such a parameter, so that they share what is kept."""
    if isinstance(parameter, str):
        return lambda value: (int(value), None)  # `c_int64` wraps what a `uint` has beyond it
    return _Blocks(parameter).of


class _Blocks:
    """The block of the last tuple (or array) that was given."""

    def __init__(self, members: tuple[str, ...]) -> None:
        self._members = members
        self._type = ctypes.c_int64 * (SLOTS_OF_AN_ARRAY * len(members))
        self._last: tuple[Any, tuple[int, Any]] = (None, (0, None))

    def of(self, given: Any) -> tuple[int, Any]:
        # Read once: another thread may put another one there meanwhile.
        kept, found = self._last
        if kept is not given:
            block = self._made(given)
            found = (ctypes.addressof(block), block)
            self._last = (given, found)
        return found

    def _made(self, given: Any) -> Any:
        if self._members[0] == "int":
            return self._type(*map(int, given))  # the slots behind them stay empty
        arrays = (given,) if len(self._members) == 1 else given
        slots: list[int] = []
        for array, member in zip(arrays, self._members, strict=True):
            _check(array, member)
            slots += (array.ctypes.data, *array.shape, *(0,) * (SLOTS_OF_AN_ARRAY - 1 - array.ndim))
        return self._type(*slots)


def _check(array: np.ndarray[Any, Any], member: str) -> None:
    """Compiled code trusts what it gets: it would read beyond an array of another kind, and write into what others
    read."""
    flags = array.flags
    if array.dtype != DTYPES[member[0]] or array.ndim != int(member[1:]) or not flags.carray:
        form = "" if flags.c_contiguous else ", not contiguous"
        form += ("" if flags.aligned else ", not aligned") + ("" if flags.writeable else ", read-only")
        raise TypeError(f"a kernel that takes {member} was given {array.dtype} with {array.ndim} dimensions{form}")
