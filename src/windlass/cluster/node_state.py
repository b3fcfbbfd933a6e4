"""The numbers of a cluster that placement changes: what is free on every node and device.

Plain arrays in named tuples, so that the same functions run compiled and interpreted. The store keeps one, a snapshot
shares it read-only, and `decide` works on a copy.

Units: milli-CPU, bytes, counts; milli-GPU per device (1000 is a whole one).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Uint64s = npt.NDArray[np.uint64]

MAX_DEVICES = 16
"""Devices a node can have: one hexadecimal digit each in a packed grant."""

MAX_REQUESTS = 24
"""Different resources that one pod can ask for: each has a bit of its own in the `why` word."""

GPU_POD_KINDS = MAX_DEVICES + 1
"""GPU pods on a node are counted by what they ask: column 0 a share, column k whole GPUs of which k."""


# Columns of `NodeState.node`.
DEV_FIRST, DEV_END, REPLICAS, BLOCKED = range(4)
# Columns of `NodeState.room`.
FREE_MILLI, USED_SLICES = range(2)
# Columns of `NodeState.device`.
MODEL, MEMORY_MIB, HEALTHY, ISLAND, GEOMETRY = range(5)


class NodeState(NamedTuple):
    """One row a node, in rank order, and one row a device, node after node. Few wide arrays: kernels pass them on."""

    free: Ints
    """[node, resource column] allocatable minus requested."""
    allocatable: Ints
    """[node, resource column] allocatable."""
    node_info: Ints
    """[node] DEV_FIRST to DEV_END: its device rows. REPLICAS: how many advertised GPUs one device stands for
    (time-slicing without renaming), else 1. BLOCKED: bound pods that could not be understood; above 0 the node takes
    no new work."""
    device_occupancy: Ints
    """[device] FREE: free milli-GPU, 0 for an unhealthy or MIG-cut one. SLICES: bit mask of MIG slices in use."""
    device_info: Ints
    """[device] MODEL code, MEMORY_MIB, HEALTHY 1 or 0, NVLink ISLAND inside the node, MIG GEOMETRY code (-1 where
    instances can't be made)."""
    gpu_pod_counts: Ints
    """[node, kind] bound GPU pods by what they ask."""

    def copy(self) -> NodeState:
        """A private copy of what placement changes; what it doesn't is shared."""
        return self._replace(
            free=self.free.copy(),
            node_info=self.node_info.copy(),
            device_occupancy=self.device_occupancy.copy(),
            gpu_pod_counts=self.gpu_pod_counts.copy(),
        )

    def devices(self, node: int) -> range:
        """The device rows of a node."""
        return range(int(self.node_info[node, DEV_FIRST]), int(self.node_info[node, DEV_END]))


def gpu_pod_kind(gpus: int, milli: int) -> int:
    """The column of `NodeState.kinds` for a GPU request."""
    return 0 if milli < 1000 else min(gpus, MAX_DEVICES)
