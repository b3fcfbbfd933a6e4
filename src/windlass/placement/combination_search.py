"""Places pods of different shapes by backtracking, where the greedy placement has failed.

`placement.gang` places the largest pods first, each on the best node; with several shapes that can miss a placement
that exists (the best node for one pod is the only one for another). If every shape on its own would fit, this search
tries other combinations of single pods within a budget, for up to `MAX_PODS` of them. Larger gangs, and those for which
the budget was not enough, go to `pattern_search`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import Ints
from windlass.model.pod import Pod
from windlass.placement.inter_pod import may_repel_identical_pod
from windlass.placement.kernel_arrays import FIRST_MIG, GPU_MILLI, GPUS, MILLI_CPU
from windlass.placement.overlay import AssumedPod, Overlay
from windlass.placement.pattern_search import NO_DEVICE, PatternGroup, find_patterns

MAX_TRIES = 256
"""Placements of single pods before the search gives up."""
MAX_PODS = 32
MAX_NODES = 512


class IdenticalPods(NamedTuple):
    pod_set: int
    row: int
    """Row of the score table."""
    pods: int
    pod_at: Callable[[int], Pod]
    domains: tuple[Bools, ...]
    """Masks of nodes; all of the pods go into one of them."""


class CombinationPlacement(NamedTuple):
    pod_set: int
    member: int
    assumed: AssumedPod


def try_combinations(overlay: Overlay, groups: Sequence[IdenticalPods]) -> list[CombinationPlacement] | None:
    """Assume every pod of every group; None, with the overlay unchanged, where no combination was found."""
    if len(groups) < 2:
        return None
    feasible = [group._replace(domains=_domains_with_capacity(overlay, group)) for group in groups]
    if not all(group.domains for group in feasible):
        return None
    if sum(group.pods for group in groups) <= MAX_PODS and overlay.snapshot.nodes.size <= MAX_NODES:
        # The group with the fewest choices first, so that dead ends show early.
        search = _Search(overlay, sorted(feasible, key=lambda group: (len(group.domains), group.pod_set)))
        if search.place_group(0):
            return search.found
    return _place_by_patterns(overlay, feasible)


def _place_by_patterns(overlay: Overlay, groups: Sequence[IdenticalPods]) -> list[CombinationPlacement] | None:
    shapes = overlay.table.shapes
    ordered = sorted(groups, key=lambda group: (_largest_first(shapes[group.row]), group.pod_set))
    patterns = [_pattern_group(overlay, group) for group in ordered]
    before, next_member = overlay.checkpoint(), [0] * len(ordered)
    placements: list[CombinationPlacement] = []
    for node, pattern in find_patterns(overlay, patterns) or ():
        for number in np.repeat(np.arange(len(ordered)), pattern).tolist():
            group, member = ordered[number], next_member[number]
            next_member[number] += 1
            pod = group.pod_at(member)
            if overlay.reasons(pod, group.row)[node]:
                overlay.rollback(before)
                return None
            assumed = overlay.assume(pod, group.row, node, NO_DEVICE)
            placements.append(CombinationPlacement(group.pod_set, member, assumed))
    return placements or None


def _largest_first(shape: Ints) -> tuple[int, ...]:
    """Whole GPUs before shares, large MIG profiles before small ones: on one node this order leaves the fewest gaps."""
    slices = max(int(mask).bit_count() for mask in shape[FIRST_MIG::3])
    return (-int(shape[GPU_MILLI]), -slices, -int(shape[GPUS]), -int(shape[MILLI_CPU]))


def _pattern_group(overlay: Overlay, group: IdenticalPods) -> PatternGroup:
    """With the nodes of its domains that refuse none of its pods."""
    pods = [group.pod_at(member) for member in range(group.pods)]
    takes = overlay.reasons(pods[0], group.row) == 0
    takes[overlay.bind_refused_nodes(pods)] = False
    # Of rules between pods, patterns know only that a node may take one; the others are checked in the end.
    most = 1 if may_repel_identical_pod(pods[0]) else group.pods
    return PatternGroup(group.row, group.pods, most, tuple(takes & domain for domain in group.domains))


def _domains_with_capacity(overlay: Overlay, group: IdenticalPods) -> tuple[Bools, ...]:
    """The domains that could take all pods of the group if no other group were placed."""
    counts = overlay.count_fits(group.row)
    return tuple(domain for domain in group.domains if counts[domain].sum() >= group.pods)


class _Search:
    def __init__(self, overlay: Overlay, groups: Sequence[IdenticalPods]) -> None:
        self._overlay, self._groups = overlay, groups
        self._tries_left = MAX_TRIES
        self.found: list[CombinationPlacement] = []

    def place_group(self, number: int) -> bool:
        if number == len(self._groups):
            return True
        group = self._groups[number]
        return any(self._place_member(number, domain, 0, 0) for domain in group.domains)

    def _place_member(self, number: int, domain: Bools, member: int, first: int) -> bool:
        """Equal pods are interchangeable, so each is tried only on the node of the previous one and on later nodes."""
        group, overlay = self._groups[number], self._overlay
        if member == group.pods:
            return self.place_group(number + 1)
        pod = group.pod_at(member)
        fits = (overlay.reasons(pod, group.row) == 0) & domain
        fits[:first] = False
        score = overlay.table.cells.score[overlay.slot(group.row)].copy()
        for node in sorted(np.flatnonzero(fits).tolist(), key=lambda node: (-int(score[node]), node)):
            if self._tries_left == 0:
                return False
            self._tries_left -= 1
            before, found_before = overlay.checkpoint(), len(self.found)
            # A rolled back try has changed nodes, and `assume` reads the device of the cell.
            overlay.refresh(group.row)
            self.found.append(CombinationPlacement(group.pod_set, member, overlay.assume(pod, group.row, node)))
            if self._place_member(number, domain, member + 1, node):
                return True
            overlay.rollback(before)
            del self.found[found_before:]
        return False
