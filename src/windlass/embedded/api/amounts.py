"""Sums of quantities by resource name: what a pod asks for as a whole, and arithmetic on such lists.

Fed by `api.quota` and `api.limits`. An amount remembers how it was written, so that `1Gi` plus `1Gi` is `2Gi`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import msgspec

from windlass.embedded.api.quantities import amount, written
from windlass.embedded.api.trees import Tree


class Amount(msgspec.Struct, frozen=True):
    """A value, and a text in whose family of suffixes it is to be written."""

    value: Fraction
    like: str = "0"

    def __str__(self) -> str:
        return written(self.value, self.like)


Amounts = dict[str, Amount]


def read(texts: Mapping[str, str] | None) -> Amounts:
    return {name: Amount(amount(text), text) for name, text in (texts or {}).items()}


def added(one: Amounts, other: Amounts) -> Amounts:
    made = dict(one)
    for name, each in other.items():
        before = made.get(name)
        if before is None or not before.value:
            made[name] = each
        else:
            made[name] = Amount(before.value + each.value, before.like)
    return made


def less(one: Amounts, other: Amounts) -> Amounts:
    """One minus the other, by the names of the first."""
    return {
        name: Amount(each.value - other[name].value, each.like) if name in other else each
        for name, each in one.items()
    }


def largest(one: Amounts, other: Amounts) -> Amounts:
    made = dict(one)
    for name, each in other.items():
        if name not in made or each.value > made[name].value:
            made[name] = each
    return made


def of_pod(spec: Tree, which: str) -> Amounts:
    """A pod's `requests` or `limits`: containers together, or an init container that needs more."""
    together: Amounts = {}
    for container in spec.get("containers") or ():
        together = added(together, read((container.get("resources") or {}).get(which)))
    beside: Amounts = {}
    starting: Amounts = {}
    for container in spec.get("initContainers") or ():
        mine = read((container.get("resources") or {}).get(which))
        if container.get("restartPolicy") == "Always":
            together, beside = added(together, mine), added(beside, mine)
            starting = largest(starting, beside)
        else:
            starting = largest(starting, added(mine, beside))
    made = largest(together, starting)
    made = {**made, **read((spec.get("resources") or {}).get(which))}
    overhead = read(spec.get("overhead"))
    if which == "limits":
        overhead = {name: each for name, each in overhead.items() if name in made}
    return added(made, overhead)
