"""Places gangs of several shapes node by node: which mix of their pods each node takes.

`placement.combination_search` asks where backtracking over single pods has found nothing. A pattern is how many pods of
each group one node takes together, tried on the state of the node, so that devices, shares and MIG slices count. Node
after node, the search keeps the totals that can be reached and that no other total exceeds in every group. With at most
`MAX_TOTALS` of them the search is exact; with more, those that use most stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product
from typing import NamedTuple

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import REPLICAS, Ints
from windlass.placement.kernel_arrays import FIRST_REQUEST, MIG_REQUEST, REQUEST_COUNT
from windlass.placement.kernels.fit_counts import fit_count
from windlass.placement.kernels.placement_loop import add_pod_to_node, node_reasons, remove_pod_from_node
from windlass.placement.overlay import Overlay

MAX_TOTALS = 128
"""Totals that are kept after each node."""
MAX_COMPARED = 512
"""Totals of which these are chosen."""
MAX_PATTERNS = 1024
"""Patterns of one node of which the largest are used."""
MAX_NODES = 256
"""Nodes that take any pod of the gang."""
MAX_TRIAL_PODS = 4_096
"""Pods that are tried on nodes to find their patterns; nodes in the same state have the same patterns."""
MAX_DOMAIN_CHOICES = 64
"""Choices of a domain for every group that are tried."""

NO_DEVICE = -1
"""Shares go to the first device with room, when patterns are found and when they are assumed."""
StateKey = tuple[int, int, bytes, bytes]


class PatternGroup(NamedTuple):
    row: int
    """Row of the score table."""
    pods: int
    most_per_node: int
    domains: tuple[Bools, ...]
    """Masks of the nodes that take its pods now; all of them go into one of these."""


def find_patterns(overlay: Overlay, groups: Sequence[PatternGroup]) -> list[tuple[int, Ints]] | None:
    """(Node, pods of each group on it), to be assumed in the order of the groups; None where nothing was found. The
    overlay stays as it is."""
    search = _PatternSearch(overlay, groups)
    for masks in islice(product(*(group.domains for group in groups)), MAX_DOMAIN_CHOICES):
        found = search.run(np.stack(masks))
        if found is not None:
            return found
    return None


class _Layer(NamedTuple):
    """The totals after a node, and how they came about."""

    node: int
    totals: Ints
    previous: Ints
    """[total] index of the total before the node."""
    pattern: Ints
    """[total] pods of each group on the node."""


class _PatternSearch:
    def __init__(self, overlay: Overlay, groups: Sequence[PatternGroup]) -> None:
        self._overlay, self._groups = overlay, groups
        self._wanted = np.array([group.pods for group in groups], dtype=np.int64)
        self._requests = np.stack([_requests(overlay, group.row) for group in groups])
        self._trials_left = 0
        self._patterns_by_state: dict[StateKey, Ints] = {}

    def run(self, masks: Bools) -> list[tuple[int, Ints]] | None:
        """`masks`: [group, node] whether the group may use the node."""
        # Nodes for few groups first: what they can't take is left for the others. Then equal nodes together, so that
        # the totals after them differ in what matters.
        amounts = self._overlay.state.free
        usable = np.flatnonzero(masks.any(axis=0)).tolist()
        nodes = sorted(usable, key=lambda node: (int(masks[:, node].sum()), amounts[node].tolist(), node))
        free = np.maximum(0, amounts[nodes])
        if len(nodes) > MAX_NODES or (self._wanted @ self._requests > free.sum(axis=0)).any():
            return None
        patterns = self._patterns(nodes, masks)
        most = np.array([found.max(axis=0) for found in patterns])
        # What the nodes from here on can take at most: totals that lack more lead nowhere.
        most_left = np.cumsum(most[::-1], axis=0)[::-1]
        free_left = np.cumsum(free[::-1], axis=0)[::-1]
        start: Ints = np.zeros((1, len(self._groups)), dtype=np.int64)
        layers = [_Layer(-1, start, start[0], start)]
        for i, node in enumerate(nodes):
            lacks = self._wanted - layers[-1].totals
            alive = (lacks <= most_left[i]).all(axis=1) & (lacks @ self._requests <= free_left[i]).all(axis=1)
            if not alive.any():
                return None
            layers.append(self._next_layer(node, layers[-1].totals, np.flatnonzero(alive), patterns[i]))
            complete = np.flatnonzero((layers[-1].totals == self._wanted).all(axis=1))
            if len(complete):
                return _trace_back(layers, int(complete[0]))
        return None

    def _next_layer(self, node: int, totals: Ints, alive: Ints, patterns: Ints) -> _Layer:
        reached = totals[alive][:, None, :] + patterns[None, :, :]
        flat = np.minimum(reached.reshape(-1, len(self._groups)), self._wanted)
        rows, first = np.unique(flat, axis=0, return_index=True)
        used = (rows @ self._requests / np.maximum(1, self._wanted @ self._requests)).sum(axis=1)
        # Stable, so that the same gang on the same nodes is always placed in the same way.
        order = np.argsort(-used, kind="stable")[:MAX_COMPARED]
        rows, first = rows[order], first[order]
        kept = np.flatnonzero(_maximal(rows))[:MAX_TOTALS]
        source = first[kept]
        previous = alive[source // len(patterns)]
        return _Layer(node, rows[kept], previous, rows[kept] - totals[previous])

    # Patterns of one node

    def _state_key(self, node: int, takes: Bools) -> StateKey:
        """Equal for nodes on which the same pods fit."""
        state = self._overlay.state
        devices = state.devices(node)
        return (
            int(self._overlay.table.memo.digest[node]),
            int(state.node_info[node, REPLICAS]),
            state.device_info[devices.start : devices.stop].tobytes(),
            takes.tobytes(),
        )

    def _patterns(self, nodes: Sequence[int], masks: Bools) -> list[Ints]:
        keys = [self._state_key(node, masks[:, node]) for node in nodes]
        new = {key: node for key, node in zip(keys, nodes, strict=True) if key not in self._patterns_by_state}
        for key, node in new.items():
            self._trials_left = MAX_TRIAL_PODS // len(new)
            filled: list[tuple[int, ...]] = []
            self._fill(node, masks[:, node], (), filled)
            rows = np.unique(np.array(filled, dtype=np.int64), axis=0)[-MAX_PATTERNS:]
            self._patterns_by_state[key] = rows[_maximal(rows)]
        return [self._patterns_by_state[key] for key in keys]

    def _fill(self, node: int, takes: Bools, counts: tuple[int, ...], filled: list[tuple[int, ...]]) -> None:
        """Append the numbers of pods that the node takes: as many of the next group as fit, and then fewer."""
        number = len(counts)
        group = self._groups[number]
        most = min(group.most_per_node, self._fit_count(node, group.row)) if takes[number] else 0
        if number == len(self._groups) - 1:
            filled.append((*counts, most))
            return
        grants: list[np.uint64] = []
        state, shapes = self._overlay.state, self._overlay.table.shapes
        # Straight on the state, which is restored below: the overlay would recompute digests and scores each time.
        while len(grants) < most and self._trials_left > 0:
            self._trials_left -= 1
            grants.append(add_pod_to_node(state, shapes, group.row, node, NO_DEVICE, False))
        while True:
            self._fill(node, takes, (*counts, len(grants)), filled)
            if not grants:
                return
            remove_pod_from_node(state, shapes, group.row, node, grants.pop())

    def _fit_count(self, node: int, row: int) -> int:
        overlay = self._overlay
        static = overlay.table.static(row)[node]
        fits = not node_reasons(overlay.state, overlay.table.shapes, row, node, static)
        return fit_count(overlay.state, overlay.table.shapes, row, node) if fits else 0


def _trace_back(layers: Sequence[_Layer], index: int) -> list[tuple[int, Ints]]:
    found = []
    for layer in reversed(layers[1:]):
        if layer.pattern[index].any():
            found.append((layer.node, layer.pattern[index]))
        index = int(layer.previous[index])
    return found[::-1]


def _requests(overlay: Overlay, row: int) -> Ints:
    """What one pod takes of each resource column; without MIG instances, which a node may create on demand."""
    shape, found = overlay.table.shapes[row], np.zeros(overlay.state.free.shape[1], dtype=np.int64)
    for j in range(int(shape[REQUEST_COUNT])):
        if j != shape[MIG_REQUEST]:
            found[shape[FIRST_REQUEST + 2 * j]] += shape[FIRST_REQUEST + 2 * j + 1]
    return found


def _maximal(rows: Ints) -> Bools:
    """Which of the different rows no other row reaches in every column."""
    reaches: Bools = np.asarray((rows[:, None, :] >= rows[None, :, :]).all(axis=2))
    np.fill_diagonal(reaches, val=False)
    return np.asarray(~reaches.any(axis=0))
