"""Bodies of requests: JSON, YAML or protobuf in, trees out; anything else is a 4xx.

Asked by the writing half of the server. Bodies are bounded, as in Kubernetes.
"""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from windlass.dump.yamltext import read_documents
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.server import protobuf
from windlass.model.errors import InputError

Tree = dict[str, Any]

MOST_BYTES = 3 << 20
JSON, YAML = "application/json", "application/yaml"
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC_PATCH, APPLY_PATCH = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


async def read(request: web.BaseRequest) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise ApiError.too_large(f"limit is {MOST_BYTES}") from None
    except ValueError as error:  # a content encoding that is not what it says
        raise ApiError.bad_request(f"the body of the request can't be read: {error}") from None


def content_type(request: web.BaseRequest) -> str:
    return request.headers.get("Content-Type", JSON).partition(";")[0].strip().lower()


def tree_of(body: bytes, kind: str, expected: Kind | None = None) -> Tree:
    """An object, of a content type that can be read. `expected`: what it is where it doesn't say."""
    if kind == protobuf.MEDIA_TYPE and (expected is None or not expected.custom):
        default = (expected.api_version, expected.kind) if expected is not None else ("", "")
        try:
            return protobuf.decode(body, default)
        except protobuf.Malformed as error:
            raise ApiError.bad_request(str(error)) from None
    if kind not in (JSON, YAML):
        raise ApiError.unsupported_media_type((JSON, YAML, protobuf.MEDIA_TYPE))
    value = value_of(body, kind)
    if not isinstance(value, dict):
        raise ApiError.bad_request("couldn't get version/kind; json parse error: the body is not an object")
    return value


def value_of(body: bytes, kind: str) -> Any:
    """Whatever the JSON or YAML says."""
    try:
        if kind in (YAML, APPLY_PATCH) and not body.lstrip().startswith((b"{", b"[")):
            first = next(read_documents(body.decode(), "body"), None)
            return _plain(first.value if first is not None else None)
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, InputError, UnicodeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ApiError.bad_request(
            f"error decoding: couldn't get version/kind; json parse error: {reason}"
        ) from None
    except RecursionError:
        raise ApiError.bad_request("error decoding: exceeded max depth") from None


def _plain(value: Any, depth: int = 0) -> Any:
    """With keys that are strings, as in JSON."""
    if depth > 200:
        raise ApiError.bad_request("error decoding: exceeded max depth")
    if isinstance(value, dict):
        return {str(key): _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each, depth + 1) for each in value]
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)
