"""The `windlass` scorer: by how much a pod reduces the worth of a node to the expected workload.

    worth = GPU usable by each class of the mix, weighted by the class's frequency
          + price of the best filling of every device's free part        (placement.device_pricing)
          − free GPU for which the node has no free CPU
          + a premium on GPU models that the classes with a model constraint compete for

Called by `kernels.scores.cell_score`; `placement_loop.refresh_node` keeps the worth before the pod. All integers.
`docs/policies.md` explains the terms and the effect of each.
"""

from __future__ import annotations

import numpy as np

from windlass.cluster.node_state import DEV_END, DEV_FIRST, MAX_DEVICES, MODEL, Ints, NodeState
from windlass.cluster.resource_columns import CPU
from windlass.placement.kernel_arrays import (
    GPUS,
    INFEASIBLE_SCORE,
    MIG_REQUEST,
    MILLI_CPU,
    MixArrays,
    NodeMemo,
)
from windlass.placement.kernels.devices import (
    copy_free,
    has_equal_before,
    milli_needed,
    model_allowed,
    take_from_free,
)

PRICE_WEIGHT = 3
"""Weight of one unit of device price, in milli-GPU: prices come before the other terms."""
PRICE_SCALE = 5040
"""Units of one device's price; all denominators up to 10 divide it."""
TIE_MILLI = 10
"""Milli-GPU: smaller differences of worth are ties."""
TIE_BREAK_RANGE = 2048
"""Factor of the score that leaves the low digits for the tie-break by the tighter device (0…1000)."""


def worth_of(cpu: int, free: Ints, models: Ints, count: int, mix: MixArrays) -> int:
    """Worth of a node with this free CPU, free milli-GPU by device, and device models (as bits)."""
    total, priced, premium = 0, 0, 0
    for i in range(count):
        # Below 0 where the kubelet has given one device to several pods; the price table starts at 0.
        milli = max(0, free[i])
        total += milli
        priced += mix.price[milli]
        premium += mix.scarce[models[i]] * milli
    if total == 0:
        return 0
    usable = 0
    for c in range(mix.cpu.shape[0]):
        if mix.gpus[c] == 0 or cpu < mix.cpu[c]:
            continue
        fitting, large = 0, 0
        for i in range(count):
            if free[i] >= mix.milli[c] and (mix.models[c] >> models[i]) & 1:
                fitting += 1
                large += free[i]
        if fitting >= mix.gpus[c]:
            usable += mix.weight[c] * large
    pods, gpu_cpu, gpu_milli = mix.totals[0], mix.totals[1], mix.totals[2]
    # GPU beyond what the free CPU supports at the mix's average of CPU per GPU.
    stranded = max(0, total - cpu * gpu_milli // gpu_cpu)
    return usable + pods * (PRICE_WEIGHT * priced - stranded) + pods * premium // 1000


def copy_models(nodes: NodeState, n: int, into: Ints) -> None:
    first = nodes.node_info[n, DEV_FIRST]
    for device in range(first, nodes.node_info[n, DEV_END]):
        into[device - first] = nodes.device_info[device, MODEL]


def node_worth(nodes: NodeState, n: int, mix: MixArrays) -> int:
    free = np.empty(MAX_DEVICES, dtype=np.int64)
    models = np.empty(MAX_DEVICES, dtype=np.int64)
    copy_models(nodes, n, models)
    return worth_of(nodes.free[n, CPU], free, models, copy_free(nodes, n, free), mix)


def windlass_score(nodes: NodeState, shapes: Ints, memo: NodeMemo, mix: MixArrays, s: int, n: int) -> tuple[int, int]:
    """The change of worth in buckets of TIE_MILLI; one GPU or a share tries every device, the tightest wins ties."""
    free = np.empty(MAX_DEVICES, dtype=np.int64)
    models = np.empty(MAX_DEVICES, dtype=np.int64)
    copy_models(nodes, n, models)
    count = copy_free(nodes, n, free)
    cpu = nodes.free[n, CPU] - shapes[s, MILLI_CPU]
    # Worth is summed over the pods of the mix, so a bucket is as many times TIE_MILLI.
    bucket = mix.totals[0] * TIE_MILLI
    if shapes[s, GPUS] != 1 or shapes[s, MIG_REQUEST] >= 0:
        # With islands, as `pick_devices` will take them: the score has to be that of the real choice.
        take_from_free(nodes, shapes, s, n, free, True)
        return (worth_of(cpu, free, models, count, mix) - memo.value[n] + bucket // 2) // bucket * TIE_BREAK_RANGE, -1
    best, chosen = INFEASIBLE_SCORE, -1
    first = nodes.node_info[n, DEV_FIRST]
    for i in range(count):
        need = milli_needed(nodes, shapes, s, n, first + i)
        before = free[i]
        if before < need or not model_allowed(nodes, shapes, s, first + i) or has_equal_before(nodes, first, free, i):
            continue
        free[i] = before - need
        gain = worth_of(cpu, free, models, count, mix) - memo.value[n]
        free[i] = before
        # Half a bucket before the floor division rounds to the nearest one, for losses as well.
        score = (gain + bucket // 2) // bucket * TIE_BREAK_RANGE - before
        if score > best:
            best, chosen = score, i
    return best, chosen
