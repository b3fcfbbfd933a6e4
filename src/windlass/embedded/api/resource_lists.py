"""Quantities by resource name: a pod's total requests and limits, and arithmetic on such lists.

Used by `resource_quota` and `limit_range`. An amount remembers how it was written, so that `1Gi` plus `1Gi` is
`2Gi`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import msgspec

from windlass.embedded.api.quantities import format_quantity_like, quantity_value
from windlass.model.unstructured import Unstructured


class ResourceAmount(msgspec.Struct, frozen=True):
    """A value, and a text whose kind of suffix is used to format it."""

    value: Fraction
    format_like: str = "0"

    def __str__(self) -> str:
        return format_quantity_like(self.value, self.format_like)


ResourceList = dict[str, ResourceAmount]


def parse_resource_list(texts: Mapping[str, str] | None) -> ResourceList:
    return {name: ResourceAmount(quantity_value(text), text) for name, text in (texts or {}).items()}


def add_resources(first: ResourceList, second: ResourceList) -> ResourceList:
    total = dict(first)
    for name, amount in second.items():
        before = total.get(name)
        if before is None or not before.value:
            total[name] = amount
        else:
            total[name] = ResourceAmount(before.value + amount.value, before.format_like)
    return total


def subtract_resources(first: ResourceList, second: ResourceList) -> ResourceList:
    """First minus second, for the names of the first."""
    return {
        name: ResourceAmount(amount.value - second[name].value, amount.format_like) if name in second else amount
        for name, amount in first.items()
    }


def max_resources(first: ResourceList, second: ResourceList) -> ResourceList:
    result = dict(first)
    for name, amount in second.items():
        if name not in result or amount.value > result[name].value:
            result[name] = amount
    return result


def pod_resources(spec: Unstructured, which: str) -> ResourceList:
    """A pod's `requests` or `limits`: the sum of its containers, or the largest need during initialization."""
    running: ResourceList = {}
    for container in spec.get("containers") or ():
        running = add_resources(running, parse_resource_list((container.get("resources") or {}).get(which)))
    sidecars: ResourceList = {}
    initializing: ResourceList = {}
    for container in spec.get("initContainers") or ():
        own = parse_resource_list((container.get("resources") or {}).get(which))
        if container.get("restartPolicy") == "Always":
            running, sidecars = add_resources(running, own), add_resources(sidecars, own)
            initializing = max_resources(initializing, sidecars)
        else:
            initializing = max_resources(initializing, add_resources(own, sidecars))
    total = max_resources(running, initializing)
    total = {**total, **parse_resource_list((spec.get("resources") or {}).get(which))}
    overhead = parse_resource_list(spec.get("overhead"))
    if which == "limits":
        overhead = {name: amount for name, amount in overhead.items() if name in total}
    return add_resources(total, overhead)
