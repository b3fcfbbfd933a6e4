"""The scorers: how good a node is for a pod that fits.

`placement_loop` calls `cell_score` for a shape (row `s`) and a node (`n`). A score is an integer, larger is better; for
a share the scorer also returns the device. `docs/policies.md` describes every rule. `random` is not here: it draws
when a node is chosen.
"""

from __future__ import annotations

import math

import numpy as np

from windlass.cluster.node_state import (
    DEV_END,
    DEV_FIRST,
    FREE_MILLI,
    GPU_POD_KINDS,
    MAX_DEVICES,
    MODEL,
    Ints,
    NodeState,
)
from windlass.cluster.resource_columns import CPU, MEMORY
from windlass.placement.kernel_arrays import (
    GPU_MILLI,
    GPUS,
    KIND,
    MIG_REQUEST,
    MILLI_CPU,
    SCORER,
    MixArrays,
    NodeMemo,
    ScoringRule,
)
from windlass.placement.kernels.devices import (
    WHOLE_MILLI,
    copy_free,
    free_gpu,
    has_equal_before,
    milli_needed,
    model_allowed,
    take_from_free,
    tightest_device,
)
from windlass.placement.kernels.windlass_scorer import windlass_score

(
    FIRST_FIT,
    PACK,
    SPREAD,
    BEST_FIT,
    DOT_PRODUCT,
    GPU_PACKING,
    GPU_CLUSTERING,
    FGD,
    WINDLASS,
    RANDOM,
    BALANCED,
) = range(11)

GPU_NODE_PENALTY = 1 << 60
"""Subtracted from the score of a GPU node for a pod without GPUs; larger than any other difference of scores."""


def gpu_node_penalty(nodes: NodeState, shapes: Ints, s: int, n: int) -> int:
    """Keeps CPU-only pods off GPU nodes while another node fits."""
    if shapes[s, GPUS] == 0 and nodes.node_info[n, DEV_FIRST] < nodes.node_info[n, DEV_END]:
        return -GPU_NODE_PENALTY
    return 0


def gpu_asked(nodes: NodeState, shapes: Ints, s: int, n: int, device: int) -> int:
    """Milli-GPU that the pod takes on this node in total."""
    if shapes[s, GPUS] == 0 or shapes[s, MIG_REQUEST] >= 0:
        return 0
    return shapes[s, GPUS] * milli_needed(nodes, shapes, s, n, nodes.node_info[n, DEV_FIRST] + max(0, device))


def pack_score(nodes: NodeState, shapes: Ints, s: int, n: int, device: int) -> int:
    """Least free GPU afterwards, then least free CPU."""
    gpu = free_gpu(nodes, n) - gpu_asked(nodes, shapes, s, n, device)
    cpu = nodes.free[n, CPU] - shapes[s, MILLI_CPU]
    # Lexicographic in one integer: GPU in the high bits, CPU (capped) in the low 32.
    return -(gpu << 32) - min(cpu, (1 << 32) - 1)


def balanced_score(nodes: NodeState, shapes: Ints, s: int, n: int, device: int) -> int:
    """The smaller the gap between the used fractions of GPU, CPU and memory afterwards, the better (in 1/10,000)."""
    least, most = 1 << 20, 0
    for column in (CPU, MEMORY):
        total = nodes.allocatable[n, column]
        if total > 0:
            # Of the two only CPU has a column in the shape; the pod's own memory is not counted.
            asked = shapes[s, MILLI_CPU] if column == CPU else 0
            used = (total - nodes.free[n, column] + asked) * 10_000 // total
            least, most = min(least, used), max(most, used)
    devices = nodes.node_info[n, DEV_END] - nodes.node_info[n, DEV_FIRST]
    if devices > 0:
        left = free_gpu(nodes, n) - gpu_asked(nodes, shapes, s, n, device)
        used = (devices * WHOLE_MILLI - left) * 10_000 // (devices * WHOLE_MILLI)
        least, most = min(least, used), max(most, used)
    return least - most


def best_fit_score(nodes: NodeState, shapes: Ints, rule: ScoringRule, s: int, n: int, device: int) -> int:
    """⌊100·(1 − ½·CPU left − ½·GPU left)⌋, each in terms of the largest node."""
    left = (nodes.free[n, CPU] - shapes[s, MILLI_CPU]) / rule.largest_cpu * 0.5
    left += (free_gpu(nodes, n) - gpu_asked(nodes, shapes, s, n, device)) / rule.largest_gpu * 0.5
    return int((1.0 - left) * 100.0)


def dot_product_score(nodes: NodeState, shapes: Ints, rule: ScoringRule, s: int, n: int, device: int) -> int:
    """⌊100·(1 − ½·⟨free, asked⟩)⌋: the least free along the direction of the request wins."""
    dot = (nodes.free[n, CPU] / rule.largest_cpu) * (shapes[s, MILLI_CPU] / rule.largest_cpu)
    asked = gpu_asked(nodes, shapes, s, n, device)
    dot += (free_gpu(nodes, n) / rule.largest_gpu) * (asked / rule.largest_gpu)
    return int(100.0 * (1.0 - dot / 2.0))


def gpu_packing_score(nodes: NodeState, shapes: Ints, s: int, n: int, device: int) -> int:
    """A shared device in use, then a free device of a node in use, then an idle node."""
    if shapes[s, GPUS] == 0:
        return 0
    first, end = nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]
    idle = 0
    for candidate in range(first, end):
        if nodes.device_occupancy[candidate, FREE_MILLI] == WHOLE_MILLI:
            idle += 1
    count = end - first
    if idle == count:
        return max(33 - count, count)
    if device >= 0 and nodes.device_occupancy[first + device, FREE_MILLI] < WHOLE_MILLI:
        return 100 - (nodes.device_occupancy[first + device, FREE_MILLI] * 100 // WHOLE_MILLI) // 10
    return max(50 - shapes[s, GPUS], 33)


def gpu_clustering_score(nodes: NodeState, shapes: Ints, rule: ScoringRule, s: int, n: int) -> int:
    """Nodes that run only pods of this GPU request, then mixed nodes with it, idle nodes, others; fuller first."""
    if shapes[s, GPUS] == 0:
        return 0
    kinds = 0
    for kind in range(GPU_POD_KINDS):
        if nodes.gpu_pod_counts[n, kind] > 0:
            kinds += 1
    if nodes.gpu_pod_counts[n, shapes[s, KIND]] > 0:
        band = 75 if kinds == 1 else 50
    else:
        band = 25 if kinds == 0 else 0
    return band + 25 * (rule.largest_gpu - free_gpu(nodes, n)) // rule.largest_gpu


def fgd_fragment(cpu: int, free: Ints, count: int, model: int, mix: MixArrays) -> float:
    """FGD's expected fragment of a node in milli-GPU, summed in the published order (its rounding decides ties)."""
    total = 0
    for i in range(count):
        total += free[i]
    lack_both, lack_gpu, lack_cpu, spare_cpu, short_cpu, wrong_model = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for c in range(mix.cpu.shape[0]):
        share, enough_cpu = mix.share[c], cpu >= mix.cpu[c]
        if mix.gpus[c] == 0:
            if enough_cpu:
                spare_cpu += share * total
            else:
                short_cpu += share * total
            continue
        if model < 0 or (mix.models[c] >> model) & 1 == 0:
            wrong_model += share * total
            continue
        fitting, small = 0, 0
        for i in range(count):
            if free[i] >= mix.milli[c]:
                fitting += 1
            else:
                small += free[i]
        if fitting >= mix.gpus[c]:
            if enough_cpu:
                lack_gpu += share * small
            else:
                lack_cpu += share * total
        elif enough_cpu:
            lack_gpu += share * total
        else:
            lack_both += share * total
    fragment = lack_both
    fragment += lack_gpu
    fragment += lack_cpu
    fragment += spare_cpu
    fragment += short_cpu
    fragment += wrong_model
    return fragment


def fgd_points(gain: float) -> int:
    """⌊100·sigmoid(gain)⌋, gain in milli-GPU of fragment removed."""
    return int(1.0 / (1.0 + math.exp(-gain / 1000)) * 100.0)


def node_model(nodes: NodeState, n: int) -> int:
    """The node's (first) GPU model, -1 without GPUs."""
    if nodes.node_info[n, DEV_FIRST] == nodes.node_info[n, DEV_END]:
        return -1
    return nodes.device_info[nodes.node_info[n, DEV_FIRST], MODEL]


def fgd_node_fragment(nodes: NodeState, n: int, mix: MixArrays) -> float:
    free = np.empty(MAX_DEVICES, dtype=np.int64)
    count = copy_free(nodes, n, free)
    return fgd_fragment(nodes.free[n, CPU], free, count, node_model(nodes, n), mix)


def fgd_score(nodes: NodeState, shapes: Ints, memo: NodeMemo, mix: MixArrays, s: int, n: int) -> tuple[int, int]:
    """The published rule: by how much the pod reduces the node's expected fragment; a share tries every device."""
    free = np.empty(MAX_DEVICES, dtype=np.int64)
    count = copy_free(nodes, n, free)
    model = node_model(nodes, n)
    cpu = nodes.free[n, CPU] - shapes[s, MILLI_CPU]
    # A MIG instance counts as a whole GPU here.
    if shapes[s, GPUS] == 1 and shapes[s, GPU_MILLI] < WHOLE_MILLI:
        best, device = -1, -1
        first = nodes.node_info[n, DEV_FIRST]
        for i in range(count):
            need = milli_needed(nodes, shapes, s, n, first + i)
            before = free[i]
            if (
                before < need
                or not model_allowed(nodes, shapes, s, first + i)
                # An equal device was tried already, and would give the same points.
                or has_equal_before(nodes, first, free, i)
            ):
                continue
            free[i] = before - need
            points = fgd_points(memo.worth[n] - fgd_fragment(cpu, free, count, model, mix))
            free[i] = before
            # Points are coarse, ties are common, and the lowest device number wins them.
            if device < 0 or points > best:
                best, device = points, i
        return best, device
    # Without NVLink islands: the published rule takes the lowest device numbers.
    take_from_free(nodes, shapes, s, n, free, False)
    return fgd_points(memo.worth[n] - fgd_fragment(cpu, free, count, model, mix)), -1


def cell_score(
    nodes: NodeState, shapes: Ints, memo: NodeMemo, mix: MixArrays, rule: ScoringRule, s: int, n: int
) -> tuple[int, int]:
    """Score of the cell and the device of a share (-1: none), by the scorer of the row."""
    scorer = shapes[s, SCORER]
    if scorer == FGD:
        return fgd_score(nodes, shapes, memo, mix, s, n)
    if scorer == WINDLASS:
        score, device = windlass_score(nodes, shapes, memo, mix, s, n)
        return score + gpu_node_penalty(nodes, shapes, s, n), device
    device = tightest_device(nodes, shapes, s, n)
    # The same for every node that fits: ties go to the lowest row, which is the first fit.
    if scorer == FIRST_FIT:
        return gpu_node_penalty(nodes, shapes, s, n), device
    if scorer == PACK:
        return pack_score(nodes, shapes, s, n, device) + gpu_node_penalty(nodes, shapes, s, n), device
    if scorer == SPREAD:
        return gpu_node_penalty(nodes, shapes, s, n) - pack_score(nodes, shapes, s, n, device), device
    if scorer == BEST_FIT:
        return best_fit_score(nodes, shapes, rule, s, n, device), device
    if scorer == DOT_PRODUCT:
        return dot_product_score(nodes, shapes, rule, s, n, device), device
    if scorer == GPU_PACKING:
        return gpu_packing_score(nodes, shapes, s, n, device), device
    if scorer == GPU_CLUSTERING:
        return gpu_clustering_score(nodes, shapes, rule, s, n), device
    if scorer == BALANCED:
        return balanced_score(nodes, shapes, s, n, device) + gpu_node_penalty(nodes, shapes, s, n), device
    return 0, device
