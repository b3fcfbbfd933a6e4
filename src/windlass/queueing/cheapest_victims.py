"""The cheapest victims, by branch and bound: one search for quota and place, queued and unqueued units together.

`classical_preemption`, `fair_sharing_preemption` and `placement.preemption.gang` call it, with victims that they know
or without. A model of the nodes (`victim_room`) and of quota proposes sets of units, the cheapest first; the caller's
`attempt` removes them by every rule and says whether the preemptor fits then. Where a proposal fails or costs more than
the bound, one of its units is decided: in one branch it stays, in the other it goes.

Steps are counted, never seconds. What is left open when they run out gives a lower bound on the cost of any victims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any, Generic, NamedTuple, TypeVar

from windlass.queueing.victim_room import Cap, Lack, NodeRoom, Option, RoomByAmount, VictimRoom

MAX_STEPS = 400
"""Proposals that are computed in one search."""
MAX_WORK = 120_000
"""Entries that are looked at in one search; with many units this ends it before the steps do."""
MAX_ATTEMPTS = 48
"""Proposals that are tried by every rule, each with a placement."""
WORK_OF_ATTEMPT = 20
"""An attempt counts as so many entries for each unit: the more there are, the larger is the cluster."""
SPLIT = 5040
"""Costs are multiplied by it, so that a unit on several nodes can be counted in parts on each of them."""

_FIELD = 64
"""Bits for the sum of one part of the cost over all victims."""

Found = TypeVar("Found")


class Attempt(NamedTuple, Generic[Found]):
    """What became of a proposal."""

    is_allowed: bool
    """False: these units may not be evicted together, and no more of them either."""
    cost: int = 0
    found: Found | None = None
    """The victims; None where the preemptor doesn't fit without these units."""


class Victims(NamedTuple, Generic[Found]):
    cost: int
    found: Found | None
    bound: int
    """No victims cost less; equal to `cost` where the search was complete."""


class _Branch(NamedTuple):
    bound: int
    order: int
    """Breaks ties, the newest first: deep branches lead to victims sooner."""
    going: frozenset[int]
    staying: frozenset[int]
    proposal: frozenset[int]


class CheapestVictims(Generic[Found]):
    def __init__(
        self,
        costs: Sequence[int],
        room: VictimRoom | None,
        lacks: Sequence[Lack],
        caps: Sequence[Cap],
        attempt: Callable[[list[int]], Attempt[Found]],
    ) -> None:
        """`costs` by unit, such that sums compare sets of victims; `attempt` gets units in ascending order."""
        self._costs, self._room, self._caps, self._attempt = costs, room, caps, attempt
        self._lacks = [RoomByAmount(tuple(lack.freed), tuple(lack.freed.values()), (0, lack.amount)) for lack in lacks]
        self._nodes_of = [_count_nodes(domain) for domain in room.domains] if room is not None else []
        self._options: dict[tuple[int, int, frozenset[int], frozenset[int]], list[Option | None]] = {}
        self._open: list[_Branch] = []
        self._steps = self._work = self._attempts = 0
        self._tried: dict[frozenset[int], Attempt[Found]] = {}
        self._prices = [0] * len(caps)
        """By cap: what a unit costs in addition for each of its amount, so that proposals keep to the cap by itself."""
        self._priced = [cost * SPLIT for cost in costs]
        """Costs with prices, multiplied by `SPLIT`."""
        self._best: Attempt[Found] = Attempt(True)

    def search(self, known: Found | None = None, known_cost: int = 0) -> Victims[Found]:
        """`known`: victims that are known already; the result costs no more."""
        self._best = Attempt(True, known_cost, known)
        self._set_prices()
        self._push(frozenset(), frozenset())
        # The first proposal is tried in any case.
        while self._open and self._is_worthwhile(self._open[0].bound) and not (self._is_spent() and self._tried):
            branch = heappop(self._open)
            tried = self._try(branch.proposal)
            if not tried.is_allowed:
                self._dive(branch)
            self._split(branch, tried)
        cost, found = self._best.cost, self._best.found
        bound = max(0, self._open[0].bound // SPLIT) if self._open else cost
        return Victims(cost, found, bound if found is None else min(bound, cost))

    def _is_spent(self, part: int = 1) -> bool:
        """Whether this part of what may be done is done: half of it for 2."""
        work, steps = MAX_WORK // part, MAX_STEPS // part
        return self._steps >= steps or self._work >= work or self._attempts >= MAX_ATTEMPTS

    def _is_worthwhile(self, bound: int) -> bool:
        return self._best.found is None or bound < self._best.cost * SPLIT

    def _try(self, proposal: frozenset[int]) -> Attempt[Found]:
        known = self._tried.get(proposal)
        if known is None:
            if not self._is_kept(proposal):
                return Attempt(False)
            self._attempts += 1
            self._work += WORK_OF_ATTEMPT * len(self._costs)
            known = self._tried[proposal] = self._attempt(sorted(proposal))
            if known.found is not None and (self._best.found is None or known.cost < self._best.cost):
                self._best = known
        return known

    def _is_kept(self, units: Iterable[int]) -> bool:
        return all(cap.is_kept(units) for cap in self._caps)

    def _dive(self, branch: _Branch) -> None:
        """Follows a proposal that goes too far: what is allowed of it goes, the rest stays, until a proposal is
        allowed. So there are good victims long before all branches were looked at."""
        going, staying, proposal = branch.going, branch.staying, branch.proposal
        while not self._is_spent():
            for unit in sorted(proposal - going, key=lambda unit: (self._costs[unit], unit)):
                if self._is_kept((*going, unit)):
                    going |= {unit}
                else:
                    staying |= {unit}
            self._steps += 1
            found = self._propose(going, self._with_excluded(going, staying))
            if found is None or not self._is_worthwhile(found[0]):
                return
            proposal = going.union(found[1])
            if self._is_kept(proposal):
                self._try(proposal)
                return

    def _split(self, branch: _Branch, tried: Attempt[Found]) -> None:
        """Decides one more unit: of the proposal, or, where all of these go and don't suffice, the next cheapest."""
        undecided = branch.proposal - branch.going
        if tried.found is not None and sum(self._costs[unit] for unit in branch.proposal) * SPLIT <= branch.bound:
            return  # nothing in this branch is cheaper
        if not undecided:
            if not tried.is_allowed or tried.found is not None:
                return
            others = (unit for unit in range(len(self._costs)) if unit not in branch.staying | branch.going)
            undecided = frozenset(sorted(others, key=lambda unit: (self._costs[unit], unit))[:1])
        broken = [cap for cap in self._caps if not cap.is_kept(branch.proposal)]
        disputed = {unit for unit in undecided if any(unit in cap.amounts for cap in broken)}
        for unit in sorted(disputed or undecided, key=lambda unit: (-self._costs[unit], unit))[:1]:
            self._push(branch.going, branch.staying | {unit})
            self._push(branch.going | {unit}, branch.staying)

    def _push(self, going: frozenset[int], staying: frozenset[int]) -> None:
        self._steps += 1
        if not self._is_kept(going):
            return
        staying = self._with_excluded(going, staying)
        found = self._propose(going, staying)
        if found is not None and self._is_worthwhile(found[0]):
            heappush(self._open, _Branch(found[0], -self._steps, going, staying, going.union(found[1])))

    def _with_excluded(self, going: frozenset[int], staying: frozenset[int]) -> frozenset[int]:
        """With the units that may not go beside those that go."""
        return staying.union(
            unit for cap in self._caps for unit in cap.amounts if unit not in going and not cap.is_kept((*going, unit))
        )

    # Prices

    def _set_prices(self) -> None:
        """For each cap that proposals would exceed, the price with the highest lower bound."""
        nothing: frozenset[int] = frozenset()
        for number, cap in enumerate(self._caps):
            found = self._propose(nothing, nothing)
            if found is None or cap.is_kept(found[1]):
                continue
            typical = max(1, sorted(cap.amounts.values())[len(cap.amounts) // 2])
            prices = [0, *sorted({cost * SPLIT // typical for cost in self._costs})]
            low, high = 0, len(prices) - 1
            # The bound is concave in the price.
            while low < high and not self._is_spent(2):
                middle = (low + high) // 2
                if self._bound_at(number, prices[middle]) < self._bound_at(number, prices[middle + 1]):
                    low = middle + 1
                else:
                    high = middle
            self._set_price(number, prices[low])

    def _bound_at(self, cap: int, price: int) -> int:
        self._set_price(cap, price)
        self._steps += 1
        found = self._propose(frozenset(), frozenset())
        return found[0] if found is not None else 0

    # Proposals

    def _propose(self, going: frozenset[int], staying: frozenset[int]) -> Option | None:
        """The lower bound, multiplied by `SPLIT`, and units that go; None where no more than these may stay."""
        sunk = sum(self._costs[unit] for unit in going) * SPLIT - self._refund(going)
        bound = 0
        chosen: tuple[int, ...] = ()
        if self._room is not None:
            places = [
                found
                for domain in range(len(self._room.domains))
                if (found := self._in_domain(domain, going, staying)) is not None
            ]
            if not places:
                return None
            bound, chosen = min(places, key=lambda place: place[0])
        for lack in self._lacks:
            self._work += 2 * lack.work
            alone = lack.options(self._costs_for(lack.units, going, staying))[1]
            if alone is None:
                return None
            bound = max(bound, alone[0])
            beside = lack.options(self._costs_for(lack.units, going.union(chosen), staying))[1]
            chosen = (*chosen, *(beside[1] if beside is not None else ()))
        return sunk + bound, chosen

    def _costs_for(self, units: Iterable[int], going: frozenset[int], staying: frozenset[int]) -> list[int | None]:
        return [None if unit in staying else 0 if unit in going else self._priced[unit] for unit in units]

    def _set_price(self, cap: int, price: int) -> None:
        change, self._prices[cap] = price - self._prices[cap], price
        for unit, amount in self._caps[cap].amounts.items():
            self._priced[unit] += change * amount
        self._options.clear()

    def _refund(self, going: frozenset[int]) -> int:
        """What is paid at most for keeping to the caps, which is no loss: units that stay within them pay it, too."""
        refund = 0
        for cap, price in zip(self._caps, self._prices, strict=True):
            if price:
                largest = max(cap.amounts.values()) if cap.spares_largest else 0
                used = sum(cap.amounts[unit] for unit in going if unit in cap.amounts)
                refund += price * max(0, cap.limit + largest - used)
        return refund

    def _in_domain(self, domain: int, going: frozenset[int], staying: frozenset[int]) -> Option | None:
        """The cheapest nodes for all pods, if every unit costs its part on each of its nodes."""
        assert self._room is not None, "only places have domains"
        wanted = self._room.pods - self._room.free[domain]
        best: list[tuple[int, _Chain] | None] = [(0, None), *[None] * max(0, wanted)]
        for number in range(len(self._room.domains[domain])):
            options = self._node_options(domain, number, going, staying)
            self._work += len(options) * len(best)
            best = _combine(best, options)
        found = best[-1] if wanted > 0 else (0, None)
        return None if found is None else (found[0], _flatten(found[1]))

    def _node_options(
        self, domain: int, number: int, going: frozenset[int], staying: frozenset[int]
    ) -> list[Option | None]:
        assert self._room is not None, "only places have nodes"
        node = self._room.domains[domain][number]
        here = frozenset(node.units)
        key = (domain, number, going & here, staying & here)
        known = self._options.get(key)
        if known is None:
            parts = self._nodes_of[domain]
            whole = self._costs_for(node.units, going, staying)
            costs = [
                None if cost is None else cost // parts[unit] for unit, cost in zip(node.units, whole, strict=True)
            ]
            self._work += node.work
            known = self._options[key] = node.options(costs)
        return known


def comparable_costs(classes: Sequence[Any], losses: Sequence[tuple[int, int, int]]) -> list[int]:
    """By unit; sums compare sets of victims: the highest class first, then in each class what is lost, part by part."""
    ranks = {key: rank for rank, key in enumerate(sorted(set(classes)))}
    found = []
    for key, (gpus, other, pods) in zip(classes, losses, strict=True):
        # One more than its pods, so that a class counts as evicted even where nothing is lost.
        cost = (gpus << 2 * _FIELD) + (other << _FIELD) + pods + 1
        found.append(cost << 3 * _FIELD * ranks[key])
    return found


def least_gpus_lost(cost: int, bound: int) -> int:
    """Milli-GPU-seconds that any victims lose: of all classes where the cost is the least; else of the highest one.

    Where cheaper victims are possible, they may lose nothing in the lower classes.
    """
    classes = range(-(-cost.bit_length() // (3 * _FIELD)))
    if bound >= cost:
        return sum(cost >> _FIELD * (3 * rank + 2) & (1 << _FIELD) - 1 for rank in classes)
    return bound >> _FIELD * (3 * len(classes) - 1) if classes else 0


_Chain = tuple["_Chain", tuple[int, ...]] | None
"""Units that were chosen on one node after another; a chain, since most are thrown away."""


def _combine(
    best: list[tuple[int, _Chain] | None], options: Sequence[Option | None]
) -> list[tuple[int, _Chain] | None]:
    """`best` by pods that have room so far, with one more node."""
    combined = list(best)
    last = len(best) - 1
    for pods, so_far in enumerate(best):
        if so_far is None:
            continue
        for more, option in enumerate(options):
            if option is None or not more:
                continue
            total, cost = min(last, pods + more), so_far[0] + option[0]
            known = combined[total]
            if known is None or cost < known[0]:
                combined[total] = cost, ((so_far[1], option[1]) if option[1] else so_far[1])
    return combined


def _flatten(chain: _Chain) -> tuple[int, ...]:
    units: dict[int, None] = {}
    while chain is not None:
        units.update(dict.fromkeys(chain[1]))
        chain = chain[0]
    return tuple(units)


def _count_nodes(domain: Iterable[NodeRoom]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for node in domain:
        for unit in node.units:
            counts[unit] = counts.get(unit, 0) + 1
    return counts
