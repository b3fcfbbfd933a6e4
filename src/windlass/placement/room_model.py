"""Builds the model of the room that evictions make (`queueing.victim_room`) from the overlay.

`workload_placer` hands it to queueing, `gang` uses it for preemptors outside of queues. Only the pod set with the most
GPUs is modelled, by free amounts and, for GPUs, by device: two halves that come free on two GPUs are no whole one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import BLOCKED, DEV_END, DEV_FIRST, FREE_MILLI, REPLICAS, Ints
from windlass.cluster.pod_accounting import MILLI_PER_GPU
from windlass.cluster.pod_table import UNREADABLE
from windlass.model.gpu import GpuRequest
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.placement.fit_estimate import requests_of_row
from windlass.placement.gang import PendingPodSet
from windlass.placement.overlay import Overlay
from windlass.placement.placed_workloads import WorkloadPods
from windlass.queueing.victim_room import NodeRoom, RoomByAmount, RoomBySubset, VictimRoom

MAX_SUBSET_UNITS = 10
"""Up to so many units on a node, all sets of them are looked at."""


def build_room(
    overlay: Overlay, pod_sets: Sequence[PendingPodSet], units: Sequence[Sequence[WorkloadPods]]
) -> VictimRoom | None:
    """None where nothing is asked for that could be counted, or what a unit holds can't be read."""
    waiting = [pod_set for pod_set in pod_sets if pod_set.count]
    if not waiting or any(_is_unreadable(overlay, part) for unit in units for part in unit):
        return None
    main = max(waiting, key=lambda pod_set: (pod_set.shape.gpu_milli * pod_set.count, pod_set.count))
    return _RoomBuilder(overlay, main).build(units)


def _is_unreadable(overlay: Overlay, pods: WorkloadPods) -> bool:
    return any(int(overlay.snapshot.pods.shape[row]) == UNREADABLE for row in pods.running_rows)


class _FreedOnNode:
    """What a workload frees on one node."""

    __slots__ = ("amounts", "devices", "gpus")

    def __init__(self, columns: int) -> None:
        self.amounts = [0] * columns
        self.devices: dict[int, int] = {}
        """Index in the node → thousandths."""
        self.gpus = 0
        """Whole GPUs of pods that this decision has placed; which ones is not looked up."""


class _RoomBuilder:
    def __init__(self, overlay: Overlay, pod_set: PendingPodSet) -> None:
        self._overlay, self._state, self._pod_set = overlay, overlay.state, pod_set
        row = overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod)
        self._open: Bools = (overlay.table.static(row) == 0) & (self._state.node_info[:, BLOCKED] == 0)
        amounts = requests_of_row(overlay, row)
        self._columns: list[int] = np.flatnonzero(amounts).tolist()
        self._amounts: Ints = amounts[self._columns]
        self._gpu = _countable(pod_set.shape.gpu)
        self._by_shape: dict[int, tuple[int, ...]] = {}

    def build(self, units: Sequence[Sequence[WorkloadPods]]) -> VictimRoom:
        units_of: dict[int, list[int]] = {}
        """Id of a workload's pods → the units that it is part of."""
        for number, unit in enumerate(units):
            for part in unit:
                units_of.setdefault(id(part), []).append(number)
        by_node = self._freed_by_node(units)
        base, most = self._pods({}), self._pods(by_node)
        nodes: dict[int, NodeRoom] = {}
        for node, freed in by_node.items():
            # Elsewhere the evictions make no room for a single pod more.
            if most[node] > base[node]:
                nodes[node] = self._node_room(node, freed, units_of, (int(base[node]), int(most[node])))
                base[node] = 0
        domains = self._domains()
        return VictimRoom(
            self._pod_set.count,
            [[room for node, room in nodes.items() if domain is None or domain[node]] for domain in domains],
            [int(base.sum() if domain is None else base[domain].sum()) for domain in domains],
        )

    def _domains(self) -> Sequence[Bools | None]:
        """Domains of which the pods have to use one; None stands for all nodes."""
        asked, tree = self._pod_set.topology, self._pod_set.tree
        if asked is None or asked.mode != "required" or tree is None:
            return [None]
        return tree.domains(asked.level, len(self._open))

    def _pods(self, freed: Mapping[int, Mapping[int, _FreedOnNode]]) -> Ints:
        """[node] pods that fit without all of these."""
        state = self._state
        free, gpus = state.free[:, self._columns], np.zeros(len(self._open), dtype=np.int64)
        devices = state.device_occupancy[:, FREE_MILLI].copy()
        for node, parts in freed.items():
            first = int(state.node_info[node, DEV_FIRST])
            for part in parts.values():
                free[node] += part.amounts
                gpus[node] += part.gpus
                for index, milli in part.devices.items():
                    devices[first + index] += milli
        pods: Ints = np.where(self._open, self._pod_set.count, 0)
        for column, amount in enumerate(self._amounts.tolist()):
            np.minimum(pods, free[:, column] // amount, out=pods)
        if self._gpu is not None:
            shares = np.concatenate([[0], np.cumsum(np.maximum(0, devices) // self._gpu.milli)])
            on_node = shares[state.node_info[:, DEV_END]] - shares[state.node_info[:, DEV_FIRST]] + gpus
            by_device = on_node // self._gpu.count
            pods = np.where(state.node_info[:, REPLICAS] > 1, pods, np.minimum(pods, by_device))
        return np.maximum(pods, 0)

    # What units free

    def _freed_by_node(self, units: Sequence[Sequence[WorkloadPods]]) -> dict[int, dict[int, _FreedOnNode]]:
        """Node → id of a workload's pods → what they free there."""
        found: dict[int, dict[int, _FreedOnNode]] = {}
        pods = self._overlay.snapshot.pods
        for part in {id(part): part for unit in units for part in unit}.values():
            for row in part.running_rows:
                here = self._entry(found, int(pods.node[row]), id(part))
                _add(here.amounts, self._requested(int(pods.shape[row])))
                for grant in pods.grants[row]:
                    if not grant.profile:
                        here.devices[grant.index] = here.devices.get(grant.index, 0) + grant.milli
            for placement in part.placed:
                here = self._entry(found, placement.assumed.node, id(part))
                requested = requests_of_row(self._overlay, placement.assumed.row)
                _add(here.amounts, requested[self._columns].tolist())
                here.gpus += int(requested[self._overlay.snapshot.resources.column(GPU_RESOURCE)])
        return found

    def _entry(self, found: dict[int, dict[int, _FreedOnNode]], node: int, part: int) -> _FreedOnNode:
        here = found.setdefault(node, {})
        if part not in here:
            here[part] = _FreedOnNode(len(self._columns))
        return here[part]

    def _requested(self, shape: int) -> tuple[int, ...]:
        known = self._by_shape.get(shape)
        if known is None:
            snapshot = self._overlay.snapshot
            amounts: Counter[int] = Counter()
            for name, amount in snapshot.shapes[shape].requests:
                amounts[snapshot.resources.column(name)] += amount
            known = self._by_shape[shape] = tuple(amounts[column] for column in self._columns)
        return known

    # Nodes

    def _node_room(
        self,
        node: int,
        freed: dict[int, _FreedOnNode],
        units_of: dict[int, list[int]],
        pods: tuple[int, int],
    ) -> NodeRoom:
        """`pods` that fit with all of these workloads on the node, and without them."""
        units = tuple(dict.fromkeys(unit for part in freed for unit in units_of[part]))
        if len(units) == 1:
            return RoomBySubset(units, pods)
        # A member above the minimum is a unit, and part of the minimum's unit, too.
        has_part: Ints = np.array([[int(unit in units_of[part]) for part in freed] for unit in units], dtype=np.int64)
        parts = list(freed.values())
        if len(units) > MAX_SUBSET_UNITS:
            return self._room_by_amount(node, units, has_part, parts, pods[1])
        gone = np.minimum(1, _subsets(len(units)) @ has_part)
        return RoomBySubset(units, self._pods_without(node, gone, parts).tolist())

    def _pods_without(self, node: int, chosen: Ints, freed: Sequence[_FreedOnNode]) -> Ints:
        """[set] pods that fit on the node without these workloads."""
        pods = np.full(len(chosen), self._pod_set.count, dtype=np.int64)
        if self._columns:
            amounts = np.array([part.amounts for part in freed], dtype=np.int64).reshape(-1, len(self._columns))
            free = self._state.free[node, self._columns] + chosen @ amounts
            np.minimum(pods, (free // self._amounts).min(axis=1), out=pods)
        if self._gpu is not None and self._state.node_info[node, REPLICAS] <= 1:
            rows = self._state.devices(node)
            held = [[part.devices.get(index, 0) for index in range(len(rows))] for part in freed]
            devices = np.array(held, dtype=np.int64).reshape(-1, len(rows))
            free = self._state.device_occupancy[rows.start : rows.stop, FREE_MILLI] + chosen @ devices
            shares = (np.maximum(0, free) // self._gpu.milli).sum(axis=1)
            gpus = np.array([part.gpus for part in freed], dtype=np.int64)
            np.minimum(pods, (shares + chosen @ gpus) // self._gpu.count, out=pods)
        return np.maximum(pods, 0)

    def _room_by_amount(
        self, node: int, units: tuple[int, ...], has_part: Ints, freed: Sequence[_FreedOnNode], most: int
    ) -> RoomByAmount:
        """Of thousandths of GPUs; else of the resource that is scarcest even without all of them."""
        if self._gpu is not None and self._state.node_info[node, REPLICAS] <= 1:
            rows = self._state.devices(node)
            free = int(np.maximum(0, self._state.device_occupancy[rows.start : rows.stop, FREE_MILLI]).sum())
            each = self._pod_set.shape.gpu_milli
            amounts = np.array([sum(part.devices.values()) + part.gpus * MILLI_PER_GPU for part in freed])
        else:
            by_column = np.array([part.amounts for part in freed])
            left = self._state.free[node, self._columns]
            scarcest = int(np.argmin((left + by_column.sum(axis=0)) / self._amounts))
            free, each = int(left[scarcest]), int(self._amounts[scarcest])
            amounts = by_column[:, scarcest]
        lacking = [max(0, each * pods - free) for pods in range(most + 1)]
        return RoomByAmount(units, tuple((has_part @ amounts).tolist()), tuple(lacking))


def _add(amounts: list[int], more: Sequence[int]) -> None:
    for column, amount in enumerate(more):
        amounts[column] += amount


def _countable(gpu: GpuRequest | None) -> GpuRequest | None:
    """Requests for GPUs or shares of them; shares by memory differ from node to node, and MIG has rules of its own."""
    return gpu if gpu is not None and not gpu.profile and not gpu.memory_mib else None


@cache
def _subsets(units: int) -> Ints:
    """[set, unit] 1 where the unit is in the set; the number of a set is its mask."""
    found: Ints = (np.arange(1 << units)[:, None] >> np.arange(units)) & 1
    found.setflags(write=False)
    return found
