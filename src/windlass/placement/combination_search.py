"""Pods of different shapes placed together by trying combinations, where the quick way has found no room.

`placement.gang` places the largest pods first, each on the best node; with several shapes that can miss a placement
that exists (the best node for one is the only one for another). Then, if every shape on its own would fit, this search
takes choices back one by one, within a budget: exact for small gangs, and never a long wait for large ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.model.pod import Pod
from windlass.placement.overlay import AssumedPod, Overlay

MAX_TRIES = 256
"""Pods that are put somewhere, before the search gives up."""
MAX_PODS = 32
MAX_NODES = 512


class IdenticalPods(NamedTuple):
    """Equal pods."""

    pod_set: int
    row: int
    """Of the table."""
    pods: int
    pod_at: Callable[[int], Pod]
    domains: tuple[Bools, ...]
    """All of the pods go into one of these sets of nodes."""


class CombinationPlacement(NamedTuple):
    pod_set: int
    member: int
    placing: AssumedPod


def try_combinations(overlay: Overlay, groups: Sequence[IdenticalPods]) -> list[CombinationPlacement] | None:
    """A place for every pod of every crowd, taken on the overlay; None, and nothing taken, where none was found."""
    total = sum(crowd.pods for crowd in groups)
    if len(groups) < 2 or total > MAX_PODS or overlay.snapshot.nodes.size > MAX_NODES:
        return None
    possible = [crowd._replace(domains=_large_enough(overlay, crowd)) for crowd in groups]
    if not all(crowd.domains for crowd in possible):
        return None
    search = _Search(overlay, sorted(possible, key=lambda crowd: (len(crowd.domains), crowd.pod_set)))
    return search.found if search.place_crowd(0) else None


def _large_enough(overlay: Overlay, crowd: IdenticalPods) -> tuple[Bools, ...]:
    """The domains that could take all pods of the crowd, if it were alone."""
    overlay.refresh(crowd.row)
    counts = np.zeros(overlay.snapshot.nodes.size, dtype=np.int64)
    overlay.kernels.count_fits(overlay.state, overlay.table.shapes, overlay.table.cells, crowd.row, counts)
    return tuple(domain for domain in crowd.domains if counts[domain].sum() >= crowd.pods)


class _Search:
    def __init__(self, overlay: Overlay, crowds: Sequence[IdenticalPods]) -> None:
        self._overlay, self._crowds = overlay, crowds
        self._tries_left = MAX_TRIES
        self.found: list[CombinationPlacement] = []

    def place_crowd(self, number: int) -> bool:
        if number == len(self._crowds):
            return True
        crowd = self._crowds[number]
        return any(self._place_member(number, domain, 0, 0) for domain in crowd.domains)

    def _place_member(self, number: int, domain: Bools, member: int, first: int) -> bool:
        """Equal pods are interchangeable, so each goes to the node of the one before it or to a later one."""
        crowd, overlay = self._crowds[number], self._overlay
        if member == crowd.pods:
            return self.place_crowd(number + 1)
        pod = crowd.pod_at(member)
        fits = (overlay.reasons(pod, crowd.row) == 0) & domain
        fits[:first] = False
        score = overlay.table.cells.score[crowd.row]
        for node in sorted(np.flatnonzero(fits).tolist(), key=lambda node: (-int(score[node]), node)):
            if self._tries_left == 0:
                return False
            self._tries_left -= 1
            before, known = overlay.checkpoint(), len(self.found)
            overlay.refresh(crowd.row)
            self.found.append(
                CombinationPlacement(crowd.pod_set, member, overlay.assume(pod, crowd.row, node))
            )
            if self._place_member(number, domain, member + 1, node):
                return True
            overlay.rollback(before)
            del self.found[known:]
        return False
