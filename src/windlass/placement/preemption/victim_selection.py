"""Which of the units on one node have to go: the cheapest that free enough.

Called by `slots` for the few nodes that look best. Up to a dozen units every combination is weighed; with more of them
units are taken in order until it is enough, and given back, the dearest first, where they aren't needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.cluster.node_state import Ints
from windlass.placement.preemption.victim_units import VictimUnit

MAX_EXHAUSTIVE_UNITS = 12
EvictionCost = list[tuple[int, tuple[int, int, int]]]
"""Highest priority first: what goes of it loses so much, in so many pods. Lists compare as sets of victims do."""


def eviction_cost(units: Sequence[VictimUnit]) -> EvictionCost:
    sums: dict[int, list[int]] = {}
    for unit in units:
        if not unit.is_terminating:
            total = sums.setdefault(unit.priority, [0, 0, 0])
            for part, amount in enumerate((*unit.loss, len(unit.pods))):
                total[part] += amount
    return [
        (priority, (lost, share, pods))
        for priority, (lost, share, pods) in sorted(sums.items(), reverse=True)
    ]


def select_victims(units: Sequence[VictimUnit], freed: Ints, lacking: Ints) -> list[int] | None:
    """Positions of those to go; `freed[i]` is what unit i frees, `lacking` what is needed beyond what is free."""
    if np.any(freed.sum(axis=0) < lacking):
        return None
    if len(units) <= MAX_EXHAUSTIVE_UNITS:
        return _weighed(units, freed, lacking)
    return _in_order(freed, lacking)


def _weighed(units: Sequence[VictimUnit], freed: Ints, lacking: Ints) -> list[int]:
    count = len(units)
    chosen = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
    chosen = chosen[np.all(chosen @ freed >= lacking, axis=1)]
    columns: list[Ints] = []
    for priority in sorted({unit.priority for unit in units if not unit.is_terminating}, reverse=True):
        ours = np.array(
            [unit.priority == priority and not unit.is_terminating for unit in units], dtype=np.int64
        )
        columns.append(chosen @ ours)
        for part in range(3):
            amounts = [(*unit.loss, len(unit.pods))[part] for unit in units]
            columns.append(chosen @ (ours * np.array(amounts, dtype=np.int64)))
        columns[-4] = np.minimum(columns[-4], 1)
    # Among equals, those that come first in the order of going.
    columns.append(chosen @ (1 << np.arange(count)))
    best = np.lexsort(columns[::-1])[0]
    return np.flatnonzero(chosen[best]).tolist()


def _in_order(freed: Ints, lacking: Ints) -> list[int]:
    enough = np.all(np.cumsum(freed, axis=0) >= lacking, axis=1)
    taken = list(range(int(np.argmax(enough)) + 1))
    total = freed[taken].sum(axis=0)
    for position in reversed(taken[:-1]):
        if np.all(total - freed[position] >= lacking):
            total = total - freed[position]
            taken.remove(position)
    return taken
