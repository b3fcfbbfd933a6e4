"""Distributes units over domains: the greedy step of the search, for many parents at once.

`search` passes the children of the domains chosen so far, and gets the units of each child. Largest first uses the
fewest domains; the last one is then swapped for the smallest that still suffices, so that large domains stay free.
Smallest first, for pods that may go anywhere, fills small gaps instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from windlass.placement.topology.types import Bools, Ints

NO_DOMAIN = -1
_INFINITE = 1 << 62


class FillOrder(Enum):
    LARGEST_FIRST = "largest first"
    SMALLEST_FIRST = "smallest first"
    BEST_SCORE = "best score"


@dataclass(frozen=True, slots=True, eq=False)
class DomainPool:
    """Domains that may be used: the children of the first parent, then those of the second, and so on."""

    parent: Ints
    """Position of the parent: 0, 0, 1, 2, 2, …; each parent has at least one child."""
    units: Ints
    pods: Ints
    """Of domains with equal units, the one with fewer pods to spare comes first."""
    units_with_leader: Ints
    takes_leader: Bools | None
    score: Ints | None = None
    """Then the one with the higher score, then the one that is earlier in the pool."""


def distribute_units(pool: DomainPool, needs: Ints, leader: int, order: FillOrder) -> tuple[Ints, int]:
    """Units for each domain, so that the children of each parent get what it needs; and the domain of the leader.

    `leader` is the parent in which the leader must be, or NO_DOMAIN; the returned domain is a position in the pool, or
    NO_DOMAIN. The caller guarantees that the children of each parent have enough.
    """
    ranked = _rank(pool, order)
    if leader == NO_DOMAIN:
        return _fill(pool.parent, pool.units, ranked, needs, order), NO_DOMAIN
    children = ranked[pool.parent[ranked] == leader]
    leader_domain = int(children[_leader_domain(pool, children, int(needs[leader]), order)])
    leader_units = min(int(pool.units_with_leader[leader_domain]), int(needs[leader]))
    units, needs = pool.units.copy(), needs.copy()
    # Its units are settled with the leader; the rest is filled as if it were not there.
    units[leader_domain] = 0
    needs[leader] -= leader_units
    taken = _fill(pool.parent, units, ranked, needs, order)
    taken[leader_domain] = leader_units
    return taken, leader_domain


def best_fit_domain(enough: Bools, units: Ints, pods: Ints, score: Ints | None = None) -> int:
    """The domain with the fewest units of those that have enough, or NO_DOMAIN."""
    candidates = np.flatnonzero(enough)
    if not len(candidates):
        return NO_DOMAIN
    score_keys = () if score is None else (-score[candidates],)
    best = np.lexsort((*score_keys, pods[candidates], units[candidates]))[0]
    return int(candidates[best])


def _rank(pool: DomainPool, order: FillOrder) -> Ints:
    """Positions in the pool, parent by parent, in the order in which they are filled. The sort is stable."""
    score_keys = [] if pool.score is None else [-pool.score]
    if order is FillOrder.BEST_SCORE:
        return np.lexsort((*score_keys, pool.parent))
    by_size = pool.units if order is FillOrder.SMALLEST_FIRST else -pool.units
    return np.lexsort((*score_keys, pool.pods, by_size, pool.parent))


def _fill(parent: Ints, units: Ints, ranked: Ints, needs: Ints, order: FillOrder) -> Ints:
    if not len(ranked):
        return np.zeros(0, dtype=np.int64)  # no domain was chosen above: the pod set has no pods
    offer, owner = units[ranked], parent[ranked]
    starts = np.searchsorted(owner, np.arange(len(needs)))
    running_sum = np.cumsum(offer)
    before = running_sum - offer
    before -= before[starts][owner]
    take = np.clip(needs[owner] - before, 0, offer)
    # Smallest first has used all smaller domains already, and by score nothing but the score decides.
    if order is FillOrder.LARGEST_FIRST:
        lasts = np.flatnonzero((before < needs[owner]) & (before + offer >= needs[owner]))
        _swap_last(lasts, take, offer, owner, starts)
    taken = np.zeros(len(units), dtype=np.int64)
    taken[ranked] = take
    return taken


def _swap_last(lasts: Ints, take: Ints, offer: Ints, owner: Ints, starts: Ints) -> None:
    """Replaces the last used domain of each parent by the smallest unused one that can take its units.

    All parents at once; positions are those of the ranked pool.
    """
    rest = np.full(len(starts), _INFINITE)
    first_position = np.full(len(starts), _INFINITE)
    rest[owner[lasts]] = take[lasts]
    first_position[owner[lasts]] = lasts
    position = np.arange(len(take))
    # Earlier domains are full; the last one itself suffices, so that there is always an answer.
    suffices = (position >= first_position[owner]) & (offer >= rest[owner])
    least = np.minimum.reduceat(np.where(suffices, offer, _INFINITE), starts)
    better = np.minimum.reduceat(np.where(suffices & (offer == least[owner]), position, _INFINITE), starts)
    remaining = rest[owner[lasts]]
    take[lasts] = 0
    take[better[owner[lasts]]] = remaining


def _leader_domain(pool: DomainPool, children: Ints, need: int, order: FillOrder) -> int:
    """Position in `children` (one parent's, ranked) of the domain for the leader.

    Largest first: the domain with which the fewest domains are used. Smallest first: the first domain with which the
    rest still fits.
    """
    assert pool.takes_leader is not None
    takes, units = pool.takes_leader[children], pool.units[children]
    with_leader = pool.units_with_leader[children]
    if order is FillOrder.LARGEST_FIRST:
        single = best_fit_domain(takes & (with_leader >= need), with_leader, np.arange(len(children)))
        if single != NO_DOMAIN:
            return single
        return int(np.argmin(np.where(takes, _others_needed(units, need - with_leader), _INFINITE)))
    enough = takes & (int(units.sum()) - units + with_leader >= need)
    return int(np.argmax(enough))


def _others_needed(units: Ints, rest: Ints) -> Ints:
    """For each domain, the number of other domains that are needed to hold its rest; `units` are descending."""
    running_sum = np.cumsum(units)
    own = np.arange(len(units))
    without = np.searchsorted(running_sum, rest) + 1
    # From the domain's own position on, the running sum includes its own units, which don't count.
    past = np.searchsorted(running_sum, rest + units)
    others: Ints = np.where(without <= own, without, np.where(past < len(units), past, _INFINITE))
    return others
