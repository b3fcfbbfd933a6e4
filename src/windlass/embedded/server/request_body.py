"""Bodies of requests: JSON, YAML or protobuf in, trees out; anything else is a 4xx.

Asked by the writing half of the server. Bodies are bounded, as in Kubernetes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

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
MAX_VALUES = 1 << 20
"""Values that YAML may come to: a few lines of aliases stand for any number of them."""
JSON, YAML = "application/json", "application/yaml"
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC_PATCH, APPLY_PATCH = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
PATCH_MEDIA_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


async def read_body(request: web.BaseRequest) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise ApiError.too_large(f"limit is {MAX_BODY_BYTES}") from None
    except (ValueError, HttpProcessingError, web.RequestPayloadError):  # not in the encoding that it says
        raise ApiError.bad_request("the body of the request can't be read") from None


def content_type(request: web.BaseRequest) -> str:
    return request.headers.get("Content-Type", JSON).partition(";")[0].strip().lower()


def decode_object(body: bytes, media_type: str, expected: Kind | None = None) -> Unstructured:
    """An object, of a content type that can be read. `expected`: what it is where it doesn't say."""
    if media_type == protobuf.MEDIA_TYPE and (expected is None or not expected.custom):
        default = (expected.api_version, expected.kind) if expected is not None else ("", "")
        try:
            return protobuf.decode(body, default)
        except protobuf.Malformed as error:
            raise ApiError.bad_request(str(error)) from None
    if media_type not in (JSON, YAML):
        raise ApiError.unsupported_media_type((JSON, YAML, protobuf.MEDIA_TYPE))
    named = expected.kind if expected is not None else ""
    try:
        value = decode_value(body, media_type)
    except UndecodableBody as error:
        why = f"couldn't get version/kind; json parse error: {error}"
        if named:
            why = f"the object provided is unrecognized (must be of type {named}): {why} ({_summary(body)})"
        raise ApiError.bad_request(why) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        what = f" (must be of type {named})" if named else ""
        raise ApiError.bad_request(f"the object provided is unrecognized{what}: the body is not an object")
    return value


def decode_patch(body: bytes, media_type: str) -> Any:
    """A patch, of whatever type."""
    try:
        return decode_value(body, media_type)
    except UndecodableBody as error:
        what = "YAML" if media_type == APPLY_PATCH else "patch"
        raise ApiError.bad_request(f"error decoding {what}: {error}") from None


class UndecodableBody(Exception):
    """Neither JSON nor YAML; says why as Go's JSON package does, where that is what people know."""


def decode_value(body: bytes, media_type: str) -> Any:
    """Whatever the JSON or YAML says."""
    try:
        if media_type in (YAML, APPLY_PATCH) and not body.lstrip().startswith((b"{", b"[")):
            first = next(read_documents(body.decode(), "body"), None)
            return _plain(first.value if first is not None else None)
        return msgspec.json.decode(body)
    except RecursionError:
        raise UndecodableBody("exceeded max depth") from None
    except (msgspec.MsgspecError, InputError, UnicodeError, ValueError) as error:
        raise UndecodableBody(_in_go_words(body, " ".join(str(error).split())[:200])) from None


def duplicate_fields(body: bytes) -> list[str]:
    """Paths of the fields that a JSON object names twice."""
    try:
        tree = json.loads(body, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return []
    return list(_twice(tree, ""))


class _Pairs(list[tuple[str, Any]]):
    """An object as it was written."""


def _twice(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, each in value:
            inner = f"{path}.{name}" if path else name
            if name in seen:
                yield inner
            seen.add(name)
            yield from _twice(each, inner)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _twice(each, f"{path}[{index}]")


def _in_go_words(body: bytes, reason: str) -> str:
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
    shown = body[:100].decode(errors="replace") if body.startswith(b"{") else body[:100].hex()
    return shown + " ..." if len(body) > 100 else shown


def _plain(value: Any) -> Any:
    """With keys that are strings, as in JSON, and aliases written out."""
    written = 0

    def plain(value: Any, depth: int) -> Any:
        nonlocal written
        written += 1
        if depth > MAX_DEPTH or written > MAX_VALUES:
            raise UndecodableBody("exceeded max depth" if depth > MAX_DEPTH else "excessive aliasing")
        if isinstance(value, dict):
            return {str(key): plain(each, depth + 1) for key, each in value.items()}
        if isinstance(value, list):
            return [plain(each, depth + 1) for each in value]
        return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)

    return plain(value, 0)
