"""Request bodies: decodes JSON, YAML and protobuf; everything else is a 4xx.

Used by `write_handlers` and `subresources`. Sizes are limited, as in Kubernetes.
"""

from __future__ import annotations

import asyncio
import json
import re
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from windlass.dump.yaml_documents import read_documents
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.server import protobuf
from windlass.model.errors import InputError
from windlass.model.unstructured import Unstructured

MAX_BODY_BYTES = 3 << 20
MAX_DEPTH = 200
MAX_VALUES = 60_000
"""Limit for the values of a body: a write is done between two turns of the loop, and takes microseconds for each."""
OFF_LOOP_BYTES = 8 << 10
"""Larger YAML is read by a thread, one body at a time: it takes seconds where JSON takes milliseconds."""
MAX_NUMBER = 1.8e308
"""Beyond it, and for what is no number, JSON has no form."""
JSON, YAML = "application/json", "application/yaml"
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC_PATCH, APPLY_PATCH = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
_Decoded = TypeVar("_Decoded")
PATCH_MEDIA_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


async def read_body(request: web.BaseRequest) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise ApiError.too_large(f"limit is {MAX_BODY_BYTES}") from None
    except (ValueError, HttpProcessingError, web.RequestPayloadError):  # not in the declared encoding
        raise ApiError.bad_request("the body of the request can't be read") from None


def content_type(request: web.BaseRequest) -> str:
    return request.headers.get("Content-Type", JSON).partition(";")[0].strip().lower()


def decode_object(body: bytes, media_type: str, expected: Kind | None = None) -> Unstructured:
    """Decodes an object. `expected` is its kind if the body does not say."""
    if media_type == protobuf.MEDIA_TYPE and (expected is None or not expected.custom):
        default = (expected.api_version, expected.kind) if expected is not None else ("", "")
        try:
            decoded = protobuf.decode(body, default)
            _check_values(body, decoded)
            return decoded
        except protobuf.Malformed as error:
            raise ApiError.bad_request(str(error)) from None
    if media_type not in (JSON, YAML):
        raise ApiError.unsupported_media_type((JSON, YAML, protobuf.MEDIA_TYPE))
    kind_name = expected.kind if expected is not None else ""
    try:
        value = decode_value(body, media_type)
    except UndecodableBody as error:
        reason = f"couldn't get version/kind; json parse error: {error}"
        if kind_name:
            reason = f"the object provided is unrecognized (must be of type {kind_name}): {reason} ({_summary(body)})"
        raise ApiError.bad_request(reason) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        must_be = f" (must be of type {kind_name})" if kind_name else ""
        raise ApiError.bad_request(f"the object provided is unrecognized{must_be}: the body is not an object")
    return value


def decode_patch(body: bytes, media_type: str) -> Any:
    """Decodes a patch of any type."""
    try:
        return decode_value(body, media_type)
    except UndecodableBody as error:
        format_name = "YAML" if media_type == APPLY_PATCH else "patch"
        raise ApiError.bad_request(f"error decoding {format_name}: {error}") from None


class UndecodableBody(Exception):
    """Neither JSON nor YAML; the message follows Go's JSON package, which users know."""


def decode_value(body: bytes, media_type: str) -> Any:
    try:
        if media_type in (YAML, APPLY_PATCH) and not body.lstrip().startswith((b"{", b"[")):
            first = next(read_documents(body.decode(), "body", MAX_VALUES), None)
            return _plain(first.value if first is not None else None)
        value = msgspec.json.decode(body)
        _check_values(body, value)
        return value
    except RecursionError:
        raise UndecodableBody("exceeded max depth") from None
    except (msgspec.MsgspecError, InputError, UnicodeError, ValueError) as error:
        raise UndecodableBody(_go_message(body, " ".join(str(error).split())[:200])) from None


def _check_values(body: bytes, value: Any) -> None:
    """Each takes two bytes at least, so most bodies need not be looked at."""
    left, pending = MAX_VALUES, [value]
    while len(body) > 2 * MAX_VALUES and pending and left >= 0:
        container = pending.pop()
        if isinstance(container, (dict, list)):
            left -= len(container)
            inner = container.values() if isinstance(container, dict) else container
            pending += [item for item in inner if isinstance(item, (dict, list))]
    if left < 0:
        raise ApiError.too_large(f"limit is {MAX_VALUES} values")


async def off_loop(decode: Callable[..., _Decoded], body: bytes, media_type: str, *arguments: Any) -> _Decoded:
    """Calls a function that decodes a body, in a thread if that may take long."""
    is_yaml = media_type in (YAML, APPLY_PATCH) and not body.lstrip().startswith((b"{", b"["))
    if not is_yaml or len(body) <= OFF_LOOP_BYTES:
        return decode(body, media_type, *arguments)
    async with _yaml_reader():
        return await asyncio.to_thread(decode, body, media_type, *arguments)


def _yaml_reader() -> asyncio.Semaphore:
    """One for each loop."""
    loop = asyncio.get_running_loop()
    found = _YAML_READERS.get(loop)
    if found is None:
        found = _YAML_READERS[loop] = asyncio.Semaphore(1)
    return found


_YAML_READERS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()


def duplicate_fields(body: bytes) -> list[str]:
    """Paths of fields that a JSON object has twice."""
    try:
        tree = json.loads(body, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return []
    return list(_duplicates(tree, ""))


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as a list of its pairs."""


def _duplicates(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, item in value:
            inner = f"{path}.{name}" if path else name
            if name in seen:
                yield inner
            seen.add(name)
            yield from _duplicates(item, inner)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _duplicates(item, f"{path}[{index}]")


def _go_message(body: bytes, reason: str) -> str:
    if "truncated" in reason:
        return "unexpected end of JSON input"
    found = re.search(r"invalid character \(byte (\d+)\)", reason)
    if found and int(found[1]) < len(body):
        character = body[int(found[1]) : int(found[1]) + 1].decode("latin-1")
        return f"invalid character {character!r} looking for beginning of value"
    return reason


def _summary(body: bytes) -> str:
    """The beginning of a body, as the API server shows it."""
    if not body:
        return "<empty>"
    text = body[:100].decode(errors="replace") if body.startswith(b"{") else body[:100].hex()
    return text + " ..." if len(body) > 100 else text


def _plain(value: Any) -> Any:
    """With string keys, as in JSON, and aliases expanded."""
    count = 0

    def plain(value: Any, depth: int) -> Any:
        nonlocal count
        count += 1
        if depth > MAX_DEPTH or count > MAX_VALUES:
            raise UndecodableBody("exceeded max depth" if depth > MAX_DEPTH else "excessive aliasing")
        if isinstance(value, dict):
            return {str(key): plain(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [plain(item, depth + 1) for item in value]
        if isinstance(value, (int, float)) and not -MAX_NUMBER <= value <= MAX_NUMBER:
            raise UndecodableBody("number out of range")
        return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)

    return plain(value, 0)
