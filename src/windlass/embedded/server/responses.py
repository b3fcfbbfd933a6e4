"""HTTP responses, compressed if the client asks and it is worthwhile; errors as Status objects. Used by all
handlers.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping, Sequence

import msgspec
from aiohttp import web

from windlass.embedded.api.errors import ApiError
from windlass.embedded.server.negotiation import (
    DEFAULT_FORMAT,
    ResponseFormat,
    encode_document,
    negotiate_format,
)
from windlass.model.unstructured import Unstructured

MIN_GZIP_BYTES = 128 << 10
"""As in Kubernetes' API server: below this, compression costs more than it saves."""
LARGE_BYTES, PIECE_BYTES = 1 << 20, 256 << 10
MAX_UNREAD_BYTES = 512 << 20
SLOW_READER_SECONDS = 60.0
"""For a piece of a large response."""
_GZIP_WBITS = 16 + zlib.MAX_WBITS


async def respond(
    request: web.BaseRequest,
    body: bytes,
    media_type: str = "application/json",
    status: int = 200,
    warnings: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    headers = {"Content-Type": media_type, "Cache-Control": "no-cache, private", **(headers or {})}
    if len(body) > MIN_GZIP_BYTES and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = await asyncio.to_thread(_gzip, body)
        headers["Content-Encoding"] = "gzip"
        headers["Vary"] = ", ".join(filter(None, (headers.get("Vary"), "Accept-Encoding")))
    is_large = len(body) > LARGE_BYTES and request.method != "HEAD"
    response = (
        web.StreamResponse(status=status, headers=headers)
        if is_large
        else web.Response(body=body, status=status, headers=headers)
    )
    for warning in warnings:
        response.headers.add("Warning", f"299 - {_quoted(warning)}")
    if is_large:
        await _send_in_pieces(request, response, body)
    return response


class _Unread:
    """Bytes of large responses that clients have not read yet, of all servers in this process."""

    total_bytes = 0


async def _send_in_pieces(request: web.BaseRequest, response: web.StreamResponse, body: bytes) -> None:
    """So that a slow reader costs the body, and no copies of it; one that doesn't read at all is disconnected."""
    if _Unread.total_bytes and _Unread.total_bytes + len(body) > MAX_UNREAD_BYTES:
        raise ApiError.too_many_requests("too many large responses wait to be read by their clients", retry=1)
    _Unread.total_bytes += len(body)
    try:
        response.content_length = len(body)
        await response.prepare(request)
        view = memoryview(body)
        for start in range(0, len(body), PIECE_BYTES):
            async with asyncio.timeout(SLOW_READER_SECONDS):
                await response.write(view[start : start + PIECE_BYTES])
        await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client doesn't read") from None
    finally:
        _Unread.total_bytes -= len(body)


async def respond_with_object(
    request: web.BaseRequest, tree: Unstructured, status: int = 200, warnings: Sequence[str] = ()
) -> web.StreamResponse:
    """A document as JSON or YAML, as the client asks."""
    form = negotiate_format(request.headers.get("Accept", ""))
    return await respond(request, encode_document(tree, form), form.media_type, status, warnings)


def error_response(request: web.BaseRequest, error: ApiError) -> web.Response:
    """A Status in the client's format; JSON if it accepts none of ours."""
    form: ResponseFormat
    try:
        form = negotiate_format(request.headers.get("Accept", ""))
    except ApiError:
        form = DEFAULT_FORMAT
    headers = {"Content-Type": form.media_type, "Cache-Control": "no-cache, private"}
    retry_after = (error.details or {}).get("retryAfterSeconds")
    if retry_after:
        headers["Retry-After"] = str(retry_after)
    if error.code == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="windlass"'
    response = web.Response(body=encode_document(error.status(), form), status=error.code, headers=headers)
    if error.code == 401:
        response.force_close()
    return response


def method_not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, {})


def watch_error_event(error: ApiError) -> bytes:
    """The last line of a watch that can't continue."""
    return b'{"type":"ERROR","object":%b}\n' % msgspec.json.encode(error.status())


def _gzip(body: bytes) -> bytes:
    compressor = zlib.compressobj(1, zlib.DEFLATED, _GZIP_WBITS)
    return compressor.compress(body) + compressor.flush()


def _quoted(text: str) -> str:
    plain = "".join(char if char.isprintable() and char.isascii() else " " for char in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
