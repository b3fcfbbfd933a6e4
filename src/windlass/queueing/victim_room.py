"""How much room evictions make, node by node: a model on plain numbers that `cheapest_victims` searches.

`placement.preemption.room_model` builds it from the overlay. Units are what may be evicted, by their number. The model
leaves rules out (between pods, of topologies, of planned starts) but never invents one: whatever has a place by all
rules has room here. So the cheapest victims by this model cost no more than the cheapest there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

MAX_AMOUNTS = 256
"""So many amounts that units free together are kept apart on one node; beyond that, the cheapest are."""

Option = tuple[int, tuple[int, ...]]
"""What it costs, and the units that are evicted for it."""


class NodeRoom(Protocol):
    @property
    def units(self) -> tuple[int, ...]:
        """The units with something on this node."""
        ...

    @property
    def work(self) -> int:
        """About so many entries are looked at for `options`."""
        ...

    def options(self, costs: Sequence[int | None]) -> list[Option | None]:
        """For 0, 1, 2, … pods the cheapest way to make room for so many; `costs` by unit, None: it stays."""
        ...


class RoomBySubset(NamedTuple):
    """A node with few units: for each set of them it is known how many pods fit without it."""

    units: tuple[int, ...]
    pods: Sequence[int]
    """By set, as a mask over `units`."""

    @property
    def work(self) -> int:
        return len(self.pods)

    def options(self, costs: Sequence[int | None]) -> list[Option | None]:
        sums: list[int | None] = [0]
        for cost in costs:
            if cost is None:
                sums += [None] * len(sums)
            else:
                sums += [None if total is None else total + cost for total in sums]
        best: list[tuple[int, int] | None] = [None] * (self.pods[-1] + 1)
        for mask, (total, pods) in enumerate(zip(sums, self.pods, strict=True)):
            if total is None:
                continue
            known = best[pods]
            if known is None or total < known[0]:
                best[pods] = total, mask
        return _fewer_fit_too(
            [None if found is None else (found[0], self._units_of(found[1])) for found in best],
        )

    def _units_of(self, mask: int) -> tuple[int, ...]:
        return tuple(unit for place, unit in enumerate(self.units) if mask >> place & 1)


class RoomByAmount(NamedTuple):
    """A node with many units, or a quota: they free amounts of one resource, of which some pods lack so much."""

    units: tuple[int, ...]
    freed: tuple[int, ...]
    """By unit."""
    lacking: tuple[int, ...]
    """For 0, 1, 2, … pods."""

    @property
    def work(self) -> int:
        most, sizes = self.lacking[-1], {freed for freed in self.freed if freed > 0}
        amounts = min(MAX_AMOUNTS, 1 + most // min(sizes, default=1))
        return len(self.units) + amounts * sum(-(-most // size) for size in sizes)

    def options(self, costs: Sequence[int | None]) -> list[Option | None]:
        most = self.lacking[-1]
        by_amount: dict[int, Option] = {0: (0, ())}
        for cost, unit, freed in self._useful(costs):
            for amount, (total, chosen) in list(by_amount.items()):
                more = min(most, amount + freed)
                known = by_amount.get(more)
                if amount < most and (known is None or total + cost < known[0]):
                    by_amount[more] = total + cost, (*chosen, unit)
            if len(by_amount) > MAX_AMOUNTS:
                by_amount = _cheapest_amounts(by_amount)
        return [
            min((option for amount, option in by_amount.items() if amount >= lack), default=None)
            for lack in self.lacking
        ]

    def _useful(self, costs: Sequence[int | None]) -> Iterator[tuple[int, int, int]]:
        """(cost, unit, freed): of units that free the same, only the cheapest few can be part of the cheapest set."""
        by_size: dict[int, list[tuple[int, int]]] = {}
        for unit, freed, cost in zip(self.units, self.freed, costs, strict=True):
            if cost is not None and freed > 0:
                by_size.setdefault(freed, []).append((cost, unit))
        for freed, members in by_size.items():
            yield from ((cost, unit, freed) for cost, unit in sorted(members)[: -(-self.lacking[-1] // freed)])


def _cheapest_amounts(by_amount: dict[int, Option]) -> dict[int, Option]:
    """Without amounts that cost more than a larger one; of the others, evenly thinned out, half as many as allowed."""
    kept: list[tuple[int, Option]] = []
    for amount, option in sorted(by_amount.items(), reverse=True):
        if not kept or option[0] < kept[-1][1][0]:
            kept.append((amount, option))
    step = max(1, len(kept) * 2 // MAX_AMOUNTS)
    return dict([*kept[::step], (0, (0, ()))])


def _fewer_fit_too(options: list[Option | None]) -> list[Option | None]:
    """Where more pods fit for less, fewer do as well."""
    for pods in range(len(options) - 2, -1, -1):
        larger, here = options[pods + 1], options[pods]
        if larger is not None and (here is None or larger[0] < here[0]):
            options[pods] = larger
    return options


class VictimRoom(NamedTuple):
    """Room for `pods` equal pods, all of them in one of the domains."""

    pods: int
    domains: Sequence[Sequence[NodeRoom]]
    free: Sequence[int]
    """By domain: pods for which there is room on its other nodes, whatever is evicted."""


class Lack(NamedTuple):
    """An amount that victims have to free together, of quota: what each unit frees of it."""

    amount: int
    freed: dict[int, int]


class Cap(NamedTuple):
    """So much of these units may go together: what a queue has borrowed, or what a disruption budget allows."""

    limit: int
    amounts: dict[int, int]
    """By unit."""
    spares_largest: bool = False
    """The largest of them is not counted: a queue may give one workload as long as it borrows anything."""

    def is_kept(self, units: Iterable[int]) -> bool:
        amounts = [self.amounts[unit] for unit in units if unit in self.amounts]
        if not amounts:
            return True
        return sum(amounts) - (max(amounts) if self.spares_largest else 0) <= self.limit
