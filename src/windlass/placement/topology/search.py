"""The search itself: find the level at which the pods fit, then walk down it, in as few domains as can be.

Fed by `plan` with the capacities of all domains; gives it the pods per node. Above the slice level the children of
all chosen domains are one pool; from there on each domain shares out what it was given among its own children, so
that no slice is torn apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from windlass.model.workload import TopologyRequest
from windlass.placement.topology.ask import Ints, SetPlacement, TopologyAsk
from windlass.placement.topology.capacity import NEVER, Capacity, NodeRoom, capacities
from windlass.placement.topology.levels import ImpossibleRequest, Search, resolve
from windlass.placement.topology.sharing_out import NOBODY, Order, Pool, share_out, smallest_sufficient
from windlass.placement.topology.tree import DomainTree


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """Domains of one layer that get something."""

    depth: int
    domains: Ints
    """Ascending."""
    pods: Ints
    """0 where only the leader is."""
    leader: int = NOBODY
    """The domain that seats it."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """Not everything fits: how many units do, and the level that was searched last."""

    depth: int
    fits: int


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Everything has a place."""

    top: Chosen
    """The domains of the level at which it fits."""
    nodes: Chosen

    def placement(self, tree: DomainTree, name: str) -> SetPlacement:
        used = self.nodes.pods > 0
        rows, pods = tree.rows[self.nodes.domains[used]], self.nodes.pods[used]
        ascending = np.argsort(rows)
        domains = int((self.top.pods > 0).sum())
        return SetPlacement(name, rows[ascending], pods[ascending], tree.levels[self.top.depth], domains)

    def leader_placement(self, tree: DomainTree, name: str) -> SetPlacement:
        row = tree.rows[[self.nodes.leader]]
        return SetPlacement(name, row, np.ones(1, dtype=np.int64), tree.levels[self.top.depth], 1)


def search_of(tree: DomainTree, request: TopologyRequest | None, count: int) -> Search:
    """The request in this tree; raises ImpossibleRequest."""
    search = resolve(request, tree.levels, len(tree.layers))
    if count % search.slice_size:
        raise ImpossibleRequest(f"{count} pod(s) can't be cut into slices of {search.slice_size}")
    if not len(tree.rows):
        raise ImpossibleRequest(f"no topology domains at level: {tree.levels[search.level]}")
    return search


def find_nodes(tree: DomainTree, search: Search, nodes: NodeRoom, ask: TopologyAsk) -> Found | Shortage:
    """Nodes for the pods of an ask, given the room on each."""
    room = capacities(tree, search, nodes)
    score = None if ask.score is None else ask.score[tree.rows]
    top = find_level(search, room, ask.count // search.slice_size, score)
    return top if isinstance(top, Shortage) else Found(top, descend(tree, search, room, top, score))


def find_level(
    search: Search, room: Sequence[Capacity], units: int, score: Ints | None = None
) -> Chosen | Shortage:
    """One domain that holds all units: at the requested level, or for a preference at the next wider one that has
    such a domain. Where none is required, several domains of the last level that was tried."""
    depth = search.level
    while True:
        here = room[depth]
        enough = here.units_beside >= units
        if here.takes_leader is not None:
            enough &= here.takes_leader
        merit = score if depth == len(room) - 1 else None
        alone = smallest_sufficient(enough, here.units_beside, here.pods_beside, merit)
        if alone != NOBODY:
            leader = NOBODY if here.takes_leader is None else alone
            return Chosen(depth, np.array([alone]), np.array([units * here.unit_size]), leader)
        if search.required:
            return Shortage(depth, _most(here))
        if search.unconstrained or depth == 0:
            return _several(search, here, depth, units, merit)
        depth -= 1


def _most(here: Capacity) -> int:
    """Units that the roomiest domain holds, beside the leader where there is one."""
    if here.takes_leader is None:
        return int(here.units.max(initial=0))
    return int(here.units_beside[here.takes_leader].max(initial=0))


def _several(search: Search, here: Capacity, depth: int, units: int, score: Ints | None) -> Chosen | Shortage:
    total = int(here.units.sum())
    if here.takes_leader is not None:
        cost = np.where(here.takes_leader, here.units - here.units_beside, NEVER)
        cheapest = int(cost.min(initial=NEVER))
        total = 0 if cheapest == NEVER else total - cheapest
    if total < units:
        return Shortage(depth, total)
    everywhere = np.arange(len(here.units))
    pool = _pool(here, everywhere, np.zeros_like(everywhere), score)
    leader = NOBODY if here.takes_leader is None else 0
    return _take(depth, here, everywhere, pool, np.array([units]), leader, _order(search))


def descend(
    tree: DomainTree, search: Search, room: Sequence[Capacity], top: Chosen, score: Ints | None
) -> Chosen:
    """From the domains that were found down to the nodes. `score` is by node of the last layer."""
    chosen = top
    last = len(tree.layers) - 1
    while chosen.depth < last:
        depth = chosen.depth + 1
        children, parent = _children(tree, chosen)
        here = room[depth]
        order = _order(search)
        own_score = score[children] if score is not None and depth == last else None
        if own_score is not None and tree.nodes_below:
            order = Order.BEST_SCORE
        needs = chosen.pods // here.unit_size
        leader = NOBODY if chosen.leader == NOBODY else int(np.searchsorted(chosen.domains, chosen.leader))
        if chosen.depth < search.slice_level:
            parent, needs = np.zeros_like(parent), needs.sum(keepdims=True)
            leader = NOBODY if leader == NOBODY else 0
        pool = _pool(here, children, parent, own_score)
        chosen = _take(depth, here, children, pool, needs, leader, order)
    return chosen


def _order(search: Search) -> Order:
    return Order.SMALLEST_FIRST if search.unconstrained else Order.LARGEST_FIRST


def _children(tree: DomainTree, chosen: Chosen) -> tuple[Ints, Ints]:
    """The children of the chosen domains, and for each the position of its parent among them."""
    first = tree.layers[chosen.depth].first_child
    begins = first[chosen.domains]
    sizes = first[chosen.domains + 1] - begins
    parent = np.repeat(np.arange(len(sizes)), sizes)
    shift = begins - (np.cumsum(sizes) - sizes)
    return np.arange(len(parent)) + shift[parent], parent


def _pool(here: Capacity, domains: Ints, parent: Ints, score: Ints | None = None) -> Pool:
    return Pool(
        parent=parent,
        units=here.units[domains],
        pods=here.pods[domains],
        units_beside=here.units_beside[domains],
        takes_leader=None if here.takes_leader is None else here.takes_leader[domains],
        score=score,
    )


def _take(
    depth: int, here: Capacity, domains: Ints, pool: Pool, needs: Ints, leader: int, order: Order
) -> Chosen:
    taken, seat = share_out(pool, needs, leader, order)
    used = taken > 0
    if seat != NOBODY:
        used[seat] = True
    return Chosen(
        depth=depth,
        domains=domains[used],
        pods=taken[used] * here.unit_size,
        leader=NOBODY if seat == NOBODY else int(domains[seat]),
    )
