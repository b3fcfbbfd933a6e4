"""How much of a pod set every domain takes: counted on the nodes, summed up the tree.

Fed by `plan` with the room on each node; feeds `search`. What a domain takes is counted in units: pods, or whole
slices from the slice level upward, since a slice must not straddle two domains of that level.

With a leader there are two numbers, without and beside it. One leader costs a domain what it costs the child that is
cheapest to seat it in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windlass.placement.topology.resolved_request import ResolvedRequest
from windlass.placement.topology.tree import DomainTree
from windlass.placement.topology.types import Bools, Ints

NO_LEADER_COST = 1 << 62
"""Cost of seating the leader in a domain that can't take it."""


@dataclass(frozen=True, slots=True, eq=False)
class DomainCapacity:
    """One layer of the tree, by domain."""

    pods: Ints
    units: Ints
    unit_size: int
    """Pods a unit."""
    pods_with_leader: Ints
    """`pods` once the leader is seated; the same array where there is none."""
    units_with_leader: Ints
    takes_leader: Bools | None
    """None: no leader to seat."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeCounts:
    """What `Room` says of the nodes, in the order of the tree's last layer."""

    pods: Ints
    pods_with_leader: Ints
    takes_leader: Bools | None


def domain_capacities(
    tree: DomainTree, search: ResolvedRequest, nodes: NodeCounts
) -> tuple[DomainCapacity, ...]:
    """Of every layer, widest first."""
    last = len(tree.layers) - 1
    found = [_counted(nodes, search, last)]
    for depth in range(last - 1, -1, -1):
        begins = tree.layers[depth].first_child[:-1]
        below = found[-1]
        summed = _sum_of_pods(below, begins, search.pods_multiple[depth + 1])
        if depth >= search.slice_level:
            found.append(_counted(summed, search, depth))
        else:
            found.append(_sum_of_slices(below, summed, begins))
    return tuple(reversed(found))


def _counted(room: NodeCounts, search: ResolvedRequest, depth: int) -> DomainCapacity:
    """At the slice level and below it, units are what the pods there can be cut into."""
    size = search.slice_size if depth == search.slice_level else search.pods_multiple[depth]
    units = room.pods // size
    return DomainCapacity(
        pods=room.pods,
        units=units,
        unit_size=size,
        pods_with_leader=room.pods_with_leader,
        units_with_leader=units if room.takes_leader is None else room.pods_with_leader // size,
        takes_leader=room.takes_leader,
    )


def _sum_of_pods(below: DomainCapacity, begins: Ints, multiple: int) -> NodeCounts:
    """Only whole multiples of an inner slice count: the rest of a child could not be used by its parent's slices."""
    pods = below.pods // multiple * multiple
    total: Ints = np.add.reduceat(pods, begins)
    if below.takes_leader is None:
        return NodeCounts(total, total, None)
    beside = below.pods_with_leader // multiple * multiple
    return NodeCounts(
        pods=total,
        pods_with_leader=_less_leader(total, pods - beside, below.takes_leader, begins),
        takes_leader=np.logical_or.reduceat(below.takes_leader, begins),
    )


def _sum_of_slices(below: DomainCapacity, summed: NodeCounts, begins: Ints) -> DomainCapacity:
    units: Ints = np.add.reduceat(below.units, begins)
    beside = units
    if below.takes_leader is not None:
        beside = _less_leader(units, below.units - below.units_with_leader, below.takes_leader, begins)
    return DomainCapacity(
        pods=summed.pods,
        units=units,
        unit_size=below.unit_size,
        pods_with_leader=summed.pods_with_leader,
        units_with_leader=beside,
        takes_leader=summed.takes_leader,
    )


def _less_leader(total: Ints, cost: Ints, takes_leader: Bools, begins: Ints) -> Ints:
    """What is left of each total when the leader sits where it costs least; 0 where it can't sit at all."""
    cheapest = np.minimum.reduceat(np.where(takes_leader, cost, NO_LEADER_COST), begins)
    left: Ints = np.where(cheapest == NO_LEADER_COST, 0, total - cheapest)
    return left
