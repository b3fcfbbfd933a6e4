"""How well a cluster is used: allocated GPUs, fragmentation by cause, stranded GPUs by reason.

Reads a snapshot and the expected workload; called by `simulate.measures`.
"""

from __future__ import annotations

import msgspec
import numpy as np

from windlass import jit
from windlass.cluster.node_state import DEV_END, DEV_FIRST, FREE_MILLI, HEALTHY, MODEL, Ints
from windlass.cluster.node_state_builder import MAX_MODELS
from windlass.cluster.resource_columns import CPU, MEMORY
from windlass.cluster.snapshot import Snapshot
from windlass.placement.device_pricing import DEVICE_MILLI
from windlass.placement.gpu_partitions import free_milli_in_partitions
from windlass.placement.kernel_arrays import MixArrays
from windlass.placement.workload_mix import WorkloadMix, mix_arrays

_TOO_SMALL, _WRONG_MODEL = 2**61, 2**62
"""In place of a class's CPU, where no class could use such a device; larger than any CPU request."""
FRAGMENT_CAUSES = ("lack_both", "lack_gpu", "usable", "lack_cpu", "cpu_only", "wrong_model")


class GpuUtilization(msgspec.Struct, frozen=True):
    total_milli: int
    """Milli-GPU of healthy GPUs."""
    free_milli: int
    """Free milli-GPU, partitioned GPUs included (`gpu_partitions`)."""
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
    return int(snapshot.node_state.device_occupancy[:, FREE_MILLI].sum()) + free_milli_in_partitions(snapshot)


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
        devices = np.flatnonzero(state.device_occupancy[:, FREE_MILLI])
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
        np.minimum.accumulate(least[model], out=least[model])
    return least
