"""The one entry of the topology search: pod sets in, pods per node out.

Fed by `engine`; drives counting, search and messages. Pod sets are placed in order, each on what the ones before it
left; a leader and its workers (one group) are placed together.
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
    """Places for all pods of all asks, or why there are none. What is placed is taken from the room as it goes, also
    where a later ask then fails. `topology` is the name that messages use."""
    placements: dict[int, PodSetPlacement] = {}
    for group in _groups(requests):
        try:
            placed = _place_group(tree, requests, group, capacity, topology)
        except ImpossibleRequest as impossible:
            return TopologyFailure(requests[group[0]].name, str(impossible))
        if isinstance(placed, TopologyFailure):
            return placed
        for ask, placement in placed.items():
            capacity.reserve(ask, placement.rows, placement.pods)
        placements.update(placed)
    return TopologyPlan(tuple(placements[ask] for ask in range(len(requests))))


def _groups(asks: Sequence[TopologyPodSetRequest]) -> list[list[int]]:
    """Positions of asks that are placed together, in the order in which each group is first named."""
    groups: dict[str | int, list[int]] = {}
    for position, ask in enumerate(asks):
        # A set without pods leads nobody and follows nobody.
        name = ask.request.group if ask.request and ask.count else ""
        groups.setdefault(name or position, []).append(position)
    return list(groups.values())


def _place_group(
    tree: DomainTree,
    asks: Sequence[TopologyPodSetRequest],
    group: Sequence[int],
    room: NodeCapacity,
    topology: str,
) -> dict[int, PodSetPlacement] | TopologyFailure:
    workers, leader = _workers_and_leader(asks, group)
    ask = asks[workers]
    search = resolve_in_tree(tree, ask.request, ask.count)
    on_nodes = _node_room(tree, room, workers, leader)
    if leader is not None and on_nodes.takes_leader is not None and not on_nodes.takes_leader.any():
        message = messages.not_fit(topology, 0, 1, "pod")
        message = messages.with_exclusions(message, tree.total, room.excluded_nodes(leader))
        return TopologyFailure(asks[leader].name, message, tree.levels[search.level], needed=1)
    found = find_nodes(tree, search, on_nodes, ask)
    if isinstance(found, Shortage):
        message = messages.shortage(topology, tree, search, on_nodes, found, ask.count)
        message = messages.with_exclusions(message, tree.total, room.excluded_nodes(workers))
        needed = ask.count // search.slice_size
        return TopologyFailure(ask.name, message, tree.levels[found.depth], found.fits, needed, search.unit)
    placed = {workers: found.placement(tree, ask.name)}
    if leader is not None:
        placed[leader] = found.leader_placement(tree, asks[leader].name)
    return placed


def _workers_and_leader(
    asks: Sequence[TopologyPodSetRequest], group: Sequence[int]
) -> tuple[int, int | None]:
    """The larger set of a pair are the workers, the first one where both are equal."""
    if len(group) == 1:
        return group[0], None
    workers, leader = sorted(group, key=lambda ask: -asks[ask].count)[:2]
    if len(group) > 2 or asks[leader].count != 1:
        name = asks[workers].request
        raise ImpossibleRequest(
            f"podset group {name.group if name else ''} must be a leader of one pod and its workers"
        )
    return workers, leader


def _node_room(tree: DomainTree, room: NodeCapacity, workers: int, leader: int | None) -> NodeCounts:
    pods = room.pods_per_node(workers)[tree.rows]
    if leader is None:
        return NodeCounts(pods, pods, None)
    takes_leader, beside = room.pods_beside_leader(workers, leader)
    return NodeCounts(pods, beside[tree.rows], takes_leader[tree.rows])
