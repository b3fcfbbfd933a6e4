"""The domains of a topology: a forest over the candidate nodes, with one layer per level.

`placement.pod_set_builder` and `default_topology` build trees from the level labels of the nodes. A tree depends only
on labels, so it serves all requests until a node is added, removed or relabelled.

Domains of a layer are numbered in the order of their values (all levels from the widest, compared as text). So the
number is the last tie-break, and the children of a domain are adjacent: sums over children are sums over ranges
(`reduceat`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from windlass.placement.topology.types import Bools, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """The domains of one level."""

    parent: Ints
    """Domain of the layer above; for the first layer all 0."""
    first_child: Ints
    """Number of the first child in the layer below, with one more entry at the end. Empty in the last layer."""

    @property
    def size(self) -> int:
        return len(self.parent)


@dataclass(frozen=True, slots=True, eq=False)
class DomainTree:
    levels: tuple[str, ...]
    """Node labels, widest domain first."""
    layers: tuple[Layer, ...]
    """One per level, and one more for the nodes if a domain of the lowest level has several nodes."""
    rows: Ints
    """Node row of each domain of the last layer."""
    total: int
    """All candidate nodes, including those that lack a label and are in no domain."""
    values: tuple[tuple[str, ...], ...]
    """Level values of each domain of the last layer."""
    _cached_domains: dict[tuple[str, int], tuple[Bools, ...]] = field(default_factory=dict)
    """Results of `domains`."""

    @staticmethod
    def build(
        levels: Sequence[str],
        node_values: Sequence[Sequence[str | None]],
        names: Sequence[str] | None = None,
    ) -> DomainTree:
        """The tree over nodes, given the values of their level labels (None: the node lacks it and is left out).

        `names` order the nodes inside a lowest domain; without names, the rows do.
        """
        if not levels:
            raise ValueError("a topology has at least one level")
        paths = [
            (*(value or "" for value in path), names[row] if names else row)
            for row, path in enumerate(node_values)
            if None not in path
        ]
        rows = [row for row, path in enumerate(node_values) if None not in path]
        order = sorted(range(len(rows)), key=paths.__getitem__)
        values = tuple(tuple(str(value) for value in paths[position][:-1]) for position in order)
        return _make_tree(tuple(levels), values, [rows[position] for position in order], len(node_values))

    def restricted_to(self, nodes: Bools) -> DomainTree:
        """The tree over some of the nodes; `nodes` is a mask over all of them."""
        kept = [position for position, row in enumerate(self.rows.tolist()) if nodes[row]]
        values = tuple(self.values[position] for position in kept)
        return _make_tree(self.levels, values, [int(self.rows[position]) for position in kept], self.total)

    @property
    def has_node_layer(self) -> bool:
        """Whether the lowest level isn't the node, so that one more layer holds the nodes of its domains."""
        return len(self.layers) > len(self.levels)

    def domains(self, level: str, nodes: int) -> tuple[Bools, ...]:
        """The domains of the level as masks over `nodes` nodes; one domain with all rows for an unknown level."""
        masks_of_domains = self._cached_domains.get((level, nodes))
        if masks_of_domains is None:
            depth = self.levels.index(level) + 1 if level in self.levels else 0
            starts = [*_starts(self.values, depth), len(self.rows)] if len(self.rows) else []
            masks = [np.zeros(nodes, dtype=np.bool_) for _ in starts[1:]]
            for mask, (first, end) in zip(masks, pairwise(starts), strict=True):
                mask[self.rows[first:end]] = True
                # The masks are cached and handed out to all.
                mask.setflags(write=False)
            masks_of_domains = self._cached_domains[level, nodes] = tuple(masks)
        return masks_of_domains

    def assignment(self, rows: Ints, pods: Ints) -> list[tuple[tuple[str, ...], int]]:
        """Pods per domain of the lowest level, as a Kueue topology assignment lists them."""
        pods_on_row = dict(zip(rows.tolist(), pods.tolist(), strict=True))
        counts: dict[tuple[str, ...], int] = {}
        for values, row in zip(self.values, self.rows.tolist(), strict=True):
            if row in pods_on_row:
                counts[values] = counts.get(values, 0) + pods_on_row[row]
        return list(counts.items())


def _make_tree(
    levels: tuple[str, ...], values: tuple[tuple[str, ...], ...], rows: Sequence[int], total: int
) -> DomainTree:
    """The tree over nodes that are sorted already."""
    starts = [_starts(values, depth) for depth in range(1, len(levels) + 1)]
    # Two nodes share a lowest domain: they need a layer of their own.
    if len(starts[-1]) < len(rows):
        starts.append(list(range(len(rows))))
    row_array = np.array(rows, dtype=np.int64)
    return DomainTree(levels, _layers(starts, len(rows)), row_array, total, values)


def _starts(values: Sequence[tuple[str, ...]], depth: int) -> list[int]:
    """Positions at which a new domain begins in the sorted list of nodes."""
    if not values:
        return []
    changes = (position for position, (a, b) in enumerate(pairwise(values), 1) if a[:depth] != b[:depth])
    return [0, *changes]


def _layers(starts: Sequence[Sequence[int]], nodes: int) -> tuple[Layer, ...]:
    layers = []
    for depth, starts_of_level in enumerate(starts):
        first = np.array(starts_of_level, dtype=np.int64)
        parent = np.zeros(len(first), dtype=np.int64)
        if depth:
            parent = np.searchsorted(np.array(starts[depth - 1], dtype=np.int64), first, side="right") - 1
        first_child = np.zeros(0, dtype=np.int64)
        if depth + 1 < len(starts):
            ends = np.append(first, nodes)
            first_child = np.searchsorted(np.array(starts[depth + 1], dtype=np.int64), ends)
        layers.append(Layer(parent=parent.astype(np.int64), first_child=first_child.astype(np.int64)))
    return tuple(layers)
