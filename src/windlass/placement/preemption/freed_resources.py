"""Freed-resource vectors: what every unit that may go would free on every node it is on.

Made once by `context` for the highest priority that asks; `slots` asks which nodes could take a pod, and what that
would roughly cost, before anything is tried on the overlay. Sums over whole nodes reject the impossible first.
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
from windlass.placement.preemption.victim_units import VictimUnit


class RequestVector(NamedTuple):
    """What a pod asks for, as far as vectors know."""

    columns: Ints
    amounts: Ints
    """The last column of the ground is milli-GPU."""
    by_replica: bool = False
    """Whole GPUs: where a node's GPUs are shared, a replica counts as one."""


class FreedResources:
    def __init__(self, snapshot: Snapshot, units: Sequence[VictimUnit]) -> None:
        self.units = list(units)
        self._snapshot = snapshot
        self._columns = snapshot.node_state.free.shape[1]
        rows = [(unit.number, row) for unit in units for row in unit.rows]
        owner = np.array([number for number, _ in rows], dtype=np.int64)
        pods = np.array([row for _, row in rows], dtype=np.int64)
        nodes = snapshot.pods.node[pods] if len(pods) else pods
        # Entries: one for each unit and node, by node and then in the order in which units would go.
        pairs, entry = np.unique(nodes * max(1, len(units)) + owner, return_inverse=True)
        self.entry_unit = pairs % max(1, len(units))
        self.entry_node = pairs // max(1, len(units))
        self.freed: Ints = np.zeros((len(pairs), self._columns + 1), dtype=np.int64)
        np.add.at(self.freed, entry.reshape(-1), self._vectors(pods))
        self._replica: Ints = np.maximum(
            1, MILLI_PER_GPU // np.maximum(1, snapshot.node_state.node_info[:, REPLICAS])
        )
        """[node] milli-GPU that stand for one advertised GPU."""
        self._freed_replicas: Ints = self.freed.copy()
        self._freed_replicas[:, -1] = self.freed[:, -1] * MILLI_PER_GPU // self._replica[self.entry_node]
        self.priority = np.array([unit.priority for unit in units], dtype=np.int64)
        levels = {
            level: place for place, level in enumerate(sorted({unit.priority for unit in units}), start=1)
        }
        ranks = [0 if unit.is_terminating else levels[unit.priority] for unit in units]
        self._rank = np.array(ranks, dtype=np.int64)
        """Of its priority among all there are; 0 for what is leaving anyway."""
        self._since = np.array([unit.started_at for unit in units], dtype=np.int64)
        self._loss = np.array([unit.loss for unit in units], dtype=np.int64).reshape(-1, 2)
        self._pods = np.array(
            [0 if unit.is_terminating else len(unit.pods) for unit in units], dtype=np.int64
        )
        self.present: Bools = np.ones(len(units), dtype=np.bool_)
        """Units that are on the overlay."""

    def _vectors(self, pods: Ints) -> Ints:
        """[pod, what it frees]."""
        table = self._snapshot.pods
        shapes, which = np.unique(table.shape[pods], return_inverse=True)
        kinds = np.zeros((len(shapes), self._columns + 1), dtype=np.int64)
        for kind, number in enumerate(shapes.tolist()):
            for name, amount in self._snapshot.shapes[number].requests:
                kinds[kind, self._snapshot.resources.column(name)] = amount
        found: Ints = kinds[which.reshape(-1)]
        found[:, -1] = [
            sum(grant.milli for grant in table.grants[row] if not grant.profile) for row in pods.tolist()
        ]
        return found

    def request_vector(self, shape: Shape) -> RequestVector:
        """Instances that a GPU is cut into on demand are no resource of the node, so they are not counted here."""
        cut = shape.gpu is not None and bool(shape.gpu.profile)
        asked = [
            (self._snapshot.resources.column(name), amount)
            for name, amount in shape.requests
            if not (cut and name.startswith("nvidia.com/mig-"))
        ]
        asked += [(self._columns, shape.gpu_milli)] if shape.gpu_milli else []
        columns, amounts = zip(*asked, strict=True) if asked else ((), ())
        whole = shape.gpu is not None and shape.gpu.milli == MILLI_PER_GPU
        return RequestVector(np.array(columns, dtype=np.int64), np.array(amounts, dtype=np.int64), whole)

    def _freed(self, need: RequestVector) -> Ints:
        """[entry, what is needed]"""
        freed: Ints = (self._freed_replicas if need.by_replica else self.freed)[:, need.columns]
        return freed

    def free(self, state: NodeState, need: RequestVector) -> Ints:
        """[node, what is needed] free now."""
        wide = _wide(state)
        if need.by_replica:
            wide[:, -1] = wide[:, -1] * MILLI_PER_GPU // self._replica
        return wide[:, need.columns]

    def preemptible_entries(self, priority: int) -> Bools:
        """Entries of units that are there and of lower priority."""
        usable: Bools = (self.present & (self.priority < priority))[self.entry_unit]
        return usable

    def max_freed_by_node(self, need: RequestVector, usable: Bools, nodes: int) -> Ints:
        """[node, what is needed] freed if everybody went who may."""
        total = np.zeros((nodes, len(need.columns)), dtype=np.int64)
        np.add.at(total, self.entry_node[usable], self._freed(need)[usable])
        return total

    def nodes_by_estimated_cost(
        self, free: Ints, wanted: Ints, need: RequestVector, usable: Bools, feasible: Bools
    ) -> Ints:
        """Feasible nodes with somebody on them who may go, the cheapest first.

        Estimated by what goes if units go in order until `wanted[node]` is there.
        """
        here = usable & feasible[self.entry_node]
        entries = np.flatnonzero(here)
        if not len(entries):
            return entries
        node, unit = self.entry_node[entries], self.entry_unit[entries]
        starts = np.flatnonzero(np.diff(node, prepend=-1))
        counts = np.diff(np.append(starts, len(entries)))
        freed = self._freed(need)[entries]
        sums = np.cumsum(freed, axis=0)
        before = np.repeat(sums[starts] - freed[starts], counts, axis=0)
        lacks = np.any(free[node] + sums - before < wanted[node], axis=1)
        # Who goes: as long as it lacks something, and the one that makes it enough; somebody at any rate, since the pod
        # was refused, and if not for a lack that vectors know, then for another.
        goes = np.append(True, lacks[:-1])
        goes[starts] = True
        enough = np.repeat(np.all(free[node[starts]] >= wanted[node[starts]], axis=1), counts)
        goes[enough] = False
        goes[starts] = True
        top = np.maximum.reduceat(np.where(goes, self._rank[unit], -1), starts)
        lost = [np.add.reduceat(np.where(goes, self._loss[unit, part], 0), starts) for part in range(2)]
        pods = np.add.reduceat(np.where(goes, self._pods[unit], 0), starts)
        newest = np.minimum.reduceat(np.where(goes, self._since[unit], np.iinfo(np.int64).max), starts)
        order = np.lexsort((node[starts], -newest, pods, lost[1], lost[0], top))
        ordered: Ints = node[starts][order]
        return ordered

    def units_on_node(self, node: int, usable: Bools, need: RequestVector) -> tuple[list[VictimUnit], Ints]:
        """The units on a node in the order of going, and what each frees there of what is needed."""
        first, end = np.searchsorted(self.entry_node, [node, node + 1]).tolist()
        entries = [entry for entry in range(first, end) if usable[entry]]
        return [self.units[int(self.entry_unit[entry])] for entry in entries], self._freed(need)[entries]


def _wide(state: NodeState) -> Ints:
    """Free resources with milli-GPU as the last column."""
    devices = np.concatenate([[0], np.cumsum(np.maximum(0, state.device_occupancy[:, FREE_MILLI]))])
    milli = devices[state.node_info[:, 1]] - devices[state.node_info[:, 0]]
    return np.concatenate([state.free, milli[:, None]], axis=1)
