"""One pod set against the nodes as they are after the decision: which nodes refuse it and why, and what is free.

`limits` makes texts of it, `relief` and `changes` find candidates with it, `gpu_fragmentation` sums up free GPUs.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import (
    BLOCKED,
    DEV_END,
    DEV_FIRST,
    FREE_MILLI,
    HEALTHY,
    MODEL,
    REPLICAS,
    Ints,
    Uint64s,
)
from windlass.cluster.shape import Shape
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.placement.gang import OverlayCapacity, PendingPodSet
from windlass.placement.overlay import Overlay

WHOLE_MILLI = 1000


class PodSetFeasibility:
    def __init__(self, overlay: Overlay, pod_set: PendingPodSet) -> None:
        self.overlay, self.pod_set = overlay, pod_set
        self.row = overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod)
        self.reasons: Uint64s = overlay.reasons(pod_set.pod, self.row)
        """By node, the mask of reasons why it takes no pod now."""
        self.pods_per_node: Ints = np.where(
            self.reasons == 0, OverlayCapacity(overlay, [pod_set], [self.row]).pods_per_node(0), 0
        )
        """By node, how many pods it takes now."""

    @property
    def eligible_nodes(self) -> Bools:
        """By node, whether nothing but lack of capacity can exclude it."""
        return nodes_limited_by_capacity(self.overlay, self.row)

    @property
    def placeable(self) -> int:
        """Pods of the set that fit now."""
        return min(self.pod_set.count, int(self.pods_per_node.sum()))

    def reason_counts(self) -> list[tuple[int, int]]:
        """(bit, number of nodes) for every reason, the most frequent first."""
        masks = ((bit, self.reasons >> np.uint64(bit) & np.uint64(1)) for bit in range(64))
        counts = [(bit, nodes) for bit, mask in masks if (nodes := int(np.count_nonzero(mask)))]
        return sorted(counts, key=lambda count: (-count[1], count[0]))

    def free(self, resource: str) -> Ints:
        """By node, the free amount; 0 where no node has the resource."""
        return self.overlay.state.free[:, self.overlay.snapshot.resources.column(resource)]


def nodes_limited_by_capacity(overlay: Overlay, row: int) -> Bools:
    """By node, whether nothing but lack of capacity can exclude a pod of this row of the score table."""
    mask: Bools = (overlay.table.static(row) == 0) & (overlay.state.node_info[:, BLOCKED] == 0)
    return mask


def free_gpus(overlay: Overlay, shape: Shape, models: Collection[str] | None = None) -> Ints:
    """By node, free GPUs of the models that the shape allows, or of `models`: a number of whole GPUs, or thousandths
    where the shape requests a share."""
    gpu, state, snapshot = shape.gpu, overlay.state, overlay.snapshot
    if gpu is None or gpu.profile:
        return np.zeros(snapshot.nodes.size, dtype=np.int64)
    mask = snapshot.gpu_models.mask(gpu.models if models is None else models)
    usable = state.device_info[:, HEALTHY] == 1
    usable &= mask >> np.maximum(state.device_info[:, MODEL], 0) & 1 == 1
    free = np.where(usable, state.device_occupancy[:, FREE_MILLI], 0)
    if gpu.milli != WHOLE_MILLI:
        return _sum_by_node(overlay, free)
    count = _sum_by_node(overlay, (free == WHOLE_MILLI).astype(np.int64))
    if not requests_whole_gpus(shape):
        return count
    advertised = np.maximum(0, state.free[:, snapshot.resources.column(GPU_RESOURCE)])
    # With time-slicing, a GPU is advertised several times and counts as often.
    shared = np.where(_sum_by_node(overlay, usable.astype(np.int64)) > 0, advertised, 0)
    return np.where(state.node_info[:, REPLICAS] > 1, shared, np.minimum(count, advertised))


def requests_whole_gpus(shape: Shape) -> bool:
    """Whether it requests GPUs by the extended resource, not by annotations."""
    return any(name == GPU_RESOURCE for name, _ in shape.requests)


def _sum_by_node(overlay: Overlay, values: Ints) -> Ints:
    """`values` are by device; the devices of a node are adjacent."""
    state = overlay.state
    sums = np.concatenate([[0], np.cumsum(values)])
    found: Ints = sums[state.node_info[:, DEV_END]] - sums[state.node_info[:, DEV_FIRST]]
    return found
