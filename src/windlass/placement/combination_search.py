"""Places pods of different shapes by backtracking, where the greedy placement has failed.

`placement.gang` places the largest pods first, each on the best node; with several shapes that can miss a placement
that exists (the best node for one pod is the only one for another). If every shape on its own would fit, this search
tries other combinations within a budget: exact for small gangs, bounded for large ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.model.pod import Pod
from windlass.placement.overlay import AssumedPod, Overlay

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
    total = sum(group.pods for group in groups)
    if len(groups) < 2 or total > MAX_PODS or overlay.snapshot.nodes.size > MAX_NODES:
        return None
    feasible = [group._replace(domains=_domains_with_capacity(overlay, group)) for group in groups]
    if not all(group.domains for group in feasible):
        return None
    # The group with the fewest choices first, so that dead ends show early.
    search = _Search(overlay, sorted(feasible, key=lambda group: (len(group.domains), group.pod_set)))
    return search.found if search.place_group(0) else None


def _domains_with_capacity(overlay: Overlay, group: IdenticalPods) -> tuple[Bools, ...]:
    """The domains that could take all pods of the group if no other group were placed."""
    overlay.refresh(group.row)
    counts = np.zeros(overlay.snapshot.nodes.size, dtype=np.int64)
    overlay.kernels.count_fits(overlay.state, overlay.table.shapes, overlay.table.cells, group.row, counts)
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
        score = overlay.table.cells.score[group.row]
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
