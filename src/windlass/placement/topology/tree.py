"""The domains of a topology: a forest over the candidate nodes, one layer a level.

Fed with the values of the level labels of every node; feeds the counting and the search. It depends on labels alone,
so one tree serves all asks until a node comes, goes or is relabelled.

Domains of a layer are numbered in the order of their values (all levels from the widest, compared as text), so a
number is also the last tie-break, and the children of a domain are neighbours: sums over children are sums over runs.
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
    """Number of the first child in the layer below, and one more entry at the end. Empty in the last layer."""

    @property
    def size(self) -> int:
        return len(self.parent)


@dataclass(frozen=True, slots=True, eq=False)
class DomainTree:
    levels: tuple[str, ...]
    """Node labels, widest domain first."""
    layers: tuple[Layer, ...]
    """One a level, and one more for the nodes where a lowest domain has several of them."""
    rows: Ints
    """Node row of each domain of the last layer."""
    total: int
    """Nodes offered, with those that lack a label and so are in no domain."""
    values: tuple[tuple[str, ...], ...]
    """Level values of each domain of the last layer."""
    _domains: dict[tuple[str, int], tuple[Bools, ...]] = field(default_factory=dict)
    """What `domains` was asked before."""

    @staticmethod
    def build(
        levels: Sequence[str],
        node_values: Sequence[Sequence[str | None]],
        names: Sequence[str] | None = None,
    ) -> DomainTree:
        """A tree over nodes, given the values of their level labels (None: the node lacks it and is left out).

        `names` order the nodes inside a lowest domain; without them their rows do.
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
        values = tuple(tuple(str(value) for value in paths[at][:-1]) for at in order)
        return _tree(tuple(levels), values, [rows[at] for at in order], len(node_values))

    def restricted_to(self, nodes: Bools) -> DomainTree:
        """The same over fewer nodes; `nodes` is a mask over all of them."""
        kept = [at for at, row in enumerate(self.rows.tolist()) if nodes[row]]
        values = tuple(self.values[at] for at in kept)
        return _tree(self.levels, values, [int(self.rows[at]) for at in kept], self.total)

    @property
    def has_node_layer(self) -> bool:
        """The lowest level isn't the node: one more layer holds the nodes of its domains."""
        return len(self.layers) > len(self.levels)

    def domains(self, level: str, nodes: int) -> tuple[Bools, ...]:
        """The node rows of each domain of the level, as masks over so many nodes; of all of them for no level."""
        known = self._domains.get((level, nodes))
        if known is None:
            depth = self.levels.index(level) + 1 if level in self.levels else 0
            starts = [*_starts(self.values, depth), len(self.rows)] if len(self.rows) else []
            masks = [np.zeros(nodes, dtype=np.bool_) for _ in starts[1:]]
            for mask, (first, end) in zip(masks, pairwise(starts), strict=True):
                mask[self.rows[first:end]] = True
                mask.setflags(write=False)
            known = self._domains[level, nodes] = tuple(masks)
        return known

    def assignment(self, rows: Ints, pods: Ints) -> list[tuple[tuple[str, ...], int]]:
        """Pods per domain of the lowest level, as a Kueue topology assignment lists them."""
        on_row = dict(zip(rows.tolist(), pods.tolist(), strict=True))
        counts: dict[tuple[str, ...], int] = {}
        for values, row in zip(self.values, self.rows.tolist(), strict=True):
            if row in on_row:
                counts[values] = counts.get(values, 0) + on_row[row]
        return list(counts.items())


def _tree(
    levels: tuple[str, ...], values: tuple[tuple[str, ...], ...], rows: Sequence[int], total: int
) -> DomainTree:
    """Over nodes that are in order already."""
    starts = [_starts(values, depth) for depth in range(1, len(levels) + 1)]
    if len(starts[-1]) < len(rows):
        starts.append(list(range(len(rows))))
    at_rows = np.array(rows, dtype=np.int64)
    return DomainTree(levels, _layers(starts, len(rows)), at_rows, total, values)


def _starts(values: Sequence[tuple[str, ...]], depth: int) -> list[int]:
    """Positions at which a new domain begins in the sorted list of nodes."""
    if not values:
        return []
    changes = (at for at, (a, b) in enumerate(pairwise(values), 1) if a[:depth] != b[:depth])
    return [0, *changes]


def _layers(starts: Sequence[Sequence[int]], nodes: int) -> tuple[Layer, ...]:
    layers = []
    for depth, begins in enumerate(starts):
        at = np.array(begins, dtype=np.int64)
        parent = np.zeros(len(at), dtype=np.int64)
        if depth:
            parent = np.searchsorted(np.array(starts[depth - 1], dtype=np.int64), at, side="right") - 1
        first_child = np.zeros(0, dtype=np.int64)
        if depth + 1 < len(starts):
            ends = np.append(at, nodes)
            first_child = np.searchsorted(np.array(starts[depth + 1], dtype=np.int64), ends)
        layers.append(Layer(parent=parent.astype(np.int64), first_child=first_child.astype(np.int64)))
    return tuple(layers)
