"""How far the log was acknowledged, remembered apart from it in `state.last`.

`state_log` writes it after every sync of the log, before a write is acknowledged. It is what tells a torn write, which
nobody was told of, from damage. Two slots are written in turn, so that a torn write leaves the other; the log is synced
first, so the older slot is never ahead of it.
"""

from __future__ import annotations

import struct
import zlib

import msgspec

from windlass.embedded.store.records import FORMAT_VERSION
from windlass.storage.disk import Disk

LAST_FILE = "state.last"
SLOT_BYTES = 4096
"""A slot has a page of its own, so that writing one can't tear the other."""
_SLOT = struct.Struct("<8sIQQQQQ")
_MAGIC = b"WLlast\x00\n"
_CHECKSUM = struct.Struct("<I")


class LastCommit(msgspec.Struct, frozen=True):
    serial: int = 0
    generation: int = 0
    """Of the log that counts; 0 before there is one."""
    length: int = 0
    """Bytes of the log that were acknowledged."""
    records: int = 0
    version: int = 0
    """The last version that was acknowledged."""
    format: int = FORMAT_VERSION


def write_last(disk: Disk, commit: LastCommit, file: str = LAST_FILE) -> None:
    disk.write(file, commit.serial % 2 * SLOT_BYTES, _encode(commit))
    disk.sync(file)


def read_last(disk: Disk) -> LastCommit | None:
    """The newest readable slot; None if there is none."""
    try:
        data = disk.read(LAST_FILE)
    except FileNotFoundError:
        return None
    slots = [slot for offset in (0, SLOT_BYTES) if (slot := _decode(data[offset : offset + SLOT_BYTES])) is not None]
    return max(slots, key=lambda slot: slot.serial, default=None)


def _encode(commit: LastCommit) -> bytes:
    fields = (commit.serial, commit.generation, commit.length, commit.records, commit.version)
    body = _SLOT.pack(_MAGIC, commit.format, *fields)
    return body + _CHECKSUM.pack(zlib.crc32(body))


def _decode(data: bytes) -> LastCommit | None:
    if len(data) < _SLOT.size + _CHECKSUM.size:
        return None
    body = data[: _SLOT.size]
    magic, format_version, serial, generation, length, records, version = _SLOT.unpack(body)
    if magic != _MAGIC or _CHECKSUM.unpack_from(data, _SLOT.size)[0] != zlib.crc32(body):
        return None
    return LastCommit(serial, generation, length, records, version, format_version)
