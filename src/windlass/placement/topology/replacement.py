"""New places for the pods of a set that lost theirs, while the others stay where they are.

Fed by `engine` when nodes are lost under a running workload; uses the same search as a first placement. A slice that
lost members is completed where it is, then whole slices are placed anew; a required domain stays the domain, and a
preference is met as near to the pods that stay as there is room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from windlass.model.workload import TopologyRequest
from windlass.placement.topology import messages
from windlass.placement.topology.domain_capacity import NodeCounts
from windlass.placement.topology.resolved_request import ImpossibleRequest, ResolvedRequest, resolve_request
from windlass.placement.topology.search import Shortage, find_nodes, resolve_in_tree
from windlass.placement.topology.tree import DomainTree
from windlass.placement.topology.types import (
    Bools,
    Ints,
    NodeCapacity,
    PodSetPlacement,
    TopologyFailure,
    TopologyPodSetRequest,
)


def plan_replacement(
    tree: DomainTree,
    request: TopologyPodSetRequest,
    position: int,
    existing: Ints,
    capacity: NodeCapacity,
    topology: str = "",
) -> PodSetPlacement | TopologyFailure:
    """Places for `ask.count` pods more, given how many pods of the set stay on each node row (`kept`).

    `position` is the ask's in the room. The room is taken from as it goes, also where this fails in the end.
    """
    try:
        return _Replacement(tree, request, position, existing, capacity, topology).run()
    except ImpossibleRequest as impossible:
        return TopologyFailure(request.name, str(impossible))


class _Replacement:
    def __init__(
        self,
        tree: DomainTree,
        ask: TopologyPodSetRequest,
        position: int,
        kept: Ints,
        room: NodeCapacity,
        topology: str,
    ) -> None:
        self._tree, self._ask, self._position = tree, ask, position
        self._room, self._topology = room, topology
        self._pods = kept[tree.rows].astype(np.int64)
        self._new = np.zeros_like(self._pods)
        self._rows_at = {int(row): at for at, row in enumerate(tree.rows)}

    def run(self) -> PodSetPlacement | TopologyFailure:
        search = resolve_request(self._ask.request, self._tree.levels, len(self._tree.layers))
        missing = self._ask.count
        for label, size, inner in _layers(self._ask.request):
            depth = self._tree.levels.index(label)
            for domain in np.flatnonzero(self._per_domain(depth) % size).tolist():
                lacks = int(size - self._per_domain(depth)[domain] % size)
                missing -= lacks
                if missing < 0:
                    raise ImpossibleRequest(
                        f"{self._ask.count} pod(s) can't complete the slices that lost members"
                    )
                request = _whole(label, inner)
                if failure := self._place(request, lacks, [self._inside(depth, domain)]):
                    return failure
        if missing and (failure := self._place(self._ask.request, missing, self._near(search))):
            return failure
        used = np.flatnonzero(self._new)
        order = np.argsort(self._tree.rows[used])
        rows, pods = self._tree.rows[used][order], self._new[used][order]
        domains = int((self._per_domain(search.level) > 0).sum())
        return PodSetPlacement(self._ask.name, rows, pods, self._tree.levels[search.level], domains)

    def _place(
        self, request: TopologyRequest | None, count: int, masks: list[Bools] | Iterator[Bools]
    ) -> TopologyFailure | None:
        """So many pods on the nodes of the first mask that has room for them."""
        search = resolve_in_tree(self._tree, request, count)
        pods = self._room.pods_per_node(self._position)[self._tree.rows]
        ask = replace(self._ask, count=count)
        failure = None
        for mask in masks:
            allowed = np.where(mask, pods, 0)
            nodes = NodeCounts(allowed, allowed, None)
            found = find_nodes(self._tree, search, nodes, ask)
            if not isinstance(found, Shortage):
                self._settle(found.placement(self._tree, ask.name))
                return None
            message = messages.shortage(self._topology, self._tree, search, nodes, found, count)
            message = messages.with_exclusions(
                message, self._tree.total, {"topologyDomain": int((~mask).sum())}
            )
            level, needed = self._tree.levels[found.depth], count // search.slice_size
            failure = TopologyFailure(ask.name, message, level, found.fits, needed, search.unit)
        return failure

    def _settle(self, placed: PodSetPlacement) -> None:
        self._room.reserve(self._position, placed.rows, placed.pods)
        at = [self._rows_at[int(row)] for row in placed.rows]
        self._new[at] += placed.pods
        self._pods[at] += placed.pods

    def _near(self, search: ResolvedRequest) -> Iterator[Bools]:
        """Nodes to try for what is placed anew, the nearest to what stays first."""
        everywhere = np.ones(len(self._pods), dtype=np.bool_)
        if search.unconstrained or not self._pods.any():
            yield everywhere
            return
        home = self._per_domain(search.level) > 0
        if search.required:
            if home.sum() > 1:
                raise ImpossibleRequest(
                    f"the pods that stay span {home.sum()} domains of {self._tree.levels[search.level]}"
                )
            yield home[self._domain_of(search.level)]
            return
        for depth in range(search.level, -1, -1):
            yield (self._per_domain(depth) > 0)[self._domain_of(depth)]
        yield everywhere

    def _per_domain(self, depth: int) -> Ints:
        sums = self._pods
        for layer in reversed(self._tree.layers[depth:-1]):
            sums = np.add.reduceat(sums, layer.first_child[:-1])
        return sums

    def _domain_of(self, depth: int) -> Ints:
        """Of each node of the last layer, its domain at this depth."""
        domain = np.arange(len(self._pods))
        for layer in reversed(self._tree.layers[depth + 1 :]):
            domain = layer.parent[domain]
        return domain

    def _inside(self, depth: int, domain: int) -> Bools:
        inside: Bools = self._domain_of(depth) == domain
        return inside


def _layers(request: TopologyRequest | None) -> list[tuple[str, int, tuple[tuple[str, int], ...]]]:
    """(label, size, layers inside) of every layer of slices, innermost first."""
    if request is None or not request.slice_level:
        return []
    slices = ((request.slice_level, request.slice_size), *request.inner_slices)
    return [(label, size, slices[at + 1 :]) for at, (label, size) in enumerate(slices)][::-1]


def _whole(label: str, inner: tuple[tuple[str, int], ...]) -> TopologyRequest:
    """What completes one slice: pods in its domain, in whole inner slices."""
    if not inner:
        return TopologyRequest("required", label)
    return TopologyRequest("required", label, inner[0][0], inner[0][1], inner[1:])
