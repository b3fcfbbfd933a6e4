"""Unpacks the device grants of the kernels into the `DeviceGrant`s of a plan.

Called by `engine`, `placement.decisions` and `defrag`; `kernels.devices` describes the packed form.
"""

from __future__ import annotations

import numpy as np

from windlass.cluster.node_state import GEOMETRY, REPLICAS, Ints, Uint64s
from windlass.cluster.pod_accounting import device_share_milli
from windlass.cluster.snapshot import Snapshot
from windlass.model.decision import DeviceGrant
from windlass.model.gpu import GpuRequest
from windlass.placement.kernels.devices import INSTANCE_BIT


class GrantUnpacker:
    """Most grants of a plan are equal, so each is made once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._cache: dict[tuple[int, int, int], tuple[DeviceGrant, ...]] = {}

    def for_snapshot(self, snapshot: Snapshot) -> GrantUnpacker:
        """This unpacker for a later snapshot of the same nodes and shapes, else a new one."""
        if snapshot.nodes is not self._snapshot.nodes or snapshot.shapes is not self._snapshot.shapes:
            return GrantUnpacker(snapshot)
        self._snapshot = snapshot
        return self

    def grants(self, row: int, node: int, packed: np.uint64) -> tuple[DeviceGrant, ...]:
        """The devices that the pod in this row gets on this node."""
        shape, replicas = self._snapshot.pods.shape[row], self._snapshot.node_state.node_info[node, REPLICAS]
        return self._unpack(int(shape), node, int(replicas), int(packed))

    def grants_of_all(self, rows: Ints, nodes: Ints, packed: Uint64s) -> list[tuple[DeviceGrant, ...]]:
        """The same for many pods."""
        numbers = self._snapshot.pods.shape[rows].tolist()
        replicas = self._snapshot.node_state.node_info[nodes, REPLICAS].tolist()
        return list(map(self._unpack, numbers, nodes.tolist(), replicas, packed.tolist()))

    def _unpack(self, shape: int, node: int, replicas: int, packed: int) -> tuple[DeviceGrant, ...]:
        gpu = self._snapshot.shapes[shape].gpu
        if gpu is None:
            return ()
        # A share by GPU memory depends on the node's devices too.
        # Negative, so that a number of replicas is never taken for a node.
        key = (shape, packed, node if gpu.memory_mib or gpu.profile else -replicas)
        found = self._cache.get(key)
        if found is None:
            unpack = self._unpack_instances if gpu.profile else self._unpack_shares
            found = self._cache[key] = unpack(gpu, node, packed)
        return found

    def _unpack_shares(self, gpu: GpuRequest, node: int, packed: int) -> tuple[DeviceGrant, ...]:
        state = self._snapshot.node_state
        grants = []
        for index, device in enumerate(state.devices(node)):
            shares = packed >> 4 * index & 15
            if shares:
                milli = device_share_milli(state, device, gpu, int(state.node_info[node, REPLICAS]))
                grants.append(DeviceGrant(index, shares * milli, replicas=shares))
        return tuple(grants)

    def _unpack_instances(self, gpu: GpuRequest, node: int, packed: int) -> tuple[DeviceGrant, ...]:
        state = self._snapshot.node_state
        if all(state.device_info[device, GEOMETRY] < 0 for device in state.devices(node)):
            return ()  # a fixed layout: the kubelet allocates the instances
        grants = []
        for i in range(gpu.count):
            byte = packed >> 8 * i & 255
            grants.append(DeviceGrant(byte >> 4, profile=gpu.profile, start=byte & INSTANCE_BIT - 1))
        return tuple(grants)
