"""How well a cluster is used: allocated GPUs, fragmentation by cause, what is stranded and why.

Reads a snapshot and the workload to expect; the simulator samples it, and so can anything that watches a cluster.
"""

from __future__ import annotations

import msgspec
import numpy as np

from windlass import jit
from windlass.cluster.columns import MAX_MODELS
from windlass.cluster.resources import CPU, MEMORY
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.state import DEV_END, DEV_FIRST, FREE, HEALTHY, MODEL, Ints
from windlass.placement.arrays import Mix
from windlass.placement.cut_gpus import free_in_cut_gpus
from windlass.placement.mix import WorkloadMix, mix_arrays
from windlass.placement.prices import DEVICE

_TOO_SMALL, _WRONG_MODEL = 2**61, 2**62
"""In place of a class's CPU, where no class could use such a device."""
CAUSES = ("lack_both", "lack_gpu", "usable", "lack_cpu", "cpu_only", "wrong_model")


class Usage(msgspec.Struct, frozen=True):
    total_milli: int
    """Of healthy GPUs."""
    free_milli: int
    """With the free part of those that MIG or renamed sharing has cut, by memory slices or replicas."""
    causes: dict[str, int]
    """Free milli-GPU by what the expected mix could do with it; all but `usable` is fragment. Cut GPUs are left out:
    the classes of a mix ask for whole ones and for shares."""

    @property
    def allocated_milli(self) -> int:
        return self.total_milli - self.free_milli

    @property
    def fragment_milli(self) -> int:
        return sum(amount for cause, amount in self.causes.items() if cause != "usable")


def usage(snapshot: Snapshot, expected: WorkloadMix) -> Usage:
    return usage_of(snapshot, mix_arrays(expected, snapshot.models, snapshot.state))


def usage_of(snapshot: Snapshot, mix: Mix) -> Usage:
    """The same, where the mix has been worked out for the park already."""
    state = snapshot.state
    bins = np.zeros(len(CAUSES), dtype=np.float64)
    jit.compiled().cluster_fragments(state, mix, bins)
    return Usage(
        total_milli=_total_milli(snapshot),
        free_milli=_free_milli(snapshot),
        causes={cause: round(float(amount)) for cause, amount in zip(CAUSES, bins, strict=True)},
    )


def allocated_milli(snapshot: Snapshot) -> int:
    """Milli-GPU of healthy GPUs that are not free."""
    return _total_milli(snapshot) - _free_milli(snapshot)


def _total_milli(snapshot: Snapshot) -> int:
    return 1000 * int(snapshot.state.device[:, HEALTHY].sum())


def _free_milli(snapshot: Snapshot) -> int:
    return int(snapshot.state.room[:, FREE].sum()) + free_in_cut_gpus(snapshot)


class Stranding:
    """Free milli-GPU that no GPU class of the mix can use, by what stands in the way; asked again and again.

    Device by device: `no_cpu`, `no_memory` where the node has too little for the least demanding class;
    `too_small` where the device has less free than the smallest share; `wrong_model` where no class allows it.
    """

    def __init__(self, mix: Mix, smallest_memory: int = 0) -> None:
        self._least_cpu = _least_cpu(mix)
        self._smallest_memory = smallest_memory
        self._has_gpu_classes = bool((mix.gpus > 0).any())

    def of(self, snapshot: Snapshot) -> dict[str, int]:
        state = snapshot.state
        counts = state.node[:, DEV_END] - state.node[:, DEV_FIRST]
        devices = np.flatnonzero(state.room[:, FREE])
        nodes = np.repeat(np.arange(len(counts)), counts)[devices]
        free = state.room[devices, FREE]
        needed = self._least_cpu[state.device[devices, MODEL], np.minimum(free, DEVICE)]
        usable = needed < _TOO_SMALL
        fed = usable & (state.free[nodes, CPU] >= needed)
        by_reason = {
            "no_cpu": usable & ~fed,
            "no_memory": fed & (state.free[nodes, MEMORY] < self._smallest_memory),
            "too_small": needed == _TOO_SMALL,
            "wrong_model": needed == _WRONG_MODEL,
        }
        if not self._has_gpu_classes:
            return dict.fromkeys(by_reason, 0)
        return {reason: int(np.dot(free, lost)) for reason, lost in by_reason.items()}


def _least_cpu(mix: Mix) -> Ints:
    """[model, free milli-GPU of a device]: the CPU of the least demanding class that the device could serve."""
    gpu = mix.gpus > 0
    least = np.full((MAX_MODELS, DEVICE + 1), _TOO_SMALL, dtype=np.int64)
    for model in range(MAX_MODELS):
        allowed = gpu & (mix.models >> model & 1 == 1)
        if not allowed.any():
            least[model] = _WRONG_MODEL
            continue
        np.minimum.at(least[model], mix.milli[allowed], mix.cpu[allowed])
        np.minimum.accumulate(least[model], out=least[model])
    return least
