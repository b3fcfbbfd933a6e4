"""Packed devices out of the kernels into the grants of a plan."""

from __future__ import annotations

import numpy as np

from windlass.cluster.node_state import GEOMETRY, REPLICAS, Ints, Uint64s
from windlass.cluster.pod_accounting import device_share_milli
from windlass.cluster.snapshot import Snapshot
from windlass.model.decision import DeviceGrant
from windlass.model.gpu import GpuRequest
from windlass.placement.kernels.devices import INSTANCE_BIT


class GrantUnpacker:
    """Unpacks grants; most of a plan's grants are equal, so each is made once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[tuple[int, int, int], tuple[DeviceGrant, ...]] = {}

    def for_snapshot(self, snapshot: Snapshot) -> GrantUnpacker:
        """Reads of a later snapshot of the same nodes and shapes; a new reader where it is of others."""
        if snapshot.nodes is not self._snapshot.nodes or snapshot.shapes is not self._snapshot.shapes:
            return GrantUnpacker(snapshot)
        self._snapshot = snapshot
        return self

    def grants(self, row: int, node: int, packed: np.uint64) -> tuple[DeviceGrant, ...]:
        """The devices that the pod in this row gets on this node."""
        number = int(self._snapshot.pods.shape[row])
        return self._read(number, node, int(self._snapshot.node_state.node_info[node, REPLICAS]), int(packed))

    def grants_of_all(self, rows: Ints, nodes: Ints, packed: Uint64s) -> list[tuple[DeviceGrant, ...]]:
        """The same for many pods."""
        numbers = self._snapshot.pods.shape[rows].tolist()
        replicas = self._snapshot.node_state.node_info[nodes, REPLICAS].tolist()
        return list(map(self._read, numbers, nodes.tolist(), replicas, packed.tolist()))

    def _read(self, number: int, node: int, replicas: int, packed: int) -> tuple[DeviceGrant, ...]:
        gpu = self._snapshot.shapes[number].gpu
        if gpu is None:
            return ()
        # Where a share follows from a device's memory, it depends on the node too.
        key = (number, packed, node if gpu.memory_mib or gpu.profile else -replicas)
        found = self._known.get(key)
        if found is None:
            unpack = self._instances if gpu.profile else self._shares
            found = self._known[key] = unpack(gpu, node, packed)
        return found

    def _shares(self, gpu: GpuRequest, node: int, packed: int) -> tuple[DeviceGrant, ...]:
        state = self._snapshot.node_state
        grants = []
        for index, device in enumerate(state.devices(node)):
            shares = packed >> 4 * index & 15
            if shares:
                milli = device_share_milli(state, device, gpu, int(state.node_info[node, REPLICAS]))
                grants.append(DeviceGrant(index, shares * milli))
        return tuple(grants)

    def _instances(self, gpu: GpuRequest, node: int, packed: int) -> tuple[DeviceGrant, ...]:
        state = self._snapshot.node_state
        if all(state.device_info[device, GEOMETRY] < 0 for device in state.devices(node)):
            return ()  # a fixed layout: the kubelet hands out the instances
        grants = []
        for i in range(gpu.count):
            byte = packed >> 8 * i & 255
            grants.append(DeviceGrant(byte >> 4, profile=gpu.profile, start=byte & INSTANCE_BIT - 1))
        return tuple(grants)
