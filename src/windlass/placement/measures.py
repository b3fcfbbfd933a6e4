"""How well a cluster is used: allocated GPUs, fragmentation by cause, what is stranded and why.

Reads a snapshot and the workload to expect; the simulator samples it, and so can anything that watches a cluster.
"""

from __future__ import annotations

import msgspec
import numpy as np

from windlass import jit
from windlass.cluster.resources import CPU, MEMORY
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.state import DEV_END, DEV_FIRST, FREE, HEALTHY, MODEL
from windlass.placement.arrays import Mix
from windlass.placement.cut_gpus import free_in_cut_gpus
from windlass.placement.mix import WorkloadMix, mix_arrays

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
        total_milli=1000 * int(state.device[:, HEALTHY].sum()),
        free_milli=int(state.room[:, FREE].sum()) + free_in_cut_gpus(snapshot),
        causes={cause: round(float(amount)) for cause, amount in zip(CAUSES, bins, strict=True)},
    )


def stranded(snapshot: Snapshot, expected: WorkloadMix, smallest_memory: int = 0) -> dict[str, int]:
    """Free milli-GPU that no GPU class of the mix can use now, by what stands in the way.

    Device by device: `no_cpu`, `no_memory` where the node has too little for the least demanding class;
    `too_small` where the device has less free than the smallest share; `wrong_model` where no class allows it.
    """
    state = snapshot.state
    classes = [each for each in expected.classes if each.gpus > 0]
    found = dict.fromkeys(("no_cpu", "no_memory", "too_small", "wrong_model"), 0)
    if not classes:
        return found
    mix = mix_arrays(expected, snapshot.models, snapshot.state)
    gpu = mix.gpus > 0
    counts = state.node[:, DEV_END] - state.node[:, DEV_FIRST]
    node_of = np.repeat(np.arange(len(counts)), counts)
    free = state.room[:, FREE]
    # [device, class]: each condition by itself, then the first that leaves no class standing.
    model_fits = (mix.models[gpu][None, :] >> state.device[:, MODEL][:, None]) & 1 == 1
    room_fits = free[:, None] >= mix.milli[gpu][None, :]
    cpu_fits = state.free[node_of, CPU][:, None] >= mix.cpu[gpu][None, :]
    memory_fits = (state.free[node_of, MEMORY] >= smallest_memory)[:, None]
    standing = np.ones_like(model_fits)
    blamed = np.zeros(len(free), dtype=np.bool_)
    for name, condition in (
        ("wrong_model", model_fits),
        ("too_small", room_fits),
        ("no_cpu", cpu_fits),
        ("no_memory", memory_fits),
    ):
        standing &= condition
        lost = ~standing.any(axis=1) & ~blamed
        found[name] += int(free[lost].sum())
        blamed |= lost
    return found
