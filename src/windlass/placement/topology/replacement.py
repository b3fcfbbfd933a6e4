"""New nodes for pods of a set that lost theirs, while the others stay.

`placement.gang_domains` calls `plan_replacement` when nodes of a running workload are lost; it uses the same search
as a first placement. A slice that lost members is completed in its domain, then whole slices are placed anew. A
required domain stays the same; with a preferred level, pods go as near to the others as possible.
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
    """Nodes for `request.count` more pods, given how many pods of the set stay on each node row (`existing`).

    `position` is the index of the request in `capacity`. What is placed is reserved there, even if this fails in the
    end.
    """
    try:
        return _Replacement(tree, request, position, existing, capacity, topology).run()
    except ImpossibleRequest as impossible:
        return TopologyFailure(request.name, str(impossible))


class _Replacement:
    def __init__(
        self,
        tree: DomainTree,
        request: TopologyPodSetRequest,
        position: int,
        existing: Ints,
        capacity: NodeCapacity,
        topology: str,
    ) -> None:
        self._tree, self._request, self._position = tree, request, position
        self._capacity, self._topology = capacity, topology
        self._pods = existing[tree.rows].astype(np.int64)
        self._new = np.zeros_like(self._pods)
        self._position_of_row = {int(row): position_in_tree for position_in_tree, row in enumerate(tree.rows)}

    def run(self) -> PodSetPlacement | TopologyFailure:
        resolved = resolve_request(self._request.request, self._tree.levels, len(self._tree.layers))
        missing = self._request.count
        for label, size, inner in _slice_layers(self._request.request):
            depth = self._tree.levels.index(label)
            for domain in np.flatnonzero(self._per_domain(depth) % size).tolist():
                missing_here = int(size - self._per_domain(depth)[domain] % size)
                missing -= missing_here
                if missing < 0:
                    raise ImpossibleRequest(
                        f"{self._request.count} pod(s) are too few to complete the slices that lost pods"
                    )
                slice_request = _slice_request(label, inner)
                if failure := self._place(slice_request, missing_here, [self._inside(depth, domain)]):
                    return failure
        if missing and (failure := self._place(self._request.request, missing, self._nodes_to_try(resolved))):
            return failure
        used = np.flatnonzero(self._new)
        order = np.argsort(self._tree.rows[used])
        rows, pods = self._tree.rows[used][order], self._new[used][order]
        domains = int((self._per_domain(resolved.level) > 0).sum())
        return PodSetPlacement(self._request.name, rows, pods, self._tree.levels[resolved.level], domains)

    def _place(
        self, request: TopologyRequest | None, count: int, masks: list[Bools] | Iterator[Bools]
    ) -> TopologyFailure | None:
        """Place so many pods on the nodes of the first mask that has capacity; otherwise the last failure."""
        resolved = resolve_in_tree(self._tree, request, count)
        pods = self._capacity.pods_per_node(self._position)[self._tree.rows]
        set_request = replace(self._request, count=count)
        failure = None
        for mask in masks:
            allowed = np.where(mask, pods, 0)
            nodes = NodeCounts(allowed, allowed, None)
            result = find_nodes(self._tree, resolved, nodes, set_request)
            if not isinstance(result, Shortage):
                self._record(result.placement(self._tree, set_request.name))
                return None
            message = messages.shortage(self._topology, self._tree, resolved, nodes, result, count)
            excluded = {"topologyDomain": int((~mask).sum())}
            message = messages.with_exclusions(message, self._tree.total, excluded)
            level, needed = self._tree.levels[result.depth], count // resolved.slice_size
            failure = TopologyFailure(set_request.name, message, level, result.fits, needed, resolved.unit)
        return failure

    def _record(self, placed: PodSetPlacement) -> None:
        self._capacity.reserve(self._position, placed.rows, placed.pods)
        positions = [self._position_of_row[int(row)] for row in placed.rows]
        self._new[positions] += placed.pods
        self._pods[positions] += placed.pods

    def _nodes_to_try(self, resolved: ResolvedRequest) -> Iterator[Bools]:
        """Sets of nodes to try for new pods, those nearest to the existing pods first."""
        all_nodes = np.ones(len(self._pods), dtype=np.bool_)
        if resolved.unconstrained or not self._pods.any():
            yield all_nodes
            return
        domains_in_use = self._per_domain(resolved.level) > 0
        if resolved.required:
            if domains_in_use.sum() > 1:
                raise ImpossibleRequest(
                    f"the running pods are in {domains_in_use.sum()} domains of {self._tree.levels[resolved.level]}, "
                    "and the topology request allows one"
                )
            yield domains_in_use[self._domain_of(resolved.level)]
            return
        for depth in range(resolved.level, -1, -1):
            yield (self._per_domain(depth) > 0)[self._domain_of(depth)]
        yield all_nodes

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


def _slice_layers(request: TopologyRequest | None) -> list[tuple[str, int, tuple[tuple[str, int], ...]]]:
    """(label, size, inner layers) of every layer of slices, innermost first."""
    if request is None or not request.slice_level:
        return []
    slices = ((request.slice_level, request.slice_size), *request.inner_slices)
    return [(label, size, slices[index + 1 :]) for index, (label, size) in enumerate(slices)][::-1]


def _slice_request(label: str, inner: tuple[tuple[str, int], ...]) -> TopologyRequest:
    """The request that completes one slice: pods in its domain, in whole inner slices."""
    if not inner:
        return TopologyRequest("required", label)
    return TopologyRequest("required", label, inner[0][0], inner[0][1], inner[1:])
