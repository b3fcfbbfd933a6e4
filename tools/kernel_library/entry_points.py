"""The functions of the library: each takes one block of integers, and calls a kernel with what the block stands for.

`__main__` compiles what `entry_points` gives it. The block is described by `windlass.kernel_library`, which fills it.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from windlass import jit
from windlass.cluster.node_state import NodeState
from windlass.kernel_library import SLOTS_OF_AN_ARRAY, Interface, results_of
from windlass.placement.kernel_arrays import Cells, MixArrays, NodeMemo, PlacementArrays, ScoringRule

DIMENSIONS: dict[type, tuple[int, ...]] = {
    NodeState: (2,) * 6,
    NodeMemo: (1,) * 3,
    MixArrays: (1,) * 9,
    Cells: (2,) * 7 + (1,),
    PlacementArrays: (1, 1, 1, 1, 2, 2, 2, 3, 3),
}
"""Of the arrays in each tuple. An array that a kernel gets alone has two if it is the one of shapes, else one."""
SCALARS = {int: "int", bool: "int", np.uint64: "uint"}
LETTERS = {"int64": "i", "uint64": "u", "float64": "f"}


class EntryPoint(NamedTuple):
    name: str
    function: Callable[..., Any]
    """For `numba.cfunc`, with `SIGNATURE`."""
    interface: Interface


SIGNATURE = numba.types.void(numba.types.CPointer(numba.types.int64))


def entry_points() -> Iterator[EntryPoint]:
    namespace = jit.numba_namespace(numba)
    tuples = {kind.__name__: kind for kind in (*DIMENSIONS, ScoringRule)}
    readers = {f"array_{letter}": _reader(dtype) for dtype, letter in LETTERS.items()}
    namespace |= {**tuples, **readers, "carray": numba.carray}
    for name in sorted(jit.ENTRY_POINTS):
        hints = typing.get_type_hints(jit.interpreted().__dict__[name])
        results = _results(hints.pop("return"))
        parameters = tuple(_parameter(parameter, hint) for parameter, hint in hints.items())
        interface = Interface(parameters, results)
        exec(_source(name, list(hints.values()), interface), namespace)
        yield EntryPoint(name, namespace[f"entry_{name}"], interface)


def _results(hint: Any) -> str | tuple[str, ...] | None:
    """As `Interface.results` has it."""
    if hint in SCALARS:
        return SCALARS[hint]
    return tuple(SCALARS[part] for part in typing.get_args(hint)) or None


def _parameter(name: str, hint: Any) -> str | tuple[str, ...]:
    """As `Interface.parameters` has it."""
    if hint in SCALARS:
        return SCALARS[hint]
    if hint is ScoringRule:
        return tuple("int" for _ in ScoringRule._fields)
    if hint in DIMENSIONS:
        fields = typing.get_type_hints(hint)
        return tuple(f"{_letter(fields[field])}{n}" for field, n in zip(hint._fields, DIMENSIONS[hint], strict=True))
    return (f"{_letter(hint)}{2 if name == 'shapes' else 1}",)


def _letter(hint: Any) -> str:
    dtype = typing.get_args(typing.get_args(hint)[1])[0]
    return LETTERS[dtype.__name__]


def _source(name: str, hints: list[Any], interface: Interface) -> str:
    """The Python source of an entry point, one line a parameter."""
    parameters, results = interface.parameters, len(results_of(interface))
    lines = [f"def entry_{name}(call):", f"    call = carray(call, ({len(parameters) + results},))"]
    for place, (hint, parameter) in enumerate(zip(hints, parameters, strict=True)):
        lines.append(f"    argument{place} = {_argument(place, hint, parameter, lines)}")
    call = f"{name}({', '.join(f'argument{place}' for place in range(len(parameters)))})"
    found = [f"call[{len(parameters) + number}]" for number in range(results)]
    lines.append(f"    {', '.join(found)} = {call}" if found else f"    {call}")
    return "\n".join(lines)


def _argument(place: int, hint: Any, parameter: str | tuple[str, ...], lines: list[str]) -> str:
    """The expression that reads it; `lines` gets what has to come before."""
    if isinstance(parameter, str):
        if hint is bool:
            return f"call[{place}] != 0"
        return f"np.uint64(call[{place}])" if parameter == "uint" else f"call[{place}]"
    lines.append(f"    block{place} = array_i(call[{place}], ({len(parameter) * SLOTS_OF_AN_ARRAY},))")
    if hint is ScoringRule:
        parts = [f"block{place}[{number}]" for number in range(len(parameter))]
    else:
        parts = [_array(f"block{place}", number * SLOTS_OF_AN_ARRAY, kind) for number, kind in enumerate(parameter)]
    return parts[0] if len(parameter) == 1 else f"{hint.__name__}({', '.join(parts)})"


def _array(block: str, start: int, kind: str) -> str:
    letter, dimensions = kind[0], int(kind[1:])
    shape = "".join(f"{block}[{start + 1 + axis}], " for axis in range(dimensions))
    return f"array_{letter}({block}[{start}], ({shape}))"


def _reader(dtype: str) -> Any:
    """A compiled function that makes an array of an address and a shape."""
    pointer = numba.types.CPointer(getattr(numba.types, dtype))

    @intrinsic  # type: ignore[untyped-decorator]
    def as_pointer(_typing: Any, _address: Any) -> Any:
        def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return pointer(numba.types.int64), generate

    @numba.njit(**jit.NUMBA_OPTIONS, forceinline=True)  # type: ignore[untyped-decorator]
    def read(address: int, shape: tuple[int, ...]) -> Any:
        return numba.carray(as_pointer(address), shape)

    return read
