"""One unary gRPC call over a Unix socket, without the gRPC library.

The sidecar asks the kubelet's PodResources which pod holds which device, and uses gRPC for nothing else; the
library would cost 15 MB on every node. This implements the needed part of HTTP/2 (RFC 9113): one stream per
connection, with a window as large as the answer may be. Response headers are not decoded: a failed call is one that
ends without a message.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from windlass.node.backend.protocol import DeviceError

MAX_BYTES = 64 << 20
"""A node with many pods answers with more than gRPC's default of 4 MiB."""
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7, 0x8
_END_STREAM, _ACK, _END_HEADERS, _PADDED = 0x1, 0x1, 0x4, 0x8
_INITIAL_WINDOW_SIZE = 0x4
_WINDOW = (1 << 31) - 1
_FIRST_WINDOW = 65535
_MAX_FRAME = 1 << 14
"""The HTTP/2 default; we don't announce a larger one, so none may arrive."""
_POST, _HTTP, _PATH, _AUTHORITY, _NEW_NAME = b"\x83", b"\x86", b"\x04", b"\x01", b"\x00"
"""HPACK: two indexed fields and two names of the static table, and a literal name."""


def call_unary(path: Path, method: str, request: bytes, seconds: float) -> bytes:
    """The answer's message; a `DeviceError` if there is none within the time."""
    deadline = time.monotonic() + seconds
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(seconds)
            connection.connect(str(path))
            connection.sendall(_encode_request(method, request))
            return _decode_message(b"".join(_receive_data(connection, deadline)))
    except (OSError, EOFError, struct.error) as error:
        raise DeviceError(f"{path} didn't answer: {error or type(error).__name__}") from None


def _encode_request(method: str, request: bytes) -> bytes:
    """All frames that we send, at once: the window is large enough that no update is needed later."""
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


def _text(text: str) -> bytes:
    data = text.encode("ascii")
    assert len(data) < 127, "longer ones have a longer length"
    return bytes([len(data)]) + data


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _receive_data(connection: socket.socket, deadline: float) -> Iterator[bytes]:
    """The stream's data until it ends."""
    received = 0
    while True:
        kind, flags, stream, payload = _read_frame(connection, deadline)
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            connection.sendall(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind == _GOAWAY or (kind == _RST_STREAM and stream == 1):
            raise EOFError("the call was refused")
        elif kind == _DATA and stream == 1:
            data = _without_padding(payload) if flags & _PADDED else payload
            received += len(data)
            if received > MAX_BYTES:
                raise EOFError(f"the answer is larger than {MAX_BYTES >> 20} MiB")
            yield data
        if kind in (_DATA, _HEADERS) and stream == 1 and flags & _END_STREAM:
            return


def _read_frame(connection: socket.socket, deadline: float) -> tuple[int, int, int, bytes]:
    header = _read(connection, 9, deadline)
    length = int.from_bytes(header[:3], "big")
    if length > _MAX_FRAME:
        raise EOFError("not HTTP/2")
    kind, flags, stream = struct.unpack(">BBI", header[3:])
    return kind, flags, stream & _WINDOW, _read(connection, length, deadline)


def _read(connection: socket.socket, length: int, deadline: float) -> bytes:
    received = bytearray()
    while len(received) < length:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(remaining)
        data = connection.recv(length - len(received))
        if not data:
            raise EOFError("the connection ended")
        received += data
    return bytes(received)


def _without_padding(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise EOFError("not HTTP/2")
    return payload[1 : len(payload) - payload[0]]


def _decode_message(body: bytes) -> bytes:
    if len(body) < 5:
        raise EOFError("the call failed")
    is_packed, length = struct.unpack(">BI", body[:5])
    if is_packed or len(body) != 5 + length:
        raise EOFError("the answer is not one plain message")
    return body[5:]
