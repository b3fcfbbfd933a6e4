"""The numbers that placement changes: what is free on every node and device.

Plain arrays in a named tuple, so that the same functions run compiled and interpreted. The store keeps one, a snapshot
shares it read-only, and `placement.overlay` works on a copy.

Units: milli-CPU, bytes, counts; milli-GPU per device (1000 is a whole one).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windlass.model.device import MAX_DEVICES as MAX_DEVICES

Ints = npt.NDArray[np.int64]
Uint64s = npt.NDArray[np.uint64]

MAX_REQUESTS = 24
"""Limit of different resources per pod: each has a bit of its own in the mask of refusal reasons."""

GPU_POD_KINDS = MAX_DEVICES + 1
"""Columns of `gpu_pod_counts`: 0 counts pods with a share of a GPU, k counts pods with k whole GPUs."""


# Columns of `NodeState.node_info`.
DEV_FIRST, DEV_END, REPLICAS, BLOCKED, ALIGNMENT = range(5)
# Columns of `NodeState.device_occupancy`.
FREE_MILLI, USED_SLICES = range(2)
# Columns of `NodeState.device_info`.
MODEL, MEMORY_MIB, HEALTHY, ISLAND, GEOMETRY = range(5)


class NodeState(NamedTuple):
    """One row per node, in rank order, and one row per device, node after node. Few wide arrays, since passing an
    array on costs time in every kernel call."""

    free: Ints
    """[node, resource column] allocatable minus requested."""
    allocatable: Ints
    """[node, resource column] allocatable."""
    node_info: Ints
    """[node] DEV_FIRST to DEV_END: its device rows. REPLICAS: advertised GPUs per device (time-slicing without
    renaming), else 1. BLOCKED: number of bound pods that can't be read; above 0 the node takes no new pods.
    ALIGNMENT: what the kubelet demands of NUMA nodes (`model.numa_alignment`)."""
    device_occupancy: Ints
    """[device] FREE_MILLI: free milli-GPU, 0 for an unhealthy or MIG device. USED_SLICES: mask of MIG slices in use."""
    device_info: Ints
    """[device] MODEL code, MEMORY_MIB, HEALTHY 1 or 0, NVLink ISLAND in the node (its NUMA node
    where ALIGNMENT demands one), MIG GEOMETRY code (-1 where no
    instances can be created)."""
    gpu_pod_counts: Ints
    """[node, kind] bound GPU pods by kind of GPU request."""

    def copy(self) -> NodeState:
        """A copy of the arrays that placement changes; the others are shared."""
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
    """The column of `NodeState.gpu_pod_counts` for a GPU request."""
    return 0 if milli < 1000 else min(gpus, MAX_DEVICES)
