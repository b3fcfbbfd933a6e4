"""Sharing out units over domains: the greedy step of the search, for many parents at once.

Fed by `search` with the children of the domains chosen so far; gives it back how many units each child gets. Largest
first takes the fewest domains; the last one is then swapped for the smallest that still suffices, so that large
holes stay whole. Smallest first (for pods that may go anywhere) fills small holes instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from windlass.placement.topology.types import Bools, Ints

NO_DOMAIN = -1
_FAR = 1 << 62


class FillOrder(Enum):
    """In which order domains are filled."""

    LARGEST_FIRST = "largest first"
    SMALLEST_FIRST = "smallest first"
    BEST_SCORE = "best score"


@dataclass(frozen=True, slots=True, eq=False)
class DomainPool:
    """Domains on offer, the children of one parent after those of another."""

    parent: Ints
    """Position of the parent, 0, 0, 1, 2, 2, …: each has at least one child."""
    units: Ints
    pods: Ints
    """Between equal units, the domain with fewer pods left over goes first."""
    units_with_leader: Ints
    takes_leader: Bools | None
    score: Ints | None = None
    """Then the higher score, then the order in the pool."""


def distribute_units(pool: DomainPool, needs: Ints, leader: int, order: FillOrder) -> tuple[Ints, int]:
    """Units for each domain so that each parent's children get what it needs, and who seats the leader.

    `leader` is the parent below which the leader must sit, or NOBODY; the answer names a domain of the pool likewise.
    The caller knows that the children of each parent have that much.
    """
    ranked = _ranked(pool, order)
    if leader == NO_DOMAIN:
        return _fill(pool.parent, pool.units, ranked, needs, order), NO_DOMAIN
    among = ranked[pool.parent[ranked] == leader]
    seat = int(among[_seat(pool, among, int(needs[leader]), order)])
    seated = min(int(pool.units_with_leader[seat]), int(needs[leader]))
    units, needs = pool.units.copy(), needs.copy()
    units[seat] = 0
    needs[leader] -= seated
    taken = _fill(pool.parent, units, ranked, needs, order)
    taken[seat] = seated
    return taken, seat


def best_fit_domain(enough: Bools, units: Ints, pods: Ints, score: Ints | None = None) -> int:
    """The domain with the least room of those that have enough, or NOBODY."""
    candidates = np.flatnonzero(enough)
    if not len(candidates):
        return NO_DOMAIN
    merit = () if score is None else (-score[candidates],)
    best = np.lexsort((*merit, pods[candidates], units[candidates]))[0]
    return int(candidates[best])


def _ranked(pool: DomainPool, order: FillOrder) -> Ints:
    """Positions in the pool, parent by parent, in the order in which they are filled. Sorting is stable."""
    merit = [] if pool.score is None else [-pool.score]
    if order is FillOrder.BEST_SCORE:
        return np.lexsort((*merit, pool.parent))
    by_size = pool.units if order is FillOrder.SMALLEST_FIRST else -pool.units
    return np.lexsort((*merit, pool.pods, by_size, pool.parent))


def _fill(parent: Ints, units: Ints, ranked: Ints, needs: Ints, order: FillOrder) -> Ints:
    if not len(ranked):
        return np.zeros(0, dtype=np.int64)  # below no domain: a set of no pods needs none
    offer, owner = units[ranked], parent[ranked]
    begins = np.searchsorted(owner, np.arange(len(needs)))
    upto = np.cumsum(offer)
    before = upto - offer
    before -= before[begins][owner]
    take = np.clip(needs[owner] - before, 0, offer)
    if order is FillOrder.LARGEST_FIRST:
        lasts = np.flatnonzero((before < needs[owner]) & (before + offer >= needs[owner]))
        _swap(lasts, take, offer, owner, begins)
    taken = np.zeros(len(units), dtype=np.int64)
    taken[ranked] = take
    return taken


def _swap(lasts: Ints, take: Ints, offer: Ints, owner: Ints, begins: Ints) -> None:
    """The last domain of each parent gives way to the smallest one, not used yet, that can take the rest."""
    rest = np.full(len(begins), _FAR)
    since = np.full(len(begins), _FAR)
    rest[owner[lasts]] = take[lasts]
    since[owner[lasts]] = lasts
    position = np.arange(len(take))
    able = (position >= since[owner]) & (offer >= rest[owner])
    least = np.minimum.reduceat(np.where(able, offer, _FAR), begins)
    better = np.minimum.reduceat(np.where(able & (offer == least[owner]), position, _FAR), begins)
    moved = rest[owner[lasts]]
    take[lasts] = 0
    take[better[owner[lasts]]] = moved


def _seat(pool: DomainPool, among: Ints, need: int, order: FillOrder) -> int:
    """Position in `among` (one parent's children, ranked) of the domain for the leader.

    The one with which the fewest domains are used; smallest first: the first one that leaves enough for the rest.
    """
    assert pool.takes_leader is not None
    takes, beside, units = pool.takes_leader[among], pool.units_with_leader[among], pool.units[among]
    if order is FillOrder.LARGEST_FIRST:
        alone = best_fit_domain(takes & (beside >= need), beside, np.arange(len(among)))
        if alone != NO_DOMAIN:
            return alone
        return int(np.argmin(np.where(takes, _others_needed(units, need - beside), _FAR)))
    enough = takes & (int(units.sum()) - units + beside >= need)
    return int(np.argmax(enough))


def _others_needed(units: Ints, rest: Ints) -> Ints:
    """For each domain, how many of the others it takes to hold its rest; `units` descend."""
    upto = np.cumsum(units)
    own = np.arange(len(units))
    without = np.searchsorted(upto, rest) + 1
    # From the domain's own position on, the running sum has its units in it, which are not to be had.
    past = np.searchsorted(upto, rest + units)
    others: Ints = np.where(without <= own, without, np.where(past < len(units), past, _FAR))
    return others
