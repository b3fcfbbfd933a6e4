"""Freed-resource vectors: what every unit that may be evicted would free on each of its nodes.

`context` makes them once, for the highest waiting priority. `candidates` asks which nodes could take a pod, and what
that would cost roughly, before anything is tried on the overlay. Sums per node rule out impossible nodes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import FREE_MILLI, REPLICAS, Ints, NodeState
from windlass.cluster.pod_accounting import MILLI_PER_GPU
from windlass.cluster.shape import Shape
from windlass.cluster.snapshot import Snapshot
from windlass.model.names.nvidia import MIG_RESOURCE_PREFIX
from windlass.placement.preemption.victim_units import VictimUnit


class RequestVector(NamedTuple):
    """What a pod requests, as columns of the vectors; the last column is thousandths of GPUs."""

    columns: Ints
    amounts: Ints
    by_replica: bool = False
    """For whole GPUs: where GPUs are time-sliced, a replica counts as one GPU."""


class FreedResources:
    def __init__(self, snapshot: Snapshot, units: Sequence[VictimUnit]) -> None:
        self.units = list(units)
        self._snapshot = snapshot
        self._columns = snapshot.node_state.free.shape[1]
        rows = [(unit.number, row) for unit in units for row in unit.rows]
        owner = np.array([number for number, _ in rows], dtype=np.int64)
        pods = np.array([row for _, row in rows], dtype=np.int64)
        nodes = snapshot.pods.node[pods] if len(pods) else pods
        # Entries: one for each unit and node, sorted by node and then in eviction order.
        pairs, entry = np.unique(nodes * max(1, len(units)) + owner, return_inverse=True)
        self.entry_unit = pairs % max(1, len(units))
        self.entry_node = pairs // max(1, len(units))
        self.freed: Ints = np.zeros((len(pairs), self._columns + 1), dtype=np.int64)
        np.add.at(self.freed, entry.reshape(-1), self._vectors(pods))
        replicas = np.maximum(1, snapshot.node_state.node_info[:, REPLICAS])
        self._replica: Ints = np.maximum(1, MILLI_PER_GPU // replicas)
        """[node] thousandths of a GPU that count as one advertised GPU."""
        # For requests of whole GPUs: there a freed replica counts as a whole one.
        self._freed_replicas: Ints = self.freed.copy()
        self._freed_replicas[:, -1] = self.freed[:, -1] * MILLI_PER_GPU // self._replica[self.entry_node]
        self.priority = np.array([unit.priority for unit in units], dtype=np.int64)
        priorities = sorted({unit.priority for unit in units})
        levels = {priority: rank for rank, priority in enumerate(priorities, start=1)}
        ranks = [0 if unit.is_terminating else levels[unit.priority] for unit in units]
        self._rank = np.array(ranks, dtype=np.int64)
        """Rank of the unit's priority among all; 0 for a unit that is terminating anyway."""
        self._started_at = np.array([unit.started_at for unit in units], dtype=np.int64)
        self._loss = np.array([unit.loss for unit in units], dtype=np.int64).reshape(-1, 2)
        counts = [0 if unit.is_terminating else len(unit.pods) for unit in units]
        self._pods = np.array(counts, dtype=np.int64)
        self.present: Bools = np.ones(len(units), dtype=np.bool_)
        """Units that are on the overlay."""

    def _vectors(self, pods: Ints) -> Ints:
        """[pod, column] what the pod frees."""
        table = self._snapshot.pods
        shapes, shape_index = np.unique(table.shape[pods], return_inverse=True)
        by_shape = np.zeros((len(shapes), self._columns + 1), dtype=np.int64)
        for index, number in enumerate(shapes.tolist()):
            for name, amount in self._snapshot.shapes[number].requests:
                by_shape[index, self._snapshot.resources.column(name)] += amount
        vectors: Ints = by_shape[shape_index.reshape(-1)]
        vectors[:, -1] = [sum(grant.milli for grant in table.grants[row] if not grant.profile) for row in pods.tolist()]
        return vectors

    def request_vector(self, shape: Shape) -> RequestVector:
        """MIG instances that are made on demand are no resource of the node, so they are not counted here."""
        by_mig_profile = shape.gpu is not None and bool(shape.gpu.profile)
        requested = [
            (self._snapshot.resources.column(name), amount)
            for name, amount in shape.requests
            if not (by_mig_profile and name.startswith(MIG_RESOURCE_PREFIX))
        ]
        requested += [(self._columns, shape.gpu_milli)] if shape.gpu_milli else []
        columns, amounts = zip(*requested, strict=True) if requested else ((), ())
        whole = shape.gpu is not None and shape.gpu.milli == MILLI_PER_GPU
        return RequestVector(np.array(columns, dtype=np.int64), np.array(amounts, dtype=np.int64), whole)

    def _freed_columns(self, request: RequestVector) -> Ints:
        """[entry, requested column]"""
        freed: Ints = (self._freed_replicas if request.by_replica else self.freed)[:, request.columns]
        return freed

    def free(self, state: NodeState, request: RequestVector) -> Ints:
        """[node, requested column] free now."""
        free = _free_with_gpu_milli(state)
        if request.by_replica:
            free[:, -1] = free[:, -1] * MILLI_PER_GPU // self._replica
        return free[:, request.columns]

    def preemptible_entries(self, priority: int) -> Bools:
        """Entries of units that are present and of lower priority."""
        usable: Bools = (self.present & (self.priority < priority))[self.entry_unit]
        return usable

    def max_freed_by_node(self, request: RequestVector, usable: Bools, nodes: int) -> Ints:
        """[node, requested column] freed if all these entries were evicted."""
        total = np.zeros((nodes, len(request.columns)), dtype=np.int64)
        np.add.at(total, self.entry_node[usable], self._freed_columns(request)[usable])
        return total

    def nodes_by_estimated_cost(
        self, free: Ints, wanted: Ints, request: RequestVector, usable: Bools, feasible: Bools
    ) -> Ints:
        """Feasible nodes with units that may be evicted, the cheapest first.

        The estimate is the cost of evicting units in order until `wanted[node]` is free. All nodes are computed at
        once: `entries` are sorted by node, `starts` are the first entry of each node.
        """
        here = usable & feasible[self.entry_node]
        entries = np.flatnonzero(here)
        if not len(entries):
            return entries
        node, unit = self.entry_node[entries], self.entry_unit[entries]
        starts = np.flatnonzero(np.diff(node, prepend=-1))
        counts = np.diff(np.append(starts, len(entries)))
        freed = self._freed_columns(request)[entries]
        sums = np.cumsum(freed, axis=0)
        # Running sums over all nodes at once; what stands before a node's first entry is taken off again.
        before = np.repeat(sums[starts] - freed[starts], counts, axis=0)
        lacking = np.any(free[node] + sums - before < wanted[node], axis=1)
        # Evicted are the units as long as something is lacking, and the one that makes it enough. The first one is
        # always evicted: the pod was refused, and if not for a lack that vectors know, then for another reason.
        evicted = np.append(True, lacking[:-1])
        evicted[starts] = True
        enough = np.repeat(np.all(free[node[starts]] >= wanted[node[starts]], axis=1), counts)
        evicted[enough] = False
        evicted[starts] = True
        # In the order of `eviction_cost`: the highest priority first, then what is lost, then pods, then age.
        top = np.maximum.reduceat(np.where(evicted, self._rank[unit], -1), starts)
        lost = [np.add.reduceat(np.where(evicted, self._loss[unit, part], 0), starts) for part in range(2)]
        pods = np.add.reduceat(np.where(evicted, self._pods[unit], 0), starts)
        started = np.where(evicted, self._started_at[unit], np.iinfo(np.int64).max)
        newest = np.minimum.reduceat(started, starts)
        order = np.lexsort((node[starts], -newest, pods, lost[1], lost[0], top))
        ordered: Ints = node[starts][order]
        return ordered

    def units_on_node(self, node: int, usable: Bools, request: RequestVector) -> tuple[list[VictimUnit], Ints]:
        """The units on a node in eviction order, and what each frees there of the requested columns."""
        first, end = np.searchsorted(self.entry_node, [node, node + 1]).tolist()
        entries = [entry for entry in range(first, end) if usable[entry]]
        units = [self.units[int(self.entry_unit[entry])] for entry in entries]
        return units, self._freed_columns(request)[entries]


def _free_with_gpu_milli(state: NodeState) -> Ints:
    """Free resources with milli-GPU as the last column."""
    # A device that several pods hold (below 0) must not hide what its neighbours have free.
    devices = np.concatenate([[0], np.cumsum(np.maximum(0, state.device_occupancy[:, FREE_MILLI]))])
    milli = devices[state.node_info[:, 1]] - devices[state.node_info[:, 0]]
    return np.concatenate([state.free, milli[:, None]], axis=1)
