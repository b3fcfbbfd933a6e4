"""Sums of quantities by resource name: what a pod asks for as a whole, and arithmetic on such lists.

Fed by `api.quota` and `api.limits`. An amount remembers how it was written, so that `1Gi` plus `1Gi` is `2Gi`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import msgspec

from windlass.embedded.api.quantities import format_quantity_like, quantity_value
from windlass.model.unstructured import Unstructured


class ResourceAmount(msgspec.Struct, frozen=True):
    """A value, and a text in whose family of suffixes it is to be written."""

    value: Fraction
    format_like: str = "0"

    def __str__(self) -> str:
        return format_quantity_like(self.value, self.format_like)


ResourceList = dict[str, ResourceAmount]


def parse_resource_list(texts: Mapping[str, str] | None) -> ResourceList:
    return {name: ResourceAmount(quantity_value(text), text) for name, text in (texts or {}).items()}


def add_resources(one: ResourceList, other: ResourceList) -> ResourceList:
    made = dict(one)
    for name, each in other.items():
        before = made.get(name)
        if before is None or not before.value:
            made[name] = each
        else:
            made[name] = ResourceAmount(before.value + each.value, before.format_like)
    return made


def subtract_resources(one: ResourceList, other: ResourceList) -> ResourceList:
    """One minus the other, by the names of the first."""
    return {
        name: ResourceAmount(each.value - other[name].value, each.format_like) if name in other else each
        for name, each in one.items()
    }


def max_resources(one: ResourceList, other: ResourceList) -> ResourceList:
    made = dict(one)
    for name, each in other.items():
        if name not in made or each.value > made[name].value:
            made[name] = each
    return made


def pod_resources(spec: Unstructured, which: str) -> ResourceList:
    """A pod's `requests` or `limits`: containers together, or an init container that needs more."""
    together: ResourceList = {}
    for container in spec.get("containers") or ():
        together = add_resources(together, parse_resource_list((container.get("resources") or {}).get(which)))
    beside: ResourceList = {}
    starting: ResourceList = {}
    for container in spec.get("initContainers") or ():
        mine = parse_resource_list((container.get("resources") or {}).get(which))
        if container.get("restartPolicy") == "Always":
            together, beside = add_resources(together, mine), add_resources(beside, mine)
            starting = max_resources(starting, beside)
        else:
            starting = max_resources(starting, add_resources(mine, beside))
    made = max_resources(together, starting)
    made = {**made, **parse_resource_list((spec.get("resources") or {}).get(which))}
    overhead = parse_resource_list(spec.get("overhead"))
    if which == "limits":
        overhead = {name: each for name, each in overhead.items() if name in made}
    return add_resources(made, overhead)
