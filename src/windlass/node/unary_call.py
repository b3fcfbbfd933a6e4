"""One gRPC call over a Unix socket, without gRPC's library: a request, an answer, a deadline.

The process beside the plugin asks the kubelet who holds which device, and nothing else over gRPC; the library would be
fifteen megabytes of it on every node. This is as much of HTTP/2 (RFC 9113) as that takes: one stream on a connection of
its own, a window as wide as the answer may be. Headers of the answer are not decoded: a call that failed is one that
ends without a message.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from windlass.node.backend.protocol import DeviceError

MOST_BYTES = 64 << 20
"""A node with many pods answers with more than gRPC's default of 4 MiB."""
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7, 0x8
_END_STREAM, _ACK, _END_HEADERS, _PADDED = 0x1, 0x1, 0x4, 0x8
_INITIAL_WINDOW_SIZE = 0x4
_WINDOW = (1 << 31) - 1
_FIRST_WINDOW = 65535
_LARGEST_FRAME = 1 << 14
"""We ask for no larger ones, so none may come."""
_POST, _HTTP, _PATH, _AUTHORITY, _NEW_NAME = b"\x83", b"\x86", b"\x04", b"\x01", b"\x00"
"""HPACK: two whole header fields of the static table, two names of it, and a name that follows."""


def call_unary(path: Path, method: str, request: bytes, seconds: float) -> bytes:
    """The answer's message; a `DeviceError` where there is none within the time."""
    end = time.monotonic() + seconds
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
            wire.settimeout(seconds)
            wire.connect(str(path))
            wire.sendall(_opening(method, request))
            return _message(b"".join(_answer(wire, end)))
    except (OSError, EOFError, struct.error) as error:
        raise DeviceError(f"{path} didn't answer: {error or type(error).__name__}") from None


def _opening(method: str, request: bytes) -> bytes:
    """All that we have to say, in one go: the answer's window needs no later word."""
    headers = b"".join(
        (
            *(_POST, _HTTP, _PATH, _text(method), _AUTHORITY, _text("localhost")),
            *(_NEW_NAME, _text("content-type"), _text("application/grpc")),
            *(_NEW_NAME, _text("te"), _text("trailers")),
        )
    )
    message = struct.pack(">BI", 0, len(request)) + request
    return b"".join(
        (
            _PREFACE,
            _frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, _WINDOW)),
            _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", _WINDOW - _FIRST_WINDOW)),
            _frame(_HEADERS, _END_HEADERS, 1, headers),
            _frame(_DATA, _END_STREAM, 1, message),
        )
    )


def _text(word: str) -> bytes:
    data = word.encode("ascii")
    assert len(data) < 127, "longer ones have a longer length"
    return bytes([len(data)]) + data


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _answer(wire: socket.socket, end: float) -> Iterator[bytes]:
    """What the stream carries, until it ends."""
    received = 0
    while True:
        kind, flags, stream, payload = _read_frame(wire, end)
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            wire.sendall(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind == _GOAWAY or (kind == _RST_STREAM and stream == 1):
            raise EOFError("the call was refused")
        elif kind == _DATA and stream == 1:
            data = _without_padding(payload) if flags & _PADDED else payload
            received += len(data)
            if received > MOST_BYTES:
                raise EOFError(f"the answer is larger than {MOST_BYTES >> 20} MiB")
            yield data
        if kind in (_DATA, _HEADERS) and stream == 1 and flags & _END_STREAM:
            return


def _read_frame(wire: socket.socket, end: float) -> tuple[int, int, int, bytes]:
    head = _read(wire, 9, end)
    length = int.from_bytes(head[:3], "big")
    if length > _LARGEST_FRAME:
        raise EOFError("not HTTP/2")
    kind, flags, stream = struct.unpack(">BBI", head[3:])
    return kind, flags, stream & _WINDOW, _read(wire, length, end)


def _read(wire: socket.socket, length: int, end: float) -> bytes:
    found = bytearray()
    while len(found) < length:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        wire.settimeout(left)
        data = wire.recv(length - len(found))
        if not data:
            raise EOFError("the connection ended")
        found += data
    return bytes(found)


def _without_padding(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise EOFError("not HTTP/2")
    return payload[1 : len(payload) - payload[0]]


def _message(body: bytes) -> bytes:
    if len(body) < 5:
        raise EOFError("the call failed")
    is_packed, length = struct.unpack(">BI", body[:5])
    if is_packed or len(body) != 5 + length:
        raise EOFError("the answer is not one plain message")
    return body[5:]
