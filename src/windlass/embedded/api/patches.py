"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386), with the API server's errors for invalid ones.

`machinery` and `in_process_client` call it; the result is decoded again. Neither changes its input. Strategic merge
patch is in `strategic_merge`, server-side apply in `server_side_apply`.
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
"""Limit for bytes that the `copy` operations of one patch add, since each can double the object."""
_REJECTED_MESSAGE = "the server rejected our request due to an error in our request"


def merge_patch(value: Any, patch: Any) -> Any:
    """The value with the patch applied: objects are merged, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for key, item in patch.items():
        if item is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), item)
    return merged


def json_patch(value: Unstructured, operations: Any) -> Unstructured:
    """The value after all operations; a 422 if one of them can't be applied."""
    if operations is None:
        return value
    if not isinstance(operations, list):
        raise _undecodable(operations, "[]handlers.jsonPatchOp")
    if len(operations) > MAX_OPERATIONS:
        raise ApiError.too_large(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        )
    result: Any = deep_copy(value)
    copied = 0
    for operation in operations:
        if operation is not None and not isinstance(operation, dict):
            raise _undecodable(operation, "handlers.jsonPatchOp")
        if operation and operation.get("op") == "copy":
            copied += len(msgspec.json.encode(_find(result, _pointer(operation.get("from")))))
            if copied > MAX_COPIED_BYTES:
                raise _rejected()
        result = _apply_operation(result, operation or {})
    if not isinstance(result, dict):
        raise _rejected()
    return result


def check_merge_patch(patch: Any) -> None:
    """A merge patch has to be an object."""
    if patch is None:
        raise ApiError.bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        raise _undecodable(patch, "map[string]interface {}")


def _undecodable(value: Any, wanted: str) -> ApiError:
    return ApiError.bad_request(
        f"error decoding patch: json: cannot unmarshal {json_type_name(value)} into Go value of type {wanted}"
    )


def _rejected() -> ApiError:
    return ApiError.unprocessable(_REJECTED_MESSAGE)


def _apply_operation(document: Any, operation: Unstructured) -> Any:
    name, path = operation.get("op"), _pointer(operation.get("path"))
    if name in ("add", "replace", "test") and "value" not in operation:
        raise _rejected()
    if name == "add":
        return _set(document, path, deep_copy(operation["value"]))
    if name == "remove":
        return _remove(document, path)[0]
    if name == "replace":
        return _set(document, path, deep_copy(operation["value"]), replace=True)
    if name == "test":
        return _test(document, path, operation["value"])
    if name == "move":
        document, moved = _remove(document, _pointer(operation.get("from")))
        return _set(document, path, moved)
    if name == "copy":
        return _set(document, path, deep_copy(_find(document, _pointer(operation.get("from")))))
    raise _rejected()


def _pointer(text: object) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise _rejected()
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _find(document: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list):
            document = document[_index(part, len(document))]
        else:
            raise _rejected()
    return document


def _index(part: str, length: int) -> int:
    """Index of an existing element; negative ones count from the end, as in the API server's library."""
    if not part.removeprefix("-").isascii() or not part.removeprefix("-").isdigit() or len(part) > 9:
        raise _rejected()
    index = int(part)
    if not -length <= index < length:
        raise _rejected()
    return index


def _set(document: Any, path: list[str], value: Any, *, replace: bool = False) -> Any:
    """`replace`: replaces a list element, else inserts before it. An object's member is set either way."""
    if not path:
        return value
    parent, last = _find(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif not isinstance(parent, list):
        raise _rejected()
    elif replace:
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
    raise _rejected()


def _test(document: Any, path: list[str], value: Any) -> Any:
    """A missing member equals null, as in the API server's library."""
    try:
        found = _find(document, path)
    except ApiError:
        if value is None:
            return document
        raise
    if not _equal(found, value):
        raise _rejected()
    return document


def _equal(left: Any, right: Any) -> bool:
    """Equal as JSON: unlike in Python, `1` is not `true`."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)
