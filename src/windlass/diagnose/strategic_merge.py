"""Strategic merge patches of pod specs, as the API server applies them. Only the directives that `patches` needs.

`patches` applies every proposal with it, and converts it to a merge patch for custom resources.
"""

from __future__ import annotations

from typing import Any

SpecPatch = dict[str, Any]
"""A strategic merge patch of a pod spec; None removes a field."""

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
}
"""List → its patchMergeKey; all other lists are replaced."""


def strategic_merge(have: Any, change: Any) -> Any:
    if not isinstance(change, dict) or not isinstance(have, dict):
        return _without_none(change)
    result = dict(have)
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        elif name in MERGE_KEYS and isinstance(value, list):
            result[name] = _merged_list(result.get(name), value, MERGE_KEYS[name])
        else:
            result[name] = strategic_merge(result.get(name), value)
    return result


def _merged_list(have: Any, change: list[Any], key: str) -> list[Any]:
    items = [dict(item) for item in have if isinstance(item, dict)] if isinstance(have, list | tuple) else []
    for patch_item in change:
        place = next((at for at, item in enumerate(items) if item.get(key) == patch_item.get(key)), None)
        if place is None:
            items.append(_without_none(patch_item))
        else:
            items[place] = strategic_merge(items[place], patch_item)
    return items


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(inner) for name, inner in value.items() if inner is not None}
    return value


def to_merge_patch(spec: dict[str, Any], change: SpecPatch) -> SpecPatch:
    """The same change as a merge patch (RFC 7386), where lists are written in full."""
    after = strategic_merge(spec, change)
    return {name: after.get(name) if _has_list(value) else value for name, value in change.items()}


def _has_list(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_list(inner) for inner in value.values())
    return isinstance(value, list)
