"""The arrays that the placement kernels work on, beside `cluster.node_state.NodeState`.

`placement.score_table` makes and grows them; `placement.kernels` reads and writes them. Named tuples, because the same
kernel functions run compiled and interpreted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windlass.cluster.node_state import MAX_REQUESTS as MAX_REQUESTS
from windlass.cluster.node_state import Ints, Uint64s

Floats = npt.NDArray[np.float64]

NODES_PER_BLOCK = 32
"""Nodes a block: a row keeps the best score of each block, so that choosing needn't look at every node."""

INFEASIBLE_SCORE = -(1 << 62)
"""Score of a node that can't take the pod."""

NEAREST_NODES = 3
"""How many nearest misses a verdict keeps."""


# Columns of the shape rows: one row a shape that the table knows.
REQUEST_COUNT = 0
"""How many resources it asks for."""
MILLI_CPU = 1
GPUS = 2
"""Devices (or MIG instances) asked for; 0 for a pod without GPUs."""
GPU_MILLI = 3
"""Milli-GPU of each device; 0 where it follows from GPU_MEMORY."""
GPU_MEMORY = 4
"""MiB of GPU memory of each device, where that is what was asked for."""
KIND = 5
MODELS = 6
"""Allowed GPU models, bit by code."""
MIG_REQUEST = 7
"""Which of its requests is the MIG resource (-1: none)."""
SCORER = 8
"""Which scorer ranks nodes for it: the policy's, or its workload class's own."""
FIRST_REQUEST = 9
"""From here on, for each request in the order of the shape's sorted list: its column, its amount."""
FIRST_MIG = FIRST_REQUEST + 2 * MAX_REQUESTS
"""From here on, for each MIG geometry: the profile's slices at start 0 (0: hasn't got it), the bits of the slices
where it may start, the bit of the media engines where the profile has them."""


class Cells(NamedTuple):
    """One row a shape, one column a node."""

    static: Uint64s
    """Reasons that follow from the Node object alone."""
    why: Uint64s
    """All node-local reasons why not; 0 means that it fits."""
    score: Ints
    device: Ints
    """The device that a share would get."""
    stamp: Uint64s
    """Digest of the node's state that the cell was worked out for; 0: not yet."""
    block: Ints
    """[row, block] best score of the block."""
    counts: Ints
    """[row, bit] how many nodes have the reason."""
    cursor: Ints
    """[row] how far in the log of changed nodes the row is up to date; -1: look at all nodes."""


class NodeMemo(NamedTuple):
    """Per node: the digest of its state, and its worth before a pod is added."""

    digest: Uint64s
    worth: Floats
    """FGD's fragment, in its own float order."""
    value: Ints
    """The same for scorers that count in integers."""


class MixArrays(NamedTuple):
    """The workload that is expected: one row a class of pods, most frequent first."""

    cpu: Ints
    gpus: Ints
    milli: Ints
    models: Ints
    """Allowed GPU models, bit by code."""
    weight: Ints
    """How many pods of the class, as a whole number."""
    share: Floats
    """The same as a fraction of all (FGD's rule is defined on it)."""
    totals: Ints
    """Over the GPU classes: pods, milli-CPU they ask for, milli-GPU they ask for; at least 1 each."""
    price: Ints
    """[free milli-GPU of a device] price of its best filling, in units of PRICE_SCALE a device."""
    scarce: Ints
    """[model code] premium on a free GPU of the model, in thousandths."""


class ScoringRule(NamedTuple):
    """Which scorer, and its numbers."""

    scorer: int
    seed: int
    """For `random` alone."""
    largest_cpu: int
    """Milli-CPU of the largest node, by which some published rules divide."""
    largest_gpu: int
    """Milli-GPU of the largest node."""


class PlacementArrays(NamedTuple):
    """What happened to each queue entry, in order."""

    node: Ints
    """Node row, or -1."""
    grant: Uint64s
    """Packed devices: one hexadecimal digit a device (how many shares of it), or one byte a MIG instance."""
    verdict: Ints
    """Index into the verdict arrays where no node was found, else -1."""
    verdict_entry: Ints
    """[verdict] the queue entry that failed."""
    verdict_counts: Ints
    """[verdict, bit]"""
    verdict_near: Ints
    """[verdict, NEAREST] nodes, or -1."""
    verdict_near_why: Uint64s
    verdict_short: Ints
    """[verdict, NEAREST, MAX_REQUESTS + 1] how much is lacking of each request; last: how many devices."""
    verdict_free: Ints
    """The same for what is free there."""
