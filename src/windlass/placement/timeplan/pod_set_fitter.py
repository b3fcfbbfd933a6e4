"""Places pod sets in a matrix of free capacity, for planned starts and reservations.

`earliest_start`, `reservations` and `occupancy` use it. Pod sets with a topology request go through the topology
search; the others fill the nodes that take the fewest of their pods first, so that large free nodes stay whole.
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
    """The pod sets of a workload, with their rows of the score table and what one pod of each takes.

    Lives as long as one search, during which no node is blocked or changed.
    """

    def __init__(self, overlay: Overlay, forecast: CapacityForecast, pod_sets: Sequence[PendingPodSet]) -> None:
        self._pod_sets = pod_sets
        self._rows = [overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod) for pod_set in pod_sets]
        self._requests = [forecast.row_request(row) for row in self._rows]
        unblocked = overlay.state.node_info[:, BLOCKED] == 0
        self._eligible = [(overlay.table.static(row) == 0) & unblocked for row in self._rows]
        self._columns = [np.flatnonzero(request) for request in self._requests]

    def pods_per_node(self, index: int, free: Ints, among: Bools | None = None) -> Ints:
        """By node, the number of pods of the set that it takes."""
        columns, request = self._columns[index], self._requests[index]
        counts: Ints = (free[:, columns] // request[columns]).min(axis=1, initial=UNLIMITED)
        np.maximum(counts, 0, out=counts)
        counts *= self._eligible[index]
        if among is not None:
            counts *= among
        return counts

    def can_fit(self, free: Ints) -> bool:
        """Whether each pod set fits, regardless of the others. A cheap necessary condition."""
        return all(
            int(self.pods_per_node(i, free).sum()) >= pod_set.count
            for i, pod_set in enumerate(self._pod_sets)
            if pod_set.count
        )

    def nodes_lost_to_plans(self, free: Ints, spare: Ints) -> set[int]:
        """Nodes that take a pod by what is free now, but not by what planned starts leave (`spare`)."""
        fits_free = np.zeros(len(free), dtype=np.bool_)
        fits_spare = np.zeros(len(free), dtype=np.bool_)
        for i in range(len(self._pod_sets)):
            fits_free |= self.pods_per_node(i, free) > 0
            fits_spare |= self.pods_per_node(i, spare) > 0
        return set(np.flatnonzero(fits_free & ~fits_spare).tolist())

    def plan_all_pods(
        self, free: Ints, tree: DomainTree | None = None, topology: str = "", among: Bools | None = None
    ) -> list[PlannedPod] | None:
        """A node for every pod, or None where not all of them fit."""
        requested = [i for i, pod_set in enumerate(self._pod_sets) if pod_set.topology is not None]
        with_topology = requested if tree is not None else []
        free = free.copy()
        planned: list[PlannedPod] = []
        if with_topology and tree is not None:
            pods = self._plan_with_topology(with_topology, free, tree, topology)
            if pods is None:
                return None
            planned += pods
        rest = [i for i in range(len(self._pod_sets)) if i not in with_topology]
        # The largest in GPUs first, as the placement itself does.
        for i in sorted(rest, key=lambda i: (-int(self._requests[i][-1]), i)):
            pods = self.plan_as_many_as_fit(i, free, among)
            if len(pods) < self._pod_sets[i].count:
                return None
            planned += pods
        return planned

    def plan_as_many_as_fit(self, index: int, free: Ints, among: Bools | None = None) -> list[PlannedPod]:
        """Nodes for as many pods of the set as fit; what they take is subtracted from `free`."""
        counts = self.pods_per_node(index, free, among)
        pod_set, left, planned = self._pod_sets[index], self._pod_sets[index].count, []
        nodes = np.flatnonzero(counts)
        for node in nodes[np.lexsort((nodes, counts[nodes]))].tolist():
            pods = min(left, int(counts[node]))
            free[node] -= pods * self._requests[index]
            planned += [PlannedPod(pod_set.pod, self._rows[index], node)] * pods
            left -= pods
            if not left:
                break
        return planned

    def _plan_with_topology(
        self, indices: Sequence[int], free: Ints, tree: DomainTree, topology: str
    ) -> list[PlannedPod] | None:
        requests = [
            TopologyPodSetRequest(self._pod_sets[i].name, self._pod_sets[i].count, self._pod_sets[i].topology)
            for i in indices
        ]
        names = [str(column) for column in range(free.shape[1])]
        caps = [self.pods_per_node(i, free) for i in indices]
        capacity = MatrixCapacity(names, free, np.array([self._requests[i] for i in indices]), caps)
        result = plan_topology(tree, requests, capacity, topology)
        if isinstance(result, TopologyFailure):
            return None
        planned = []
        for i, placement in zip(indices, result.placements, strict=True):
            for node, pods in zip(placement.rows.tolist(), placement.pods.tolist(), strict=True):
                free[node] -= pods * self._requests[i]
                planned += [PlannedPod(self._pod_sets[i].pod, self._rows[i], node)] * pods
        return planned
