"""Strategic merge patch: a merge patch that knows which lists are merged by a key, and obeys the `$` directives.

Fed by the server's PATCH with the object, the patch and the kind's schema; `kubectl apply`, `kubectl edit` and
`kubectl rollout` send these. Directives: `$patch` (replace, delete, merge), `$retainKeys`,
`$deleteFromPrimitiveList/FIELD` and `$setElementOrder/FIELD`. The input is not changed.
"""

from __future__ import annotations

from typing import Any

from windlass.embedded.api.decode import json_name
from windlass.embedded.api.errors import ApiError, quoted
from windlass.embedded.api.schema import Node
from windlass.embedded.api.trees import Tree

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_DELETE = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_UNKNOWN = Node({})


def strategic_merge(value: Tree, patch: Any, node: Node) -> Tree:
    """The object with the patch laid over it."""
    if patch is None:
        return value
    if not isinstance(patch, dict):
        raise ApiError.bad_request(
            f"json: cannot unmarshal {json_name(patch)} into Go value of type map[string]interface {{}}"
        )
    merged = _merge_object(value, patch, node)
    return merged if merged is not None else {}


def _merge_object(value: Tree, patch: Tree, node: Node) -> Tree | None:
    """None: the patch removes the object."""
    directive = patch.get(_PATCH)
    if directive is not None:
        if directive == "delete":
            return None
        if directive == "replace":
            replaced: Tree = _added(patch, node)
            return replaced
        if directive != "merge":
            raise ApiError.bad_request(f"Wrong patch format: invalid $patch directive {quoted(directive)}")
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


def _retained(value: Tree, patch: Tree) -> Tree:
    """The object, without what `$retainKeys` doesn't name."""
    kept = patch.get(_RETAIN)
    if kept is None:
        return dict(value)
    if not isinstance(kept, list) or not all(isinstance(each, str) for each in kept):
        raise ApiError.bad_request("invalid patch format of $retainKeys")
    missing = [key for key in patch if not key.startswith("$") and patch[key] is not None and key not in kept]
    if missing:
        raise ApiError.bad_request("invalid patch format of $retainKeys")
    return {key: each for key, each in value.items() if key in kept}


def _merge_value(value: Any, patch: Any, node: Node, order: list[Any] | None) -> Any:
    if patch is None:
        return None
    if isinstance(patch, dict):
        if node.type == "any" or not isinstance(value, dict):
            return _merge_object({}, patch, node)
        if "replace" in node.strategies:
            return _added(patch, node)
        return _merge_object(value, patch, node)
    if isinstance(patch, list):
        if "merge" not in node.strategies:
            return _added(patch, node)
        return _merge_list(value if isinstance(value, list) else [], patch, node, order)
    return patch


def _added(patch: Any, node: Node) -> Any:
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


def _merge_list(value: list[Any], patch: list[Any], node: Node, order: list[Any] | None) -> list[Any]:
    key = node.merge_key
    if not key:
        made = [*value, *(each for each in dict.fromkeys(_hashable(patch)) if each not in value)]
        return _ordered(made, patch if order is None else order, value, "")
    if any(isinstance(each, dict) and each.get(_PATCH) == "replace" for each in patch):
        return [_added(each, node.items) for each in patch if not _is_directive(each)]
    made = list(value)
    for each in patch:
        _merge_element(made, each, node, key)
    named = [each for each in patch if not _is_directive(each)]
    return _ordered(made, named if order is None else order, value, key)


def _hashable(patch: list[Any]) -> list[Any]:
    if any(isinstance(each, dict | list) for each in patch):
        raise ApiError.bad_request("invalid patch format of primitive list")
    return patch


def _merge_element(made: list[Any], element: Any, node: Node, key: str) -> None:
    if not isinstance(element, dict) or element.get(key) is None:
        raise ApiError.bad_request(
            f"map: {_go_text(element)} does not contain declared merge key: {key}"
            if isinstance(element, dict)
            else "invalid patch format of a list of objects"
        )
    found = next((i for i, e in enumerate(made) if isinstance(e, dict) and e.get(key) == element[key]), None)
    if element.get(_PATCH) == "delete":
        if found is not None:
            del made[found]
    elif found is None:
        made.append(_merge_object({}, element, node.items) or {})
    else:
        made[found] = _merge_object(made[found], element, node.items)


def _go_text(value: Any) -> str:
    """As Go prints it: `map[a:1 b:[x y]]`."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_go_text(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(_go_text, value)) + "]"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _order_of(patch: Tree, key: str) -> list[Any] | None:
    order = patch.get(_ORDER + key)
    if order is not None and not isinstance(order, list):
        raise ApiError.bad_request("invalid patch format of $setElementOrder list")
    return order


def _carry_out_list_directives(made: Tree, patch: Tree, node: Node) -> None:
    """Directives beside the fields: removals from primitive lists, and an order without a patch of its own."""
    for key, each in patch.items():
        if key.startswith(_DELETE):
            field = key.removeprefix(_DELETE)
            if not isinstance(each, list):
                raise ApiError.bad_request("invalid patch format of primitive list")
            if isinstance(made.get(field), list):
                made[field] = [item for item in made[field] if item not in each]
        elif key.startswith(_ORDER):
            field = key.removeprefix(_ORDER)
            order = _order_of(patch, field)
            child = node.child(field) or _UNKNOWN
            if field not in patch and order is not None and isinstance(made.get(field), list):
                made[field] = _ordered(made[field], order, made[field], child.merge_key)


def _ordered(made: list[Any], order: list[Any], before: list[Any], key: str) -> list[Any]:
    """The elements named by `order` (the patch's own, unless it says otherwise) in that order; the others keep their
    place among them as far as they had one."""

    def identity(element: Any) -> Any:
        return element.get(key) if key and isinstance(element, dict) else element

    wanted = [identity(each) for each in order]
    earlier = [identity(each) for each in before]
    named = [each for each in made if identity(each) in wanted]
    named.sort(key=lambda each: wanted.index(identity(each)))
    others = [each for each in made if identity(each) not in wanted]
    result = []
    while named and others:
        left, right = identity(named[0]), identity(others[0])
        if left in earlier and right in earlier and earlier.index(right) < earlier.index(left):
            result.append(others.pop(0))
        else:
            result.append(named.pop(0))
    return [*result, *named, *others]
