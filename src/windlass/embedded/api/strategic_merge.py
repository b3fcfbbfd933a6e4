"""Strategic merge patch: a merge patch that merges lists by key and supports the `$` directives.

`machinery` calls it with the object, the patch and the kind's schema; `kubectl apply`, `kubectl edit` and `kubectl
rollout` send such patches. Directives: `$patch` (replace, delete, merge), `$retainKeys`,
`$deleteFromPrimitiveList/FIELD` and `$setElementOrder/FIELD`. The input is not changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from windlass.embedded.api.decode import json_type_name
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.json_trees import hash_key
from windlass.embedded.api.schema import SchemaNode
from windlass.model.unstructured import Unstructured

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_DELETE = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_UNKNOWN = SchemaNode({})


def strategic_merge(value: Unstructured, patch: Any, node: SchemaNode) -> Unstructured:
    if patch is None:
        return value
    if not isinstance(patch, dict):
        raise ApiError.bad_request(
            f"json: cannot unmarshal {json_type_name(patch)} into Go value of type map[string]interface {{}}"
        )
    merged = _merge_object(value, patch, node)
    return merged if merged is not None else {}


def _merge_object(value: Unstructured, patch: Unstructured, node: SchemaNode) -> Unstructured | None:
    """None: the patch removes the object."""
    directive = patch.get(_PATCH)
    if directive is not None:
        if directive == "delete":
            return None
        if directive == "replace":
            replaced: Unstructured = _without_directives(patch, node)
            return replaced
        if directive != "merge":
            patch_text = _go_text(patch)
            raise ApiError.bad_request(f"unknown patch type: {_go_text(directive)} in map: {patch_text}")
    merged = _apply_retain_keys(value, patch)
    for key, patch_value in patch.items():
        if key.startswith("$"):
            continue
        child = node.child(key) or _UNKNOWN
        result = _merge_value(merged.get(key), patch_value, child, _order_of(patch, key))
        if result is None:
            merged.pop(key, None)
        else:
            merged[key] = result
    _apply_list_directives(merged, patch, node)
    return merged


def _apply_retain_keys(value: Unstructured, patch: Unstructured) -> Unstructured:
    """The object without fields that `$retainKeys` does not name."""
    kept = patch.get(_RETAIN)
    if kept is None:
        return dict(value)
    if not isinstance(kept, list) or not all(isinstance(name, str) for name in kept):
        raise ApiError.bad_request("invalid patch format of retainKeys")
    missing = [key for key in patch if not key.startswith("$") and patch[key] is not None and key not in kept]
    if missing:
        raise ApiError.bad_request("invalid patch format of retainKeys")
    return {key: item for key, item in value.items() if key in kept}


def _merge_value(value: Any, patch: Any, node: SchemaNode, order: list[Any] | None) -> Any:
    if patch is None:
        return None
    if isinstance(patch, dict):
        if node.type == "any" or not isinstance(value, dict):
            return _merge_object({}, patch, node)
        if "replace" in node.patch_strategies:
            return _without_directives(patch, node)
        return _merge_object(value, patch, node)
    if isinstance(patch, list):
        if "merge" not in node.patch_strategies:
            return _without_directives(patch, node)
        return _merge_list(value if isinstance(value, list) else [], patch, node, order)
    return patch


def _without_directives(patch: Any, node: SchemaNode) -> Any:
    """A new value without nulls and directives."""
    if isinstance(patch, dict):
        result = {}
        for key, item in patch.items():
            if item is not None and not key.startswith("$"):
                result[key] = _without_directives(item, node.child(key) or _UNKNOWN)
        return result
    if isinstance(patch, list):
        return [_without_directives(item, node.items) for item in patch if not _is_directive(item)]
    return patch


def _is_directive(element: Any) -> bool:
    return isinstance(element, dict) and _PATCH in element


def _merge_list(value: list[Any], patch: list[Any], node: SchemaNode, order: list[Any] | None) -> list[Any]:
    key = node.merge_key
    if not key:
        known = {hash_key(item) for item in value}
        merged = [
            *value,
            *(item for item in dict.fromkeys(_primitives(patch)) if hash_key(item) not in known),
        ]
        return _in_order(merged, patch if order is None else order, value, "")
    if any(isinstance(item, dict) and item.get(_PATCH) == "replace" for item in patch):
        return [_without_directives(item, node.items) for item in patch if not _is_directive(item)]
    merged = _merge_elements(value, patch, node, key)
    elements = [item for item in patch if not _is_directive(item)]
    return _in_order(merged, elements if order is None else order, value, key)


def _primitives(patch: list[Any]) -> list[Any]:
    if any(isinstance(element, dict | list) for element in patch):
        raise ApiError.bad_request("invalid patch format of primitive list")
    return patch


def _merge_elements(value: list[Any], patch: list[Any], node: SchemaNode, key: str) -> list[Any]:
    """Merges element by element, matched by key."""
    merged: list[Any] = list(value)
    positions: dict[Any, int] = {}
    for position, existing in enumerate(merged):
        if isinstance(existing, dict):
            positions.setdefault(hash_key(existing.get(key)), position)
    for element in patch:
        key_value = hash_key(_key_of(element, key))
        position = positions.get(key_value, len(merged))
        if element.get(_PATCH) == "delete":
            if positions.pop(key_value, None) is not None:
                merged[position] = None  # removed at the end
        elif position == len(merged):
            positions[key_value] = position
            merged.append(_merge_object({}, element, node.items) or {})
        else:
            merged[position] = _merge_object(merged[position], element, node.items)
    return [element for element in merged if element is not None]


def _key_of(element: Any, key: str) -> Any:
    if not isinstance(element, dict):
        raise ApiError.bad_request("invalid patch format of a list of objects")
    if element.get(key) is None:
        raise ApiError.bad_request(f"map: {_go_text(element)} does not contain declared merge key: {key}")
    return element[key]


def _go_text(value: Any) -> str:
    """As Go prints it: `map[a:1 b:[x y]]`."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_go_text(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(_go_text, value)) + "]"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _order_of(patch: Unstructured, key: str) -> list[Any] | None:
    order = patch.get(_ORDER + key)
    if order is not None and not isinstance(order, list):
        raise ApiError.bad_request("invalid patch format of $setElementOrder list")
    return order


def _apply_list_directives(merged: Unstructured, patch: Unstructured, node: SchemaNode) -> None:
    """Directives next to the fields: removals from primitive lists, and an order without a patch of the list."""
    for key, value in patch.items():
        if key.startswith(_DELETE):
            field = key.removeprefix(_DELETE)
            if not isinstance(value, list):
                raise ApiError.bad_request("invalid patch format of primitive list")
            if isinstance(merged.get(field), list):
                removed = {hash_key(item) for item in value}
                merged[field] = [item for item in merged[field] if hash_key(item) not in removed]
        elif key.startswith(_ORDER):
            field = key.removeprefix(_ORDER)
            order = _order_of(patch, field)
            child = node.child(field) or _UNKNOWN
            if field not in patch and order is not None and isinstance(merged.get(field), list):
                merged[field] = _in_order(merged[field], order, merged[field], child.merge_key)


def _in_order(elements: list[Any], order: list[Any], before: list[Any], key: str) -> list[Any]:
    """The elements named by `order` (by default the patch's) in that order; others keep their relative position."""

    def key_of(element: Any) -> Any:
        return hash_key(element.get(key) if key and isinstance(element, dict) else element)

    wanted, earlier = _positions(map(key_of, order)), _positions(map(key_of, before))
    ordered = sorted((item for item in elements if key_of(item) in wanted), key=lambda item: wanted[key_of(item)])
    others = deque(item for item in elements if key_of(item) not in wanted)
    result = []
    for item in ordered:
        position = earlier.get(key_of(item), -1)
        while others and earlier.get(key_of(others[0]), position) < position:
            result.append(others.popleft())
        result.append(item)
    return [*result, *others]


def _positions(values: Iterable[Any]) -> dict[Any, int]:
    """The first position of each value."""
    found: dict[Any, int] = {}
    for position, value in enumerate(values):
        found.setdefault(value, position)
    return found
