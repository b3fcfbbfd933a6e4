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
Words = npt.NDArray[np.uint64]

MAX_DEVICES = 16
"""Devices a node can have: one hexadecimal digit each in a packed grant."""

GPU_KINDS = MAX_DEVICES + 1
"""GPU pods on a node are counted by what they ask: column 0 a share, column k whole GPUs of which k."""


class NodeState(NamedTuple):
    """One row a node, in rank order; devices of node n are rows `dev_start[n]` to `dev_start[n + 1]`."""

    free: Ints
    """[node, resource column] allocatable minus requested."""
    total: Ints
    """[node, resource column] allocatable."""
    dev_start: Ints
    dev_free: Ints
    """[device] free milli-GPU; 0 for an unhealthy device."""
    dev_model: Ints
    """[device] model code."""
    dev_memory: Ints
    """[device] MiB."""
    dev_healthy: Ints
    """[device] 1 or 0."""
    dev_island: Ints
    """[device] NVLink island inside the node."""
    dev_geometry: Ints
    """[device] MIG geometry code, -1 where MIG instances can't be made."""
    dev_slices: Ints
    """[device] bit mask of MIG memory slices in use."""
    replicas: Ints
    """[node] how many advertised GPUs one device stands for (time-slicing without renaming), else 1."""
    kinds: Ints
    """[node, kind] bound GPU pods by what they ask."""
    blocked: Ints
    """[node] bound pods that could not be understood: above 0 the node takes no new work."""

    def copy(self) -> NodeState:
        """A private copy of what placement changes; what it doesn't is shared."""
        return self._replace(
            free=self.free.copy(),
            dev_free=self.dev_free.copy(),
            dev_slices=self.dev_slices.copy(),
            kinds=self.kinds.copy(),
            blocked=self.blocked.copy(),
        )


def kind_of(gpus: int, milli: int) -> int:
    """The column of `NodeState.kinds` for a GPU request."""
    return 0 if milli < 1000 else min(gpus, MAX_DEVICES)
