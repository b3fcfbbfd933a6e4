"""Places for pods in a matrix of free room: what `starts` and `calendar` plan with.

Sets with a topology request go through the topology search; the others fill the nodes that have the least room for
them, so that large room stays whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import BLOCKED, Ints
from windlass.placement.blocked_capacity import PlannedPod
from windlass.placement.gang import PendingPodSet
from windlass.placement.overlay import Overlay
from windlass.placement.timeplan.capacity_forecast import CapacityForecast
from windlass.placement.topology import DomainTree, TopologyFailure, TopologyPodSetRequest, plan_topology
from windlass.placement.topology.matrix_capacity import UNLIMITED, MatrixCapacity


class PodSetFitter:
    """Parts of a workload, as rows of the table and what one pod of each takes."""

    def __init__(
        self, overlay: Overlay, forecast: CapacityForecast, pod_sets: Sequence[PendingPodSet]
    ) -> None:
        self._overlay, self._parts = overlay, pod_sets
        self._rows = [overlay.table.row(part.shape, overlay.snapshot, part.pod) for part in pod_sets]
        self._asked = [forecast.row_request(row) for row in self._rows]

    def pods_per_node(self, part: int, free: Ints, among: Bools | None = None) -> Ints:
        """Pods of the part that each node takes."""
        open_ = self._overlay.table.cells.static[self._rows[part]] == 0
        open_ &= self._overlay.state.node_info[:, BLOCKED] == 0
        if among is not None:
            open_ &= among
        counts: Ints = np.where(open_, UNLIMITED, 0).astype(np.int64)
        for column in np.flatnonzero(self._asked[part]):
            np.minimum(counts, free[:, column] // self._asked[part][column], out=counts)
        return np.maximum(counts, 0, out=counts)

    def can_fit(self, free: Ints) -> bool:
        """Whether each part, taken for itself, has room."""
        return all(
            int(self.pods_per_node(i, free).sum()) >= part.count
            for i, part in enumerate(self._parts)
            if part.count
        )

    def nodes_lost_to_plans(self, free: Ints, spare: Ints) -> set[int]:
        """Nodes that would take a pod by what is free, and take none of what is to spare."""
        takes = np.zeros(len(free), dtype=np.bool_)
        keeps = np.zeros(len(free), dtype=np.bool_)
        for i in range(len(self._parts)):
            takes |= self.pods_per_node(i, free) > 0
            keeps |= self.pods_per_node(i, spare) > 0
        return set(np.flatnonzero(takes & ~keeps).tolist())

    def plan_all_pods(
        self, free: Ints, tree: DomainTree | None = None, topology: str = "", among: Bools | None = None
    ) -> list[PlannedPod] | None:
        """A seat for every pod, or nothing."""
        close = [i for i, part in enumerate(self._parts) if part.topology is not None and tree is not None]
        free = free.copy()
        seats: list[PlannedPod] = []
        if close and tree is not None:
            found = self._find_close(close, free, tree, topology)
            if found is None:
                return None
            seats += found
        rest = [i for i in range(len(self._parts)) if i not in close]
        for i in sorted(rest, key=lambda i: (-int(self._asked[i][-1]), i)):
            taken = self.plan_as_many_as_fit(i, free, among)
            if len(taken) < self._parts[i].count:
                return None
            seats += taken
        return seats

    def plan_as_many_as_fit(self, i: int, free: Ints, among: Bools | None = None) -> list[PlannedPod]:
        """As many seats as there is room for, up to what is asked; `free` goes down by them."""
        counts = self.pods_per_node(i, free, among)
        part, left, seats = self._parts[i], self._parts[i].count, []
        nodes = np.flatnonzero(counts)
        for node in nodes[np.lexsort((nodes, counts[nodes]))].tolist():
            pods = min(left, int(counts[node]))
            free[node] -= pods * self._asked[i]
            seats += [PlannedPod(part.pod, self._rows[i], node)] * pods
            left -= pods
            if not left:
                break
        return seats

    def _find_close(
        self, close: Sequence[int], free: Ints, tree: DomainTree, topology: str
    ) -> list[PlannedPod] | None:
        asks = [
            TopologyPodSetRequest(self._parts[i].name, self._parts[i].count, self._parts[i].topology)
            for i in close
        ]
        names = [str(column) for column in range(free.shape[1])]
        caps = [self.pods_per_node(i, free) for i in close]
        room = MatrixCapacity(names, free, np.array([self._asked[i] for i in close]), caps)
        found = plan_topology(tree, asks, room, topology)
        if isinstance(found, TopologyFailure):
            return None
        seats = []
        for i, placement in zip(close, found.placements, strict=True):
            for node, pods in zip(placement.rows.tolist(), placement.pods.tolist(), strict=True):
                free[node] -= pods * self._asked[i]
                seats += [PlannedPod(self._parts[i].pod, self._rows[i], node)] * pods
        return seats
