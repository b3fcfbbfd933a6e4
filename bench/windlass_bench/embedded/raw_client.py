"""A client that costs as little as it can: HTTP/1.1 over TLS with requests that were made before the clock starts.

What it measures should be the server, not the client. `embedded.run` drives many of these at once, against either
server alike.
"""

from __future__ import annotations

import asyncio
import ssl
from types import TracebackType

LINE = b"\r\n"
HEAD = b"\r\n\r\n"


class UnexpectedStatus(Exception):
    """An answer other than the one that was wanted."""


class RawHttpClient:
    """One connection, one request at a time."""

    def __init__(self, host: str, port: int, token: str, context: ssl.SSLContext) -> None:
        self._host, self._port, self._token, self._context = host, port, token, context
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> RawHttpClient:
        self._reader, self._writer = await asyncio.open_connection(
            self._host, self._port, ssl=self._context, server_hostname=self._host, limit=64 << 20
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def encode_request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The bytes of a request, to be made ahead."""
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {self._host}:{self._port}",
            f"Authorization: Bearer {self._token}",
            "Accept: application/json",
            "User-Agent: windlass-bench/1",
        ]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join(lines).encode() + HEAD + body

    async def send_for_status(self, request: bytes) -> int:
        """The status code; the body is read and dropped."""
        self._writer.write(request)
        code, headers = await self._head()
        await self._body(headers)
        return code

    async def fetch(self, request: bytes) -> bytes:
        self._writer.write(request)
        code, headers = await self._head()
        body = await self._body(headers)
        if code >= 300:
            raise UnexpectedStatus(f"{code}: {body[:200].decode(errors='replace')}")
        return body

    async def chunk(self) -> bytes:
        """The next piece of a chunked answer; empty at its end."""
        size = int(await self._reader.readuntil(LINE), 16)
        data = await self._reader.readexactly(size + 2)
        return data[:-2]

    async def _head(self) -> tuple[int, bytes]:
        head = await self._reader.readuntil(HEAD)
        return int(head[9:12]), head.lower()

    async def _body(self, headers: bytes) -> bytes:
        at = headers.find(b"content-length:")
        if at >= 0:
            end = headers.index(LINE, at)
            return await self._reader.readexactly(int(headers[at + 15 : end]))
        if b"transfer-encoding: chunked" not in headers:
            return b""
        pieces = []
        while piece := await self.chunk():
            pieces.append(piece)
        return b"".join(pieces)
