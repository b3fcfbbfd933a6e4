"""How many pods of a set every domain takes: counted on the nodes, summed up the tree.

`search` calls it with the pods that fit on each node. A domain is counted in units: pods, or whole slices from the
slice level upward, since a slice must not span two domains of that level.

With a leader there are two numbers, without and with the leader in the domain. The leader costs a domain what it costs
the cheapest of its children.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windlass.placement.topology.resolved_request import ResolvedRequest
from windlass.placement.topology.tree import DomainTree
from windlass.placement.topology.types import Bools, Ints

NO_LEADER_COST = 1 << 62
"""Cost of the leader in a domain that can't take it."""


@dataclass(frozen=True, slots=True, eq=False)
class DomainCapacity:
    """The capacity of all domains of one layer of the tree."""

    pods: Ints
    units: Ints
    unit_size: int
    """Pods per unit."""
    pods_with_leader: Ints
    """`pods` with the leader in the domain; the same array where there is no leader."""
    units_with_leader: Ints
    takes_leader: Bools | None
    """None: there is no leader."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeCounts:
    """What `NodeCapacity` says about the nodes, in the order of the tree's last layer."""

    pods: Ints
    pods_with_leader: Ints
    takes_leader: Bools | None


def domain_capacities(tree: DomainTree, search: ResolvedRequest, nodes: NodeCounts) -> tuple[DomainCapacity, ...]:
    """The capacity of every layer, widest first."""
    last = len(tree.layers) - 1
    capacities = [_in_units(nodes, search, last)]
    for depth in range(last - 1, -1, -1):
        first_child = tree.layers[depth].first_child[:-1]
        below = capacities[-1]
        sums = _sum_of_pods(below, first_child, search.pods_multiple[depth + 1])
        if depth >= search.slice_level:
            capacities.append(_in_units(sums, search, depth))
        else:
            capacities.append(_sum_of_slices(below, sums, first_child))
    return tuple(reversed(capacities))


def _in_units(counts: NodeCounts, search: ResolvedRequest, depth: int) -> DomainCapacity:
    """At and below the slice level, units are the pods of a domain divided by the unit size."""
    size = search.slice_size if depth == search.slice_level else search.pods_multiple[depth]
    units = counts.pods // size
    return DomainCapacity(
        pods=counts.pods,
        units=units,
        unit_size=size,
        pods_with_leader=counts.pods_with_leader,
        units_with_leader=units if counts.takes_leader is None else counts.pods_with_leader // size,
        takes_leader=counts.takes_leader,
    )


def _sum_of_pods(below: DomainCapacity, first_child: Ints, multiple: int) -> NodeCounts:
    """Only whole multiples of an inner slice count: the parent's slices can't use the rest of a child."""
    pods = below.pods // multiple * multiple
    total: Ints = np.add.reduceat(pods, first_child)
    if below.takes_leader is None:
        return NodeCounts(total, total, None)
    with_leader = below.pods_with_leader // multiple * multiple
    return NodeCounts(
        pods=total,
        pods_with_leader=_without_leader_cost(total, pods - with_leader, below.takes_leader, first_child),
        takes_leader=np.logical_or.reduceat(below.takes_leader, first_child),
    )


def _sum_of_slices(below: DomainCapacity, sums: NodeCounts, first_child: Ints) -> DomainCapacity:
    units: Ints = np.add.reduceat(below.units, first_child)
    with_leader = units
    if below.takes_leader is not None:
        cost = below.units - below.units_with_leader
        with_leader = _without_leader_cost(units, cost, below.takes_leader, first_child)
    return DomainCapacity(
        pods=sums.pods,
        units=units,
        unit_size=below.unit_size,
        pods_with_leader=sums.pods_with_leader,
        units_with_leader=with_leader,
        takes_leader=sums.takes_leader,
    )


def _without_leader_cost(total: Ints, cost: Ints, takes_leader: Bools, first_child: Ints) -> Ints:
    """Each total minus the cost of the leader where it costs least; 0 where no child takes the leader."""
    # reduceat is right only for non-empty ranges: every domain has a child, or it would not exist.
    cheapest = np.minimum.reduceat(np.where(takes_leader, cost, NO_LEADER_COST), first_child)
    left: Ints = np.where(cheapest == NO_LEADER_COST, 0, total - cheapest)
    return left
