"""The entry of the topology search: requests of pod sets in, pods per node out.

`placement.gang`, `timeplan` and `explain.limits` call `plan_topology`. Pod sets are placed in order, each in what the
ones before it left; a leader and its workers (one group) are placed together.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.placement.topology import messages
from windlass.placement.topology.domain_capacity import NodeCounts
from windlass.placement.topology.resolved_request import ImpossibleRequest
from windlass.placement.topology.search import Shortage, find_nodes, resolve_in_tree
from windlass.placement.topology.tree import DomainTree
from windlass.placement.topology.types import (
    NodeCapacity,
    PodSetPlacement,
    TopologyFailure,
    TopologyPlan,
    TopologyPodSetRequest,
)


def plan_topology(
    tree: DomainTree, requests: Sequence[TopologyPodSetRequest], capacity: NodeCapacity, topology: str = ""
) -> TopologyPlan | TopologyFailure:
    """Nodes for all pods of all requests, or why there are none. What is placed is reserved in `capacity`, even if a
    later request fails. `topology` is the name for messages."""
    placements: dict[int, PodSetPlacement] = {}
    for group in _groups(requests):
        try:
            placed = _place_group(tree, requests, group, capacity, topology)
        except ImpossibleRequest as impossible:
            return TopologyFailure(requests[group[0]].name, str(impossible))
        if isinstance(placed, TopologyFailure):
            return placed
        for index, placement in placed.items():
            capacity.reserve(index, placement.rows, placement.pods)
        placements.update(placed)
    return TopologyPlan(tuple(placements[index] for index in range(len(requests))))


def _groups(requests: Sequence[TopologyPodSetRequest]) -> list[list[int]]:
    """Indexes of requests that are placed together, in the order in which each group is first named."""
    groups: dict[str | int, list[int]] = {}
    for position, request in enumerate(requests):
        # A set without pods is neither leader nor workers.
        name = request.request.group if request.request and request.count else ""
        groups.setdefault(name or position, []).append(position)
    return list(groups.values())


def _place_group(
    tree: DomainTree,
    requests: Sequence[TopologyPodSetRequest],
    group: Sequence[int],
    capacity: NodeCapacity,
    topology: str,
) -> dict[int, PodSetPlacement] | TopologyFailure:
    workers, leader = _workers_and_leader(requests, group)
    request = requests[workers]
    resolved = resolve_in_tree(tree, request.request, request.count)
    nodes = _node_counts(tree, capacity, workers, leader)
    if leader is not None and nodes.takes_leader is not None and not nodes.takes_leader.any():
        message = messages.not_fit(topology, 0, 1, "pod")
        message = messages.with_exclusions(message, tree.total, capacity.excluded_nodes(leader))
        return TopologyFailure(requests[leader].name, message, tree.levels[resolved.level], needed=1)
    found = find_nodes(tree, resolved, nodes, request)
    if isinstance(found, Shortage):
        message = messages.shortage(topology, tree, resolved, nodes, found, request.count)
        message = messages.with_exclusions(message, tree.total, capacity.excluded_nodes(workers))
        needed = request.count // resolved.slice_size
        level = tree.levels[found.depth]
        return TopologyFailure(request.name, message, level, found.fits, needed, resolved.unit)
    placed = {workers: found.placement(tree, request.name)}
    if leader is not None:
        placed[leader] = found.leader_placement(tree, requests[leader].name)
    return placed


def _workers_and_leader(sets: Sequence[TopologyPodSetRequest], group: Sequence[int]) -> tuple[int, int | None]:
    """The larger set of a pair are the workers; of two equal ones, the first."""
    if len(group) == 1:
        return group[0], None
    workers, leader = sorted(group, key=lambda index: -sets[index].count)[:2]
    if len(group) > 2 or sets[leader].count != 1:
        name = sets[workers].request
        raise ImpossibleRequest(
            f"podset group {name.group if name else ''} must have two pod sets: a leader of one pod, and workers"
        )
    return workers, leader


def _node_counts(tree: DomainTree, capacity: NodeCapacity, workers: int, leader: int | None) -> NodeCounts:
    pods = capacity.pods_per_node(workers)[tree.rows]
    if leader is None:
        return NodeCounts(pods, pods, None)
    takes_leader, with_leader = capacity.pods_beside_leader(workers, leader)
    return NodeCounts(pods, with_leader[tree.rows], takes_leader[tree.rows])
