"""The search: finds the level at which the pods fit, then descends to the nodes, in as few domains as possible.

`plan` and `replacement` call `find_nodes`. Above the slice level, the children of all chosen domains are one pool; from
there on, each domain distributes its own units among its own children, so that no slice is split.
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
    """The domains of one layer that get pods."""

    depth: int
    domains: Ints
    """Ascending."""
    pods: Ints
    """0 where a domain has only the leader."""
    leader: int = NO_DOMAIN
    """The domain that gets the leader."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """Not everything fits: the level that was searched last, and how many units fit there."""

    depth: int
    fits: int


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    top: ChosenDomains
    """The domains of the level at which it fits."""
    nodes: ChosenDomains

    def placement(self, tree: DomainTree, name: str) -> PodSetPlacement:
        used = self.nodes.pods > 0
        rows, pods = tree.rows[self.nodes.domains[used]], self.nodes.pods[used]
        # Domains are in the order of their values, rows in the order of nodes.
        ascending = np.argsort(rows)
        domains = int((self.top.pods > 0).sum())
        return PodSetPlacement(name, rows[ascending], pods[ascending], tree.levels[self.top.depth], domains)

    def leader_placement(self, tree: DomainTree, name: str) -> PodSetPlacement:
        row = tree.rows[[self.nodes.leader]]
        return PodSetPlacement(name, row, np.ones(1, dtype=np.int64), tree.levels[self.top.depth], 1)


def resolve_in_tree(tree: DomainTree, request: TopologyRequest | None, count: int) -> ResolvedRequest:
    """The request in levels of this tree; raises ImpossibleRequest."""
    resolved = resolve_request(request, tree.levels, len(tree.layers))
    if count % resolved.slice_size:
        raise ImpossibleRequest(f"{count} pod(s) can't be divided into slices of {resolved.slice_size}")
    if not len(tree.rows):
        raise ImpossibleRequest(f"no topology domains at level: {tree.levels[resolved.level]}")
    return resolved


def find_nodes(
    tree: DomainTree, resolved: ResolvedRequest, nodes: NodeCounts, request: TopologyPodSetRequest
) -> SearchResult | Shortage:
    """Nodes for the pods of a request, given how many fit on each."""
    layers = domain_capacities(tree, resolved, nodes)
    score = None if request.score is None else request.score[tree.rows]
    top = find_fitting_level(resolved, layers, request.count // resolved.slice_size, score)
    if isinstance(top, Shortage):
        return top
    return SearchResult(top, descend(tree, resolved, layers, top, score))


def find_fitting_level(
    resolved: ResolvedRequest, capacities: Sequence[DomainCapacity], units: int, score: Ints | None = None
) -> ChosenDomains | Shortage:
    """One domain that holds all units: at the requested level or, if it is preferred, at the next wider level that has
    such a domain. If no level is required, several domains of the level that was tried last."""
    depth = resolved.level
    while True:
        capacity = capacities[depth]
        enough = capacity.units_with_leader >= units
        if capacity.takes_leader is not None:
            enough &= capacity.takes_leader
        # Scores are by node, and only the last layer is nodes.
        node_score = score if depth == len(capacities) - 1 else None
        single = best_fit_domain(enough, capacity.units_with_leader, capacity.pods_with_leader, node_score)
        if single != NO_DOMAIN:
            leader = NO_DOMAIN if capacity.takes_leader is None else single
            return ChosenDomains(depth, np.array([single]), np.array([units * capacity.unit_size]), leader)
        if resolved.required:
            return Shortage(depth, _largest_domain_units(capacity))
        # Nothing wider is left to try.
        if resolved.unconstrained or depth == 0:
            return _spread_over_domains(resolved, capacity, depth, units, node_score)
        depth -= 1


def _largest_domain_units(capacity: DomainCapacity) -> int:
    """Units of the largest domain, with the leader in it where there is one."""
    if capacity.takes_leader is None:
        return int(capacity.units.max(initial=0))
    return int(capacity.units_with_leader[capacity.takes_leader].max(initial=0))


def _spread_over_domains(
    resolved: ResolvedRequest, capacity: DomainCapacity, depth: int, units: int, score: Ints | None
) -> ChosenDomains | Shortage:
    total = int(capacity.units.sum())
    if capacity.takes_leader is not None:
        cost = np.where(capacity.takes_leader, capacity.units - capacity.units_with_leader, NO_LEADER_COST)
        cheapest = int(cost.min(initial=NO_LEADER_COST))
        # The leader goes where it displaces the fewest workers.
        total = 0 if cheapest == NO_LEADER_COST else total - cheapest
    if total < units:
        return Shortage(depth, total)
    all_domains = np.arange(len(capacity.units))
    pool = _make_pool(capacity, all_domains, np.zeros_like(all_domains), score)
    leader = NO_DOMAIN if capacity.takes_leader is None else 0
    return _choose(depth, capacity, all_domains, pool, np.array([units]), leader, _fill_order(resolved))


def descend(
    tree: DomainTree,
    resolved: ResolvedRequest,
    capacities: Sequence[DomainCapacity],
    top: ChosenDomains,
    score: Ints | None,
) -> ChosenDomains:
    """From the domains that were found down to the nodes. `score` is by node, in the order of the last layer."""
    chosen = top
    last = len(tree.layers) - 1
    while chosen.depth < last:
        depth = chosen.depth + 1
        children, parent = _children(tree, chosen)
        capacity = capacities[depth]
        order = _fill_order(resolved)
        child_score = score[children] if score is not None and depth == last else None
        if child_score is not None and tree.has_node_layer:
            order = FillOrder.BEST_SCORE
        needs = chosen.pods // capacity.unit_size
        leader = chosen.leader
        if leader != NO_DOMAIN:
            # From the number of the domain to its position among the chosen ones, which are ascending.
            leader = int(np.searchsorted(chosen.domains, leader))
        if chosen.depth < resolved.slice_level:
            # Above the slice level, whole units may go to any child: all children are one pool with one parent.
            parent, needs = np.zeros_like(parent), needs.sum(keepdims=True)
            leader = NO_DOMAIN if leader == NO_DOMAIN else 0
        pool = _make_pool(capacity, children, parent, child_score)
        chosen = _choose(depth, capacity, children, pool, needs, leader, order)
    return chosen


def _fill_order(resolved: ResolvedRequest) -> FillOrder:
    return FillOrder.SMALLEST_FIRST if resolved.unconstrained else FillOrder.LARGEST_FIRST


def _children(tree: DomainTree, chosen: ChosenDomains) -> tuple[Ints, Ints]:
    """The children of the chosen domains, and for each the position of its parent among the chosen ones."""
    first = tree.layers[chosen.depth].first_child
    starts = first[chosen.domains]
    sizes = first[chosen.domains + 1] - starts
    parent = np.repeat(np.arange(len(sizes)), sizes)
    shift = starts - (np.cumsum(sizes) - sizes)
    return np.arange(len(parent)) + shift[parent], parent


def _make_pool(layer: DomainCapacity, domains: Ints, parent: Ints, score: Ints | None = None) -> DomainPool:
    return DomainPool(
        parent=parent,
        units=layer.units[domains],
        pods=layer.pods[domains],
        units_with_leader=layer.units_with_leader[domains],
        takes_leader=None if layer.takes_leader is None else layer.takes_leader[domains],
        score=score,
    )


def _choose(
    depth: int,
    capacity: DomainCapacity,
    domains: Ints,
    pool: DomainPool,
    needs: Ints,
    leader: int,
    order: FillOrder,
) -> ChosenDomains:
    taken, leader_domain = distribute_units(pool, needs, leader, order)
    used = taken > 0
    if leader_domain != NO_DOMAIN:
        # Also without a worker: the leader takes its node.
        used[leader_domain] = True
    return ChosenDomains(
        depth=depth,
        domains=domains[used],
        pods=taken[used] * capacity.unit_size,
        leader=NO_DOMAIN if leader_domain == NO_DOMAIN else int(domains[leader_domain]),
    )
