"""Places for pods in a matrix of free room: what `starts` and `calendar` plan with.

Sets with a topology request go through the topology search; the others fill the nodes that have the least room for
them, so that large room stays whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.cluster.facts import Bools
from windlass.cluster.state import BLOCKED, Ints
from windlass.placement.gang import Part
from windlass.placement.obstacles import Seat
from windlass.placement.overlay import Overlay
from windlass.placement.timeplan.forecast import Forecast
from windlass.placement.topology import DomainTree, TopologyAsk, TopologyFailure, plan_topology
from windlass.placement.topology.room import PLENTY, MatrixRoom


class Fitting:
    """Parts of a workload, as rows of the table and what one pod of each takes."""

    def __init__(self, overlay: Overlay, forecast: Forecast, parts: Sequence[Part]) -> None:
        self._overlay, self._parts = overlay, parts
        self._rows = [overlay.table.row(part.shape, overlay.snapshot, part.pod) for part in parts]
        self._asked = [forecast.of_row(row) for row in self._rows]

    def count(self, part: int, free: Ints, among: Bools | None = None) -> Ints:
        """Pods of the part that each node takes."""
        open_ = self._overlay.table.cells.static[self._rows[part]] == 0
        open_ &= self._overlay.state.node[:, BLOCKED] == 0
        if among is not None:
            open_ &= among
        counts: Ints = np.where(open_, PLENTY, 0).astype(np.int64)
        for column in np.flatnonzero(self._asked[part]):
            np.minimum(counts, free[:, column] // self._asked[part][column], out=counts)
        return np.maximum(counts, 0, out=counts)

    def can_fit(self, free: Ints) -> bool:
        """Whether each part, taken for itself, has room."""
        return all(
            int(self.count(i, free).sum()) >= part.count for i, part in enumerate(self._parts) if part.count
        )

    def only_in(self, free: Ints, spare: Ints) -> set[int]:
        """Nodes that would take a pod by what is free, and take none of what is to spare."""
        takes = np.zeros(len(free), dtype=np.bool_)
        keeps = np.zeros(len(free), dtype=np.bool_)
        for i in range(len(self._parts)):
            takes |= self.count(i, free) > 0
            keeps |= self.count(i, spare) > 0
        return set(np.flatnonzero(takes & ~keeps).tolist())

    def find(
        self, free: Ints, tree: DomainTree | None = None, topology: str = "", among: Bools | None = None
    ) -> list[Seat] | None:
        """A seat for every pod, or nothing."""
        close = [i for i, part in enumerate(self._parts) if part.topology is not None and tree is not None]
        free = free.copy()
        seats: list[Seat] = []
        if close and tree is not None:
            found = self._find_close(close, free, tree, topology)
            if found is None:
                return None
            seats += found
        rest = [i for i in range(len(self._parts)) if i not in close]
        for i in sorted(rest, key=lambda i: (-int(self._asked[i][-1]), i)):
            taken = self.fill(i, free, among)
            if len(taken) < self._parts[i].count:
                return None
            seats += taken
        return seats

    def fill(self, i: int, free: Ints, among: Bools | None = None) -> list[Seat]:
        """As many seats as there is room for, up to what is asked; `free` goes down by them."""
        counts = self.count(i, free, among)
        part, left, seats = self._parts[i], self._parts[i].count, []
        nodes = np.flatnonzero(counts)
        for node in nodes[np.lexsort((nodes, counts[nodes]))].tolist():
            pods = min(left, int(counts[node]))
            free[node] -= pods * self._asked[i]
            seats += [Seat(part.pod, self._rows[i], node)] * pods
            left -= pods
            if not left:
                break
        return seats

    def _find_close(
        self, close: Sequence[int], free: Ints, tree: DomainTree, topology: str
    ) -> list[Seat] | None:
        asks = [
            TopologyAsk(self._parts[i].name, self._parts[i].count, self._parts[i].topology) for i in close
        ]
        names = [str(column) for column in range(free.shape[1])]
        caps = [self.count(i, free) for i in close]
        room = MatrixRoom(names, free, np.array([self._asked[i] for i in close]), caps)
        found = plan_topology(tree, asks, room, topology)
        if isinstance(found, TopologyFailure):
            return None
        seats = []
        for i, placement in zip(close, found.placements, strict=True):
            for node, pods in zip(placement.rows.tolist(), placement.pods.tolist(), strict=True):
                free[node] -= pods * self._asked[i]
                seats += [Seat(self._parts[i].pod, self._rows[i], node)] * pods
        return seats
