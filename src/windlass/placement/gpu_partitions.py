"""What is free of GPUs that are handed out in parts: MIG instances and renamed shared replicas.

`placement.utilization` adds it to what is free of whole GPUs and shares. GPUs on which instances are made as they are
asked for know their slices; of those with a fixed layout only the advertised parts are counted, so their free part is
that of the parts, each by its memory slices.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from windlass.cluster.node_state import GEOMETRY, USED_SLICES
from windlass.cluster.snapshot import Snapshot
from windlass.model.device import node_devices
from windlass.model.errors import InputError
from windlass.model.mig import GEOMETRIES, MIG_RESOURCE_PREFIX, profile_of_resource
from windlass.model.node import Node
from windlass.model.requests import node_quantities
from windlass.sharing.mig import mig_geometry_of_model

SHARED_GPU_RESOURCE = "nvidia.com/gpu.shared"


def free_milli_in_partitions(snapshot: Snapshot) -> int:
    """In milli-GPU."""
    return _free_slices(snapshot) + _free_parts(snapshot)


def _free_slices(snapshot: Snapshot) -> int:
    state = snapshot.node_state
    free = 0
    for device in np.flatnonzero(state.device_info[:, GEOMETRY] >= 0).tolist():
        slices = GEOMETRIES[int(state.device_info[device, GEOMETRY])].memory_slices
        taken = int(state.device_occupancy[device, USED_SLICES]) & ((1 << slices) - 1)
        free += 1000 * (slices - taken.bit_count()) // slices
    return free


def _free_parts(snapshot: Snapshot) -> int:
    """Of GPUs whose layout is fixed."""
    state = snapshot.node_state
    names = {column: snapshot.resources.name(column) for column in range(state.allocatable.shape[1])}
    parts = {
        column: name
        for column, name in names.items()
        if name == SHARED_GPU_RESOURCE or name.startswith(MIG_RESOURCE_PREFIX)
    }
    if not parts:
        return 0
    cut = np.flatnonzero(state.allocatable[:, list(parts)].any(axis=1)).tolist()
    return sum(_free_on(snapshot, at, parts) for at in cut)


def _free_on(snapshot: Snapshot, at: int, parts: Mapping[int, str]) -> int:
    state, node = snapshot.node_state, snapshot.nodes.objects[at]
    models = _cut_models(node) if f"Node {node.name}" not in snapshot.unreadable else []
    if not models:
        return 0
    sizes = {column: _size(name, models[0]) for column, name in parts.items()}
    whole = sum(int(state.allocatable[at, column]) * size for column, size in sizes.items())
    free = sum(max(0, int(state.free[at, column])) * size for column, size in sizes.items())
    return 1000 * len(models) * free // max(1, whole)


def _cut_models(node: Node) -> list[str]:
    """The models of the healthy GPUs with a fixed layout."""
    capacity, allocatable = node_quantities(node)
    devices = node_devices(node, allocatable, capacity)
    return [device.model for device in devices if device.mig == "static" and device.healthy]


def _size(resource: str, model: str) -> int:
    """Memory slices of an instance; replicas of a shared GPU are all alike."""
    geometry = mig_geometry_of_model(model)
    if geometry is None or resource == SHARED_GPU_RESOURCE:
        return 1
    try:
        profile = geometry.profile(profile_of_resource(resource))
    except InputError:
        return 1  # somebody's own name for a part: each counts the same
    return profile.memory_slices if profile is not None else 1
