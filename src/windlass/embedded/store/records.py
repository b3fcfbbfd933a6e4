"""The bytes of a state log: records in MessagePack, each in a frame of its own (`storage.frames`).

Records are numbered from 0 in each file, so that one that is missing, doubled or from elsewhere is noticed.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from windlass.storage.frames import damaged_payload_at, encode_frame, frame_at

FORMAT_VERSION = 2
"""Of the state folder. Format 1 was an SQLite file."""


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
    return encode_frame(number, _encode(record))


def read_records(data: bytes) -> Iterator[FoundRecord]:
    """The records from the start, up to the first that is damaged, cut off or out of order."""
    offset = number = 0
    while (found := record_at(data, offset)) is not None and found.number == number:
        yield found
        offset, number = found.end, number + 1


def record_at(data: bytes, offset: int) -> FoundRecord | None:
    """The record that begins here; None unless it is whole and its checksum right."""
    frame = frame_at(data, offset)
    if frame is None:
        return None
    try:
        return FoundRecord(frame.number, _decoder.decode(frame.payload), frame.end)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def damaged_record_at(data: bytes, offset: int) -> Record | None:
    """What a record with a wrong checksum says, to name what it was about."""
    payload = damaged_payload_at(data, offset)
    if payload is None:
        return None
    try:
        return _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
