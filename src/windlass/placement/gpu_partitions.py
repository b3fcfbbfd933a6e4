"""Free capacity of partitioned GPUs: MIG instances and renamed shared replicas (nvidia.com/gpu.shared).

`placement.utilization` adds it to the free capacity of whole GPUs and shares. GPUs with instances on demand have a mask
of used slices; for GPUs with a fixed layout only the advertised resources are known, so their free fraction is that of
these resources, weighted by memory slices.
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
    return _free_in_dynamic_layouts(snapshot) + _free_in_fixed_layouts(snapshot)


def _free_in_dynamic_layouts(snapshot: Snapshot) -> int:
    state = snapshot.node_state
    free = 0
    for device in np.flatnonzero(state.device_info[:, GEOMETRY] >= 0).tolist():
        slices = GEOMETRIES[int(state.device_info[device, GEOMETRY])].memory_slices
        taken = int(state.device_occupancy[device, USED_SLICES]) & ((1 << slices) - 1)
        free += 1000 * (slices - taken.bit_count()) // slices
    return free


def _free_in_fixed_layouts(snapshot: Snapshot) -> int:
    state = snapshot.node_state
    names = {column: snapshot.resources.name(column) for column in range(state.allocatable.shape[1])}
    resources = {
        column: name
        for column, name in names.items()
        if name == SHARED_GPU_RESOURCE or name.startswith(MIG_RESOURCE_PREFIX)
    }
    if not resources:
        return 0
    rows = np.flatnonzero(state.allocatable[:, list(resources)].any(axis=1)).tolist()
    return sum(_free_on_node(snapshot, row, resources) for row in rows)


def _free_on_node(snapshot: Snapshot, row: int, resources: Mapping[int, str]) -> int:
    state, node = snapshot.node_state, snapshot.nodes.objects[row]
    models = _models_with_fixed_layout(node) if f"Node {node.name}" not in snapshot.unreadable else []
    if not models:
        return 0
    sizes = {column: _slices_of(name, models[0]) for column, name in resources.items()}
    total = sum(int(state.allocatable[row, column]) * size for column, size in sizes.items())
    free = sum(max(0, int(state.free[row, column])) * size for column, size in sizes.items())
    return 1000 * len(models) * free // max(1, total)


def _models_with_fixed_layout(node: Node) -> list[str]:
    capacity, allocatable = node_quantities(node)
    devices = node_devices(node, allocatable, capacity)
    return [device.model for device in devices if device.mig == "static" and device.healthy]


def _slices_of(resource: str, model: str) -> int:
    """Weight of one unit of the resource: memory slices of an instance, 1 for a replica of a shared GPU."""
    geometry = mig_geometry_of_model(model)
    if geometry is None or resource == SHARED_GPU_RESOURCE:
        return 1
    try:
        profile = geometry.profile(profile_of_resource(resource))
    except InputError:
        return 1  # a name that is no MIG profile: every unit counts the same
    return profile.memory_slices if profile is not None else 1
