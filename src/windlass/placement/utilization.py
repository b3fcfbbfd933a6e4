"""How well a cluster is used: allocated GPUs, fragmentation by cause, stranded GPUs by reason.

Reads a snapshot and the expected workload; called by `simulate.measures`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from windlass import jit
from windlass.cluster.node_state import (
    DEV_END,
    DEV_FIRST,
    FREE_MILLI,
    GEOMETRY,
    HEALTHY,
    MODEL,
    USED_SLICES,
    Ints,
)
from windlass.cluster.node_state_builder import MAX_MODELS
from windlass.cluster.resource_columns import CPU, MEMORY
from windlass.cluster.snapshot import Snapshot
from windlass.model.device import node_devices
from windlass.model.errors import InputError
from windlass.model.mig import GEOMETRIES, profile_of_resource
from windlass.model.names.nvidia import MIG_RESOURCE_PREFIX, SHARED_GPU_RESOURCE
from windlass.model.node import Node
from windlass.model.requests import node_quantities
from windlass.placement.device_pricing import DEVICE_MILLI
from windlass.placement.kernel_arrays import MixArrays
from windlass.placement.workload_mix import WorkloadMix, mix_arrays
from windlass.sharing.mig import mig_geometry_of_model

_TOO_SMALL, _WRONG_MODEL = 2**61, 2**62
"""In place of a class's CPU, where no class could use such a device; larger than any CPU request."""
FRAGMENT_CAUSES = ("lack_both", "lack_gpu", "usable", "lack_cpu", "cpu_only", "wrong_model")


class GpuUtilization(msgspec.Struct, frozen=True):
    total_milli: int
    """Milli-GPU of healthy GPUs."""
    free_milli: int
    """Free milli-GPU, partitioned GPUs included."""
    causes: dict[str, int]
    """Free milli-GPU by cause; all but `usable` is fragment. Without partitioned GPUs: the classes of a mix request
    whole ones and shares."""

    @property
    def allocated_milli(self) -> int:
        return self.total_milli - self.free_milli

    @property
    def fragment_milli(self) -> int:
        return sum(amount for cause, amount in self.causes.items() if cause != "usable")


def measure_utilization(snapshot: Snapshot, expected: WorkloadMix) -> GpuUtilization:
    return utilization_with_mix(snapshot, mix_arrays(expected, snapshot.gpu_models, snapshot.node_state))


def utilization_with_mix(snapshot: Snapshot, mix: MixArrays) -> GpuUtilization:
    """As `measure_utilization`, with the arrays of the mix for these nodes."""
    state = snapshot.node_state
    bins = np.zeros(len(FRAGMENT_CAUSES), dtype=np.float64)
    jit.compiled().cluster_fragments(state, mix, bins)
    return GpuUtilization(
        total_milli=_total_milli(snapshot),
        free_milli=_free_milli(snapshot),
        causes={cause: round(float(amount)) for cause, amount in zip(FRAGMENT_CAUSES, bins, strict=True)},
    )


def allocated_milli(snapshot: Snapshot) -> int:
    return _total_milli(snapshot) - _free_milli(snapshot)


def _total_milli(snapshot: Snapshot) -> int:
    return 1000 * int(snapshot.node_state.device_info[:, HEALTHY].sum())


def _free_milli(snapshot: Snapshot) -> int:
    of_whole_devices = int(snapshot.node_state.device_occupancy[:, FREE_MILLI].sum())
    return of_whole_devices + _free_in_dynamic_layouts(snapshot) + _free_in_fixed_layouts(snapshot)


def _free_in_dynamic_layouts(snapshot: Snapshot) -> int:
    """Of GPUs with MIG instances on demand, which have a mask of used slices."""
    state = snapshot.node_state
    free = 0
    for device in np.flatnonzero(state.device_info[:, GEOMETRY] >= 0).tolist():
        slices = GEOMETRIES[int(state.device_info[device, GEOMETRY])].memory_slices
        taken = int(state.device_occupancy[device, USED_SLICES]) & ((1 << slices) - 1)
        free += 1000 * (slices - taken.bit_count()) // slices
    return free


def _free_in_fixed_layouts(snapshot: Snapshot) -> int:
    """Of MIG instances and replicas (nvidia.com/gpu.shared), of which only the advertised resources are known: the free
    fraction of these, weighted by memory slices."""
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


class StrandedGpus:
    """Free milli-GPU that no GPU class of the mix can use, by reason; made once for many snapshots.

    Per device: `no_cpu`, `no_memory` where the node has too little for the least demanding class; `too_small` where the
    device has less free than the smallest share; `wrong_model` where no class allows its model.
    """

    def __init__(self, mix: MixArrays, smallest_memory: int = 0) -> None:
        self._least_cpu = _least_cpu(mix)
        self._smallest_memory = smallest_memory
        self._has_gpu_classes = bool((mix.gpus > 0).any())

    def by_reason(self, snapshot: Snapshot) -> dict[str, int]:
        state = snapshot.node_state
        counts = state.node_info[:, DEV_END] - state.node_info[:, DEV_FIRST]
        # Below 0 where the kubelet has given one device to several pods: nothing is free there.
        devices = np.flatnonzero(state.device_occupancy[:, FREE_MILLI] > 0)
        nodes = np.repeat(np.arange(len(counts)), counts)[devices]
        free = state.device_occupancy[devices, FREE_MILLI]
        needed = self._least_cpu[state.device_info[devices, MODEL], np.minimum(free, DEVICE_MILLI)]
        usable = needed < _TOO_SMALL
        has_cpu = usable & (state.free[nodes, CPU] >= needed)
        by_reason = {
            "no_cpu": usable & ~has_cpu,
            "no_memory": has_cpu & (state.free[nodes, MEMORY] < self._smallest_memory),
            "too_small": needed == _TOO_SMALL,
            "wrong_model": needed == _WRONG_MODEL,
        }
        if not self._has_gpu_classes:
            return dict.fromkeys(by_reason, 0)
        return {reason: int(np.dot(free, lost)) for reason, lost in by_reason.items()}


def _least_cpu(mix: MixArrays) -> Ints:
    """[model, free milli-GPU of a device]: the CPU of the least demanding class that the device could serve."""
    gpu = mix.gpus > 0
    least = np.full((MAX_MODELS, DEVICE_MILLI + 1), _TOO_SMALL, dtype=np.int64)
    for model in range(MAX_MODELS):
        allowed = gpu & (mix.models >> model & 1 == 1)
        if not allowed.any():
            least[model] = _WRONG_MODEL
            continue
        np.minimum.at(least[model], mix.milli[allowed], mix.cpu[allowed])
        # A device with more free serves every smaller class as well.
        np.minimum.accumulate(least[model], out=least[model])
    return least
