"""Selects the victims on one node: the cheapest units that free enough.

`candidates` calls it for the few nodes with the lowest estimated cost. With up to a dozen units, all sets are compared;
with more, units are taken in order until they suffice, and those that are not needed are dropped, the most expensive
first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.cluster.node_state import Ints
from windlass.placement.preemption.victim_units import VictimUnit
from windlass.queueing.cheapest_victims import comparable_costs

MAX_EXHAUSTIVE_UNITS = 12
EvictionCost = list[tuple[int, tuple[int, int, int]]]
"""(priority, (lost GPU time, lost other resources, pods)), the highest priority first: comparing these lists compares
sets of victims, since a higher priority always counts more."""


def eviction_cost(units: Sequence[VictimUnit]) -> EvictionCost:
    sums: dict[int, list[int]] = {}
    for unit in units:
        if not unit.is_terminating:
            total = sums.setdefault(unit.priority, [0, 0, 0])
            for part, amount in enumerate((*unit.loss, len(unit.pods))):
                total[part] += amount
    return [(priority, (cost[0], cost[1], cost[2])) for priority, cost in sorted(sums.items(), reverse=True)]


def unit_costs(units: Sequence[VictimUnit]) -> list[int]:
    """Numbers whose sums compare sets of units as `eviction_cost` does."""
    losses = [(0, 0, 0) if unit.is_terminating else (*unit.loss, len(unit.pods)) for unit in units]
    return comparable_costs([(not unit.is_terminating, unit.priority) for unit in units], losses)


def select_victims(units: Sequence[VictimUnit], freed: Ints, lacking: Ints) -> list[int] | None:
    """Positions of the victims; `freed[i]` is what unit i frees, `lacking` what is needed beyond what is free."""
    if np.any(freed.sum(axis=0) < lacking):
        return None
    if len(units) <= MAX_EXHAUSTIVE_UNITS:
        return _exhaustive(units, freed, lacking)
    return _greedy(freed, lacking)


def _exhaustive(units: Sequence[VictimUnit], freed: Ints, lacking: Ints) -> list[int]:
    """Compares all 2^n sets at once: a row of `chosen` is a set, `columns` are the sort keys, most important first."""
    count = len(units)
    chosen = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
    chosen = chosen[np.all(chosen @ freed >= lacking, axis=1)]
    columns: list[Ints] = []
    for priority in sorted({unit.priority for unit in units if not unit.is_terminating}, reverse=True):
        counted = [unit.priority == priority and not unit.is_terminating for unit in units]
        same_priority = np.array(counted, dtype=np.int64)
        columns.append(chosen @ same_priority)
        for part in range(3):
            amounts = [(*unit.loss, len(unit.pods))[part] for unit in units]
            columns.append(chosen @ (same_priority * np.array(amounts, dtype=np.int64)))
        # First it counts whether any unit of this priority is evicted, then what is lost, then the number of pods.
        columns[-4] = np.minimum(columns[-4], 1)
    # Of equal sets, the one with the units that come first in the eviction order.
    columns.append(chosen @ (1 << np.arange(count)))
    # lexsort takes the most important key last.
    best = np.lexsort(columns[::-1])[0]
    return np.flatnonzero(chosen[best]).tolist()


def _greedy(freed: Ints, lacking: Ints) -> list[int]:
    enough = np.all(np.cumsum(freed, axis=0) >= lacking, axis=1)
    taken = list(range(int(np.argmax(enough)) + 1))
    total = freed[taken].sum(axis=0)
    # Not the last one: without it the units before it did not suffice.
    for position in reversed(taken[:-1]):
        if np.all(total - freed[position] >= lacking):
            total = total - freed[position]
            taken.remove(position)
    return taken
