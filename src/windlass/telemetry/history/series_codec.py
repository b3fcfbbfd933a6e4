"""Whole numbers by slot of a day, as few bytes: runs of slots, differences, bytes shuffled, zlib.

`day_file` stores a block per series and day. GPU metrics change little from sample to sample, so that most bytes of the
differences are zero once those of the same significance stand together: about half a byte a sample.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec

LEVEL = 6
_WIDTHS = ("b", "h", "i", "q")
_LIMITS = {code: 1 << (8 * array(code).itemsize - 1) for code in _WIDTHS}
MAX_VALUE = (1 << 62) - 1
"""Differences of two values have to fit into 64 bits."""


class Block(msgspec.Struct, array_like=True, frozen=True):
    """The values of one series on one day."""

    runs: tuple[tuple[int, int], ...]
    """(first slot, number of slots) that have a value."""
    code: str
    """Width of the differences."""
    data: bytes


def encode_values(values: Mapping[int, int]) -> Block:
    """`values`: slot of the day → value."""
    slots = sorted(values)
    differences = _differences([max(-MAX_VALUE, min(values[slot], MAX_VALUE)) for slot in slots])
    largest = max(map(abs, differences), default=0)
    code = next(code for code in _WIDTHS if largest < _LIMITS[code])
    packed = array(code, differences)
    if sys.byteorder == "big":
        packed.byteswap()
    raw, width = packed.tobytes(), packed.itemsize
    shuffled = b"".join(raw[place::width] for place in range(width))
    return Block(tuple(_runs(slots)), code, zlib.compress(shuffled, LEVEL))


def decode_values(block: Block) -> tuple[list[int], list[int]]:
    """(slots, values). Raises `ValueError` if the block contradicts itself."""
    if block.code not in _WIDTHS:
        raise ValueError(f"unknown width {block.code!r}")
    try:
        shuffled = zlib.decompress(block.data)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    width = array(block.code).itemsize
    count = sum(length for _, length in block.runs)
    if len(shuffled) != count * width:
        raise ValueError(f"{len(shuffled)} bytes for {count} values")
    raw = bytearray(len(shuffled))
    for place in range(width):
        raw[place::width] = shuffled[place * count : (place + 1) * count]
    packed = array(block.code)
    packed.frombytes(bytes(raw))
    if sys.byteorder == "big":
        packed.byteswap()
    slots = [slot for first, length in block.runs for slot in range(first, first + length)]
    return slots, list(accumulate(packed))


def _differences(values: Sequence[int]) -> list[int]:
    return [value - before for before, value in zip((0, *values[:-1]), values, strict=True)] if values else []


def _runs(slots: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    first = previous = None
    for slot in slots:
        if previous is None or slot != previous + 1:
            if first is not None and previous is not None:
                runs.append((first, previous - first + 1))
            first = slot
        previous = slot
    if first is not None and previous is not None:
        runs.append((first, previous - first + 1))
    return runs
