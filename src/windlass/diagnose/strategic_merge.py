"""Strategic merge patches of pod specs, as far as patches here go: what the API server would make of one.

`patches` tries every change with it before it is offered, and turns it into a merge patch for kinds that know no
strategic ones.
"""

from __future__ import annotations

from typing import Any

SpecPatch = dict[str, Any]
"""Changes to a pod's spec, as a strategic merge patch writes them; None removes."""

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
}
"""Lists that are merged, by the field that tells their items apart; all others are replaced."""


def strategic_merge(have: Any, change: Any) -> Any:
    """The value with the change made."""
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
    """The same change for kinds that know only plain merge patches: lists are given whole."""
    after = strategic_merge(spec, change)
    return {name: after.get(name) if _has_list(value) else value for name, value in change.items()}


def _has_list(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_list(inner) for inner in value.values())
    return isinstance(value, list)
