"""The bytes of a state log: records with a number and a checksum each.

    magic 4 │ length 4 │ number 8 │ crc32 4 │ payload (MessagePack)

The checksum covers length, number and payload. Records are numbered from 0 in each file, so that one that is missing,
doubled or from elsewhere is noticed. The magic lets `state_repair` find the next record after a damaged one.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import msgspec

FORMAT_VERSION = 2
"""Of the state folder. Format 1 was an SQLite file."""
MAGIC = b"\xabWL\n"
_HEAD = struct.Struct("<4sIQI")
_COVERED = struct.Struct("<IQ")


class LogHeader(msgspec.Struct, array_like=True, tag="log", frozen=True):
    """The first record of a log. `version`: the store's when the file was begun."""

    format: int
    generation: int
    version: int


class ObjectRecord(msgspec.Struct, array_like=True, tag="object", frozen=True):
    """An object as of a version; without bytes, its deletion. `more`: the same write has further records."""

    resource: str
    namespace: str
    name: str
    version: int
    raw: bytes
    more: bool = False


Record = LogHeader | ObjectRecord
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


class FoundRecord(msgspec.Struct, frozen=True):
    """A record with its number and where it ends."""

    number: int
    record: Record
    end: int


def encode_record(number: int, record: Record) -> bytes:
    payload = _encode(record)
    covered = _COVERED.pack(len(payload), number)
    return _HEAD.pack(MAGIC, len(payload), number, zlib.crc32(payload, zlib.crc32(covered))) + payload


def read_records(data: bytes) -> Iterator[FoundRecord]:
    """The records from the start, up to the first that is damaged, cut off or out of order."""
    offset = number = 0
    while (found := record_at(data, offset)) is not None and found.number == number:
        yield found
        offset, number = found.end, number + 1


def record_at(data: bytes, offset: int) -> FoundRecord | None:
    """The record that begins here; None unless it is whole and its checksum right."""
    if len(data) - offset < _HEAD.size:
        return None
    magic, length, number, checksum = _HEAD.unpack_from(data, offset)
    end = offset + _HEAD.size + length
    if magic != MAGIC or end > len(data):
        return None
    payload = memoryview(data)[offset + _HEAD.size : end]
    if zlib.crc32(payload, zlib.crc32(_COVERED.pack(length, number))) != checksum:
        return None
    try:
        return FoundRecord(number, _decoder.decode(payload), end)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def damaged_record_at(data: bytes, offset: int) -> Record | None:
    """What a record with a wrong checksum says, to name what it was about."""
    if len(data) - offset < _HEAD.size:
        return None
    length = _HEAD.unpack_from(data, offset)[1]
    try:
        return _decoder.decode(memoryview(data)[offset + _HEAD.size : offset + _HEAD.size + length])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
