"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386), with the API server's answers to bad ones.

Fed by the server's PATCH and by the in-process verbs; results go back through `api.decode` or `api.structural`.
Neither changes its input. Strategic merge patch is in `api.strategic`, server-side apply in `api.apply`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.embedded.api.decode import json_type_name
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.json_trees import deep_copy
from windlass.model.unstructured import Unstructured

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 << 20
"""Bytes that the `copy` operations of one patch may add: each can double the object, and forty of them a memory."""
_REFUSED = "the server rejected our request due to an error in our request"


def merge_patch(value: Any, patch: Any) -> Any:
    """The value with the patch laid over it: objects merge, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    made = dict(value) if isinstance(value, dict) else {}
    for key, each in patch.items():
        if each is None:
            made.pop(key, None)
        else:
            made[key] = merge_patch(made.get(key), each)
    return made


def json_patch(value: Unstructured, operations: Any) -> Unstructured:
    """The value after all operations; a 422 (and no change) if one of them can't be carried out."""
    if operations is None:
        return value
    if not isinstance(operations, list):
        raise _undecodable(operations, "[]handlers.jsonPatchOp")
    if len(operations) > MAX_OPERATIONS:
        raise ApiError.too_large(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        )
    made: Any = deep_copy(value)
    copied = 0
    for operation in operations:
        if operation is not None and not isinstance(operation, dict):
            raise _undecodable(operation, "handlers.jsonPatchOp")
        if operation and operation.get("op") == "copy":
            copied += len(msgspec.json.encode(_find(made, _pointer(operation.get("from")))))
            if copied > MAX_COPIED_BYTES:
                raise _refused()
        made = _carry_out(made, operation or {})
    if not isinstance(made, dict):
        raise _refused()
    return made


def check_merge_patch(patch: Any) -> None:
    """Only objects are merged into objects."""
    if patch is None:
        raise ApiError.bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        raise _undecodable(patch, "map[string]interface {}")


def _undecodable(value: Any, wanted: str) -> ApiError:
    return ApiError.bad_request(
        f"error decoding patch: json: cannot unmarshal {json_type_name(value)} into Go value of type {wanted}"
    )


def _refused() -> ApiError:
    return ApiError.unprocessable(_REFUSED)


def _carry_out(document: Any, operation: Unstructured) -> Any:
    name, path = operation.get("op"), _pointer(operation.get("path"))
    if name in ("add", "replace", "test") and "value" not in operation:
        raise _refused()
    if name == "add":
        return _put(document, path, deep_copy(operation["value"]))
    if name == "remove":
        return _remove(document, path)[0]
    if name == "replace":
        return _put(document, path, deep_copy(operation["value"]), instead=True)
    if name == "test":
        return _test(document, path, operation["value"])
    if name == "move":
        document, moved = _remove(document, _pointer(operation.get("from")))
        return _put(document, path, moved)
    if name == "copy":
        return _put(document, path, deep_copy(_find(document, _pointer(operation.get("from")))))
    raise _refused()


def _pointer(text: object) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise _refused()
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _find(document: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list):
            document = document[_index(part, len(document))]
        else:
            raise _refused()
    return document


def _index(part: str, length: int) -> int:
    """Of an existing element; negative ones count from the end, as the API server's library has it."""
    if not part.removeprefix("-").isascii() or not part.removeprefix("-").isdigit() or len(part) > 9:
        raise _refused()
    index = int(part)
    if not -length <= index < length:
        raise _refused()
    return index


def _put(document: Any, path: list[str], value: Any, *, instead: bool = False) -> Any:
    """`instead`: in the place of an element of a list, else before it. A member of an object is set either way, as with
    the API server's library."""
    if not path:
        return value
    parent, last = _find(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif not isinstance(parent, list):
        raise _refused()
    elif instead:
        parent[_index(last, len(parent))] = value
    elif last in ("-", str(len(parent))):
        parent.append(value)
    else:
        parent.insert(_index(last, len(parent)), value)
    return document


def _remove(document: Any, path: list[str]) -> tuple[Any, Any]:
    if not path:
        return None, document
    parent, last = _find(document, path[:-1]), path[-1]
    if isinstance(parent, dict) and last in parent:
        return document, parent.pop(last)
    if isinstance(parent, list):
        return document, parent.pop(_index(last, len(parent)))
    raise _refused()


def _test(document: Any, path: list[str], value: Any) -> Any:
    """A missing member tests equal to null, as with the API server's library."""
    try:
        found = _find(document, path)
    except ApiError:
        if value is None:
            return document
        raise
    if not _same(found, value):
        raise _refused()
    return document


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: `1` is not `true`, whatever Python thinks."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(each, other[key]) for key, each in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
