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
from windlass.placement.topology.distribution import (
    NO_DOMAIN,
    DomainPool,
    FillOrder,
    best_fit_domain,
    distribute_units,
)
from windlass.placement.topology.domain_capacity import (
    NO_LEADER_COST,
    DomainCapacity,
    NodeCounts,
    domain_capacities,
)
from windlass.placement.topology.resolved_request import ImpossibleRequest, ResolvedRequest, resolve_request
from windlass.placement.topology.tree import DomainTree
from windlass.placement.topology.types import Ints, PodSetPlacement, TopologyPodSetRequest


@dataclass(frozen=True, slots=True, eq=False)
class ChosenDomains:
    """Domains of one layer that get something."""

    depth: int
    domains: Ints
    """Ascending."""
    pods: Ints
    """0 where only the leader is."""
    leader: int = NO_DOMAIN
    """The domain that seats it."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """Not everything fits: how many units do, and the level that was searched last."""

    depth: int
    fits: int


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """Everything has a place."""

    top: ChosenDomains
    """The domains of the level at which it fits."""
    nodes: ChosenDomains

    def placement(self, tree: DomainTree, name: str) -> PodSetPlacement:
        used = self.nodes.pods > 0
        rows, pods = tree.rows[self.nodes.domains[used]], self.nodes.pods[used]
        ascending = np.argsort(rows)
        domains = int((self.top.pods > 0).sum())
        return PodSetPlacement(name, rows[ascending], pods[ascending], tree.levels[self.top.depth], domains)

    def leader_placement(self, tree: DomainTree, name: str) -> PodSetPlacement:
        row = tree.rows[[self.nodes.leader]]
        return PodSetPlacement(name, row, np.ones(1, dtype=np.int64), tree.levels[self.top.depth], 1)


def resolve_in_tree(tree: DomainTree, request: TopologyRequest | None, count: int) -> ResolvedRequest:
    """The request in this tree; raises ImpossibleRequest."""
    search = resolve_request(request, tree.levels, len(tree.layers))
    if count % search.slice_size:
        raise ImpossibleRequest(f"{count} pod(s) can't be cut into slices of {search.slice_size}")
    if not len(tree.rows):
        raise ImpossibleRequest(f"no topology domains at level: {tree.levels[search.level]}")
    return search


def find_nodes(
    tree: DomainTree, search: ResolvedRequest, nodes: NodeCounts, request: TopologyPodSetRequest
) -> SearchResult | Shortage:
    """Nodes for the pods of an ask, given the room on each."""
    room = domain_capacities(tree, search, nodes)
    score = None if request.score is None else request.score[tree.rows]
    top = find_fitting_level(search, room, request.count // search.slice_size, score)
    return top if isinstance(top, Shortage) else SearchResult(top, descend(tree, search, room, top, score))


def find_fitting_level(
    search: ResolvedRequest, room: Sequence[DomainCapacity], units: int, score: Ints | None = None
) -> ChosenDomains | Shortage:
    """One domain that holds all units: at the requested level, or for a preference at the next wider one that has
    such a domain. Where none is required, several domains of the last level that was tried."""
    depth = search.level
    while True:
        here = room[depth]
        enough = here.units_with_leader >= units
        if here.takes_leader is not None:
            enough &= here.takes_leader
        merit = score if depth == len(room) - 1 else None
        alone = best_fit_domain(enough, here.units_with_leader, here.pods_with_leader, merit)
        if alone != NO_DOMAIN:
            leader = NO_DOMAIN if here.takes_leader is None else alone
            return ChosenDomains(depth, np.array([alone]), np.array([units * here.unit_size]), leader)
        if search.required:
            return Shortage(depth, _most(here))
        if search.unconstrained or depth == 0:
            return _several(search, here, depth, units, merit)
        depth -= 1


def _most(here: DomainCapacity) -> int:
    """Units that the roomiest domain holds, beside the leader where there is one."""
    if here.takes_leader is None:
        return int(here.units.max(initial=0))
    return int(here.units_with_leader[here.takes_leader].max(initial=0))


def _several(
    search: ResolvedRequest, here: DomainCapacity, depth: int, units: int, score: Ints | None
) -> ChosenDomains | Shortage:
    total = int(here.units.sum())
    if here.takes_leader is not None:
        cost = np.where(here.takes_leader, here.units - here.units_with_leader, NO_LEADER_COST)
        cheapest = int(cost.min(initial=NO_LEADER_COST))
        total = 0 if cheapest == NO_LEADER_COST else total - cheapest
    if total < units:
        return Shortage(depth, total)
    everywhere = np.arange(len(here.units))
    pool = _pool(here, everywhere, np.zeros_like(everywhere), score)
    leader = NO_DOMAIN if here.takes_leader is None else 0
    return _take(depth, here, everywhere, pool, np.array([units]), leader, _order(search))


def descend(
    tree: DomainTree,
    search: ResolvedRequest,
    room: Sequence[DomainCapacity],
    top: ChosenDomains,
    score: Ints | None,
) -> ChosenDomains:
    """From the domains that were found down to the nodes. `score` is by node of the last layer."""
    chosen = top
    last = len(tree.layers) - 1
    while chosen.depth < last:
        depth = chosen.depth + 1
        children, parent = _children(tree, chosen)
        here = room[depth]
        order = _order(search)
        own_score = score[children] if score is not None and depth == last else None
        if own_score is not None and tree.has_node_layer:
            order = FillOrder.BEST_SCORE
        needs = chosen.pods // here.unit_size
        leader = (
            NO_DOMAIN if chosen.leader == NO_DOMAIN else int(np.searchsorted(chosen.domains, chosen.leader))
        )
        if chosen.depth < search.slice_level:
            parent, needs = np.zeros_like(parent), needs.sum(keepdims=True)
            leader = NO_DOMAIN if leader == NO_DOMAIN else 0
        pool = _pool(here, children, parent, own_score)
        chosen = _take(depth, here, children, pool, needs, leader, order)
    return chosen


def _order(search: ResolvedRequest) -> FillOrder:
    return FillOrder.SMALLEST_FIRST if search.unconstrained else FillOrder.LARGEST_FIRST


def _children(tree: DomainTree, chosen: ChosenDomains) -> tuple[Ints, Ints]:
    """The children of the chosen domains, and for each the position of its parent among them."""
    first = tree.layers[chosen.depth].first_child
    begins = first[chosen.domains]
    sizes = first[chosen.domains + 1] - begins
    parent = np.repeat(np.arange(len(sizes)), sizes)
    shift = begins - (np.cumsum(sizes) - sizes)
    return np.arange(len(parent)) + shift[parent], parent


def _pool(here: DomainCapacity, domains: Ints, parent: Ints, score: Ints | None = None) -> DomainPool:
    return DomainPool(
        parent=parent,
        units=here.units[domains],
        pods=here.pods[domains],
        units_with_leader=here.units_with_leader[domains],
        takes_leader=None if here.takes_leader is None else here.takes_leader[domains],
        score=score,
    )


def _take(
    depth: int,
    here: DomainCapacity,
    domains: Ints,
    pool: DomainPool,
    needs: Ints,
    leader: int,
    order: FillOrder,
) -> ChosenDomains:
    taken, seat = distribute_units(pool, needs, leader, order)
    used = taken > 0
    if seat != NO_DOMAIN:
        used[seat] = True
    return ChosenDomains(
        depth=depth,
        domains=domains[used],
        pods=taken[used] * here.unit_size,
        leader=NO_DOMAIN if seat == NO_DOMAIN else int(domains[seat]),
    )
