"""Answers: bytes with a status code, compressed where a client asks and it is worth it; refusals as Status objects."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence

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
"""As the API server has it: below this, compression costs more than it saves."""
_GZIP = 16 + zlib.MAX_WBITS


async def respond(
    request: web.BaseRequest,
    body: bytes,
    media_type: str = "application/json",
    status: int = 200,
    warnings: Sequence[str] = (),
) -> web.Response:
    headers = {"Content-Type": media_type, "Cache-Control": "no-cache, private"}
    if len(body) > MIN_GZIP_BYTES and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = await asyncio.to_thread(_compressed, body)
        headers["Content-Encoding"] = "gzip"
        headers["Vary"] = "Accept-Encoding"
    response = web.Response(body=body, status=status, headers=headers)
    for warning in warnings:
        response.headers.add("Warning", f"299 - {_quoted(warning)}")
    return response


async def respond_with_object(
    request: web.BaseRequest, tree: Unstructured, status: int = 200, warnings: Sequence[str] = ()
) -> web.Response:
    """A document in the form that the client asks for: JSON, or YAML."""
    form = negotiate_format(request.headers.get("Accept", ""))
    return await respond(request, encode_document(tree, form), form.media_type, status, warnings)


def error_response(request: web.BaseRequest, error: ApiError) -> web.Response:
    """A Status, in whatever form the client reads; JSON where it reads none of ours."""
    form: ResponseFormat
    try:
        form = negotiate_format(request.headers.get("Accept", ""))
    except ApiError:
        form = DEFAULT_FORMAT
    headers = {"Content-Type": form.media_type, "Cache-Control": "no-cache, private"}
    retry = (error.details or {}).get("retryAfterSeconds")
    if retry:
        headers["Retry-After"] = str(retry)
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
    """The last line of a watch that can't go on."""
    return b'{"type":"ERROR","object":%b}\n' % msgspec.json.encode(error.status())


def _compressed(body: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    return packer.compress(body) + packer.flush()


def _quoted(text: str) -> str:
    plain = "".join(each if each.isprintable() and each.isascii() else " " for each in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
