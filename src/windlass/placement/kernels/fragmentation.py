"""Fragmentation of a whole cluster by FGD's measure, with its causes. Called by `placement.utilization`."""

from __future__ import annotations

import numpy as np

from windlass.cluster.node_state import MAX_DEVICES, Ints, NodeState
from windlass.cluster.resource_columns import CPU
from windlass.placement.kernel_arrays import Floats, MixArrays
from windlass.placement.kernels.devices import copy_free
from windlass.placement.kernels.scores import node_model

LACK_BOTH, LACK_GPU, USABLE, LACK_CPU, CPU_ONLY, WRONG_MODEL = range(6)


def fragment_causes(cpu: int, free: Ints, count: int, model: int, mix: MixArrays, into: Floats) -> None:
    """Add the node's free milli-GPU to the six bins by cause, weighted by the share of each class of the mix."""
    total = 0
    for i in range(count):
        total += free[i]
    for c in range(mix.cpu.shape[0]):
        share, enough_cpu = mix.share[c], cpu >= mix.cpu[c]
        if mix.gpus[c] == 0:
            into[CPU_ONLY] += share * total
        elif model < 0 or (mix.models[c] >> model) & 1 == 0:
            into[WRONG_MODEL] += share * total
        else:
            fitting, small = 0, 0
            for i in range(count):
                if free[i] >= mix.milli[c]:
                    fitting += 1
                else:
                    small += free[i]
            if fitting < mix.gpus[c]:
                into[LACK_GPU if enough_cpu else LACK_BOTH] += share * total
            elif not enough_cpu:
                into[LACK_CPU] += share * total
            else:
                into[LACK_GPU] += share * small
                into[USABLE] += share * (total - small)


def cluster_fragments(nodes: NodeState, mix: MixArrays, into: Floats) -> None:
    free = np.empty(MAX_DEVICES, dtype=np.int64)
    into[:] = 0.0
    for n in range(nodes.node_info.shape[0]):
        count = copy_free(nodes, n, free)
        if count > 0:
            fragment_causes(nodes.free[n, CPU], free, count, node_model(nodes, n), mix, into)
