"""Frames of a file: bytes with a length, a number and a checksum.

    magic 4 │ length 4 │ number 8 │ crc32 4 │ payload

The checksum covers length, number and payload. The number lets a reader notice a frame that is missing, doubled or from
elsewhere; the magic lets it find the next frame after a damaged one. `embedded.store.records` and
`telemetry.history` put MessagePack into them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

MAGIC = b"\xabWL\n"
_HEAD = struct.Struct("<4sIQI")
_COVERED = struct.Struct("<IQ")
HEAD_BYTES = _HEAD.size


class Frame(NamedTuple):
    number: int
    payload: memoryview
    end: int
    """Where the next frame begins."""


def encode_frame(number: int, payload: bytes) -> bytes:
    covered = _COVERED.pack(len(payload), number)
    return _HEAD.pack(MAGIC, len(payload), number, zlib.crc32(payload, zlib.crc32(covered))) + payload


def frame_at(data: bytes | memoryview, offset: int) -> Frame | None:
    """The frame that begins here; None unless it is whole and its checksum right."""
    if len(data) - offset < _HEAD.size:
        return None
    magic, length, number, checksum = _HEAD.unpack_from(data, offset)
    end = offset + _HEAD.size + length
    if magic != MAGIC or end > len(data):
        return None
    payload = memoryview(data)[offset + _HEAD.size : end]
    if zlib.crc32(payload, zlib.crc32(_COVERED.pack(length, number))) != checksum:
        return None
    return Frame(number, payload, end)


def damaged_payload_at(data: bytes, offset: int) -> memoryview | None:
    """What a frame with a wrong checksum has, to name what it was about."""
    if len(data) - offset < _HEAD.size:
        return None
    length = _HEAD.unpack_from(data, offset)[1]
    return memoryview(data)[offset + _HEAD.size : offset + _HEAD.size + length]


def intact_frames(data: bytes) -> Iterator[tuple[int, Frame]]:
    """(offset, frame) of everything that can be read, also behind damage."""
    offset = 0
    while 0 <= offset < len(data):
        found = frame_at(data, offset)
        if found is None:
            offset = data.find(MAGIC, offset + 1)
            continue
        yield offset, found
        offset = found.end
