"""Why a pod set doesn't fit its topology, in Kueue's literal wording.

`plan` and `replacement` call it when a search fails. People and scripts know these sentences from Kueue's conditions,
so they must not be changed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from windlass.placement.topology.domain_capacity import NodeCounts, domain_capacities
from windlass.placement.topology.resolved_request import ResolvedRequest
from windlass.placement.topology.search import Shortage
from windlass.placement.topology.tree import DomainTree


def not_fit(topology: str, fits: int, needed: int, unit: str) -> str:
    if fits == 0:
        return f'topology "{topology}" doesn\'t allow to fit any of {needed} {unit}(s)'
    return f'topology "{topology}" allows to fit only {fits} out of {needed} {unit}(s)'


def shortage(
    topology: str, tree: DomainTree, resolved: ResolvedRequest, nodes: NodeCounts, short: Shortage, count: int
) -> str:
    """How many of `count` pods (or of their slices) fit."""
    if resolved.slice_layers:
        return _layers_not_fit(topology, tree, resolved, nodes, short.depth, count)
    return not_fit(topology, short.fits, count // resolved.slice_size, resolved.unit)


def _layers_not_fit(
    topology: str, tree: DomainTree, resolved: ResolvedRequest, nodes: NodeCounts, depth: int, count: int
) -> str:
    """With several layers of slices: how many of each layer fit in the domain with most capacity."""
    capacities = domain_capacities(tree, resolved, nodes)
    best = int(np.argmax(capacities[depth].units))
    parts = [f'topology "{topology}" doesn\'t allow to fit']
    for level, size in resolved.slice_layers:
        first, end = _span(tree, depth, best, level)
        fits = int((capacities[level].pods[first:end] // size).sum())
        parts.append(f"{fits}/{count // size} slice(s) fit on level {tree.levels[level]}")
    return "; ".join(parts)


def _span(tree: DomainTree, depth: int, domain: int, level: int) -> tuple[int, int]:
    """The first and the end of the domains of a lower level inside one domain."""
    first, end = domain, domain + 1
    for between in range(depth, level):
        first, end = (int(tree.layers[between].first_child[boundary]) for boundary in (first, end))
    return first, end


def with_exclusions(message: str, total: int, excluded: Mapping[str, int]) -> str:
    reasons = sorted(f"{reason}: {nodes}" for reason, nodes in excluded.items() if nodes)
    if not reasons:
        return message
    return f"{message}. Total nodes: {total}; excluded: {', '.join(reasons)}"
