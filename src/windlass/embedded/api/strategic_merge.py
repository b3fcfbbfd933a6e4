"""Strategic merge patch: a merge patch that knows which lists are merged by a key, and obeys the `$` directives.

Fed by the server's PATCH with the object, the patch and the kind's schema; `kubectl apply`, `kubectl edit` and
`kubectl rollout` send these. Directives: `$patch` (replace, delete, merge), `$retainKeys`,
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
    """The object with the patch laid over it."""
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
            replaced: Unstructured = _added(patch, node)
            return replaced
        if directive != "merge":
            shown = _go_text(patch)
            raise ApiError.bad_request(f"unknown patch type: {_go_text(directive)} in map: {shown}")
    made = _retained(value, patch)
    for key, each in patch.items():
        if key.startswith("$"):
            continue
        child = node.child(key) or _UNKNOWN
        result = _merge_value(made.get(key), each, child, _order_of(patch, key))
        if result is None:
            made.pop(key, None)
        else:
            made[key] = result
    _carry_out_list_directives(made, patch, node)
    return made


def _retained(value: Unstructured, patch: Unstructured) -> Unstructured:
    """The object, without what `$retainKeys` doesn't name."""
    kept = patch.get(_RETAIN)
    if kept is None:
        return dict(value)
    if not isinstance(kept, list) or not all(isinstance(each, str) for each in kept):
        raise ApiError.bad_request("invalid patch format of retainKeys")
    missing = [key for key in patch if not key.startswith("$") and patch[key] is not None and key not in kept]
    if missing:
        raise ApiError.bad_request("invalid patch format of retainKeys")
    return {key: each for key, each in value.items() if key in kept}


def _merge_value(value: Any, patch: Any, node: SchemaNode, order: list[Any] | None) -> Any:
    if patch is None:
        return None
    if isinstance(patch, dict):
        if node.type == "any" or not isinstance(value, dict):
            return _merge_object({}, patch, node)
        if "replace" in node.patch_strategies:
            return _added(patch, node)
        return _merge_object(value, patch, node)
    if isinstance(patch, list):
        if "merge" not in node.patch_strategies:
            return _added(patch, node)
        return _merge_list(value if isinstance(value, list) else [], patch, node, order)
    return patch


def _added(patch: Any, node: SchemaNode) -> Any:
    """Something new, freed of nulls and directives."""
    if isinstance(patch, dict):
        made = {}
        for key, each in patch.items():
            if each is not None and not key.startswith("$"):
                made[key] = _added(each, node.child(key) or _UNKNOWN)
        return made
    if isinstance(patch, list):
        return [_added(each, node.items) for each in patch if not _is_directive(each)]
    return patch


def _is_directive(element: Any) -> bool:
    return isinstance(element, dict) and _PATCH in element


def _merge_list(value: list[Any], patch: list[Any], node: SchemaNode, order: list[Any] | None) -> list[Any]:
    key = node.merge_key
    if not key:
        known = {hash_key(each) for each in value}
        made = [*value, *(each for each in dict.fromkeys(_primitives(patch)) if hash_key(each) not in known)]
        return _ordered(made, patch if order is None else order, value, "")
    if any(isinstance(each, dict) and each.get(_PATCH) == "replace" for each in patch):
        return [_added(each, node.items) for each in patch if not _is_directive(each)]
    made = _merge_elements(value, patch, node, key)
    named = [each for each in patch if not _is_directive(each)]
    return _ordered(made, named if order is None else order, value, key)


def _primitives(patch: list[Any]) -> list[Any]:
    if any(isinstance(each, dict | list) for each in patch):
        raise ApiError.bad_request("invalid patch format of primitive list")
    return patch


def _merge_elements(value: list[Any], patch: list[Any], node: SchemaNode, key: str) -> list[Any]:
    """Element by element, found by its key."""
    made: list[Any] = list(value)
    places: dict[Any, int] = {}
    for place, each in enumerate(made):
        if isinstance(each, dict):
            places.setdefault(hash_key(each.get(key)), place)
    for element in patch:
        mark = hash_key(_key_of(element, key))
        place = places.get(mark, len(made))
        if element.get(_PATCH) == "delete":
            if places.pop(mark, None) is not None:
                made[place] = None  # nulls are no elements, and go at the end
        elif place == len(made):
            places[mark] = place
            made.append(_merge_object({}, element, node.items) or {})
        else:
            made[place] = _merge_object(made[place], element, node.items)
    return [each for each in made if each is not None]


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


def _carry_out_list_directives(made: Unstructured, patch: Unstructured, node: SchemaNode) -> None:
    """Directives beside the fields: removals from primitive lists, and an order without a patch of its own."""
    for key, each in patch.items():
        if key.startswith(_DELETE):
            field = key.removeprefix(_DELETE)
            if not isinstance(each, list):
                raise ApiError.bad_request("invalid patch format of primitive list")
            if isinstance(made.get(field), list):
                gone = {hash_key(item) for item in each}
                made[field] = [item for item in made[field] if hash_key(item) not in gone]
        elif key.startswith(_ORDER):
            field = key.removeprefix(_ORDER)
            order = _order_of(patch, field)
            child = node.child(field) or _UNKNOWN
            if field not in patch and order is not None and isinstance(made.get(field), list):
                made[field] = _ordered(made[field], order, made[field], child.merge_key)


def _ordered(made: list[Any], order: list[Any], before: list[Any], key: str) -> list[Any]:
    """The elements named by `order` (the patch's own, unless it says otherwise) in that order; the others keep their
    place among them as far as they had one."""

    def mark(element: Any) -> Any:
        return hash_key(element.get(key) if key and isinstance(element, dict) else element)

    wanted, earlier = _places(map(mark, order)), _places(map(mark, before))
    named = sorted((each for each in made if mark(each) in wanted), key=lambda each: wanted[mark(each)])
    others = deque(each for each in made if mark(each) not in wanted)
    result = []
    for each in named:
        place = earlier.get(mark(each), -1)
        while others and earlier.get(mark(others[0]), place) < place:
            result.append(others.popleft())
        result.append(each)
    return [*result, *others]


def _places(marks: Iterable[Any]) -> dict[Any, int]:
    """Where each stands first."""
    found: dict[Any, int] = {}
    for place, each in enumerate(marks):
        found.setdefault(each, place)
    return found
