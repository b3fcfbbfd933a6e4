"""The arrays that the placement kernels work on, besides `cluster.node_state.NodeState`.

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
"""A row keeps the best score of each block of nodes, so that choosing a node reads the blocks and then one of them."""

INFEASIBLE_SCORE = -(1 << 62)
"""Score of a node that can't take the pod."""

NEAREST_NODES = 3
"""How many nearest misses a verdict keeps."""


# Columns of the shape array, which has one row for every row of the score table.
REQUEST_COUNT = 0
"""How many resources it requests."""
MILLI_CPU = 1
GPUS = 2
"""Devices (or MIG instances) requested; 0 for a pod without GPUs."""
GPU_MILLI = 3
"""Milli-GPU of each device; 0 where it follows from GPU_MEMORY."""
GPU_MEMORY = 4
"""MiB of GPU memory of each device, for requests by memory; else 0."""
KIND = 5
MODELS = 6
"""Allowed GPU models, as bits by model code."""
MIG_REQUEST = 7
"""Index of the MIG resource among its requests (-1: none)."""
SCORER = 8
"""The scorer that ranks nodes for it: that of the policy, or of its workload class."""
FIRST_REQUEST = 9
"""From here on, for each request in the order of the shape: resource column, amount."""
FIRST_MIG = FIRST_REQUEST + 2 * MAX_REQUESTS
"""From here on, for each MIG geometry: mask of the profile's slices at start 0 (0: no such profile), mask of the
allowed start slices, bit of the media engines where the profile has them."""


class Cells(NamedTuple):
    """The score table: one row a shape, one column a node."""

    static: Uint64s
    """Reasons that don't change within a decision: Node object, pod and volumes (`filters.static_reasons`)."""
    why: Uint64s
    """All node-local reasons; 0 means that the pod fits."""
    score: Ints
    device: Ints
    """The device that a share would get, as its number on the node; -1: none."""
    stamp: Uint64s
    """Digest of the node's state for which the cell was computed; 0: never."""
    block: Ints
    """[row, block] best score of the block."""
    counts: Ints
    """[row, bit] how many nodes have the reason."""
    cursor: Ints
    """[row] position in the log of changed nodes up to which the row is current; -1: compare all nodes."""


class NodeMemo(NamedTuple):
    """Per node: the digest of its state, and its worth before a pod is added."""

    digest: Uint64s
    worth: Floats
    """FGD's expected fragment, summed in the order of the published code."""
    value: Ints
    """The worth by the `windlass` scorer, an integer."""


class MixArrays(NamedTuple):
    """The expected workload: one row a class of pods, most frequent first."""

    cpu: Ints
    gpus: Ints
    milli: Ints
    models: Ints
    """Allowed GPU models, as bits by model code."""
    weight: Ints
    """Number of pods of the class."""
    share: Floats
    """The same as a fraction of all pods, on which FGD's rule is defined."""
    totals: Ints
    """Over the GPU classes: pods, requested milli-CPU, requested milli-GPU; at least 1 each."""
    price: Ints
    """[free milli-GPU of a device] price of its best filling; PRICE_SCALE is a whole device."""
    scarce: Ints
    """[model code] premium on a free GPU of the model, in thousandths."""


class ScoringRule(NamedTuple):
    scorer: int
    seed: int
    """For `random` only."""
    largest_cpu: int
    """Milli-CPU of the largest node, to which some published rules normalise."""
    largest_gpu: int
    """Milli-GPU of the largest node."""


class PlacementArrays(NamedTuple):
    """The results by queue entry, and the verdicts, which several entries may share."""

    node: Ints
    """Node row, or -1."""
    grant: Uint64s
    """Packed devices (`kernels.devices`)."""
    verdict: Ints
    """Index of the verdict where no node was found, else -1."""
    verdict_entry: Ints
    """[verdict] the queue entry that failed."""
    verdict_counts: Ints
    """[verdict, bit] how many nodes have the reason."""
    verdict_near: Ints
    """[verdict, NEAREST_NODES] rows of the nearest misses, or -1."""
    verdict_near_why: Uint64s
    verdict_short: Ints
    """[verdict, NEAREST_NODES, MAX_REQUESTS + 1] how much is missing of each request; last: of the devices."""
    verdict_free: Ints
    """The same for what is free."""
