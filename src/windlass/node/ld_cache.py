"""Reads the loader's cache, `/etc/ld.so.cache`, of any root: which libraries a machine knows, and where they lie.

`driver_files` asks it for the driver's libraries, since drivers are installed into folders that no list can hold. The
format is glibc's: an optional old part, then a table of names and paths, whose offsets count from its own header.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

OLD_MAGIC, NEW_MAGIC = b"ld.so-1.7.0\0", b"glibc-ld.so.cache1.1"
_OLD_HEADER, _OLD_ENTRY = struct.Struct("<12sI"), struct.Struct("<iII")
_NEW_HEADER, _NEW_ENTRY = struct.Struct("<20sIIB3xIIII"), struct.Struct("<iIIIQ")
_ABI_MASK, _ABIS_64 = 0xFF00, (0x0300, 0x0A00)
"""Flags of an entry: the ABI, of which x86-64 and arm64 count; 32-bit libraries of the same name are left out."""


def read_ld_cache(file: Path) -> tuple[tuple[str, str], ...]:
    """`(name, path)` of every 64-bit library, in the loader's order; empty if there is no cache or it can't be read."""
    try:
        return tuple(_entries(file.read_bytes()))
    except (OSError, struct.error, ValueError):
        return ()


def _entries(data: bytes) -> Iterator[tuple[str, str]]:
    start = 0
    if data.startswith(OLD_MAGIC):
        _, count = _OLD_HEADER.unpack_from(data)
        start = _OLD_HEADER.size + count * _OLD_ENTRY.size
        start += -start % 8
    magic, count, *_ = _NEW_HEADER.unpack_from(data, start)
    if magic != NEW_MAGIC:
        return
    for at in range(count):
        flags, name, path, _, _ = _NEW_ENTRY.unpack_from(data, start + _NEW_HEADER.size + at * _NEW_ENTRY.size)
        if flags & _ABI_MASK in _ABIS_64:
            yield _text(data, start + name), _text(data, start + path)


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode(errors="replace")
