"""Tells GPU_FULL from GPU_FRAGMENTED by the sum of free GPUs.

The decision counts node by node, and finds that none has room for one more pod. Whether GPUs are all in use, or free
but scattered, shows only in the sum. `node_reasons.find_cause` and `limits` ask for it when a hold is read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.model.reasons import PERMANENT_BITS
from windlass.placement.explain.pod_set_feasibility import WHOLE_MILLI, free_gpus, nodes_limited_by_capacity
from windlass.placement.gang import PendingPodSet
from windlass.placement.overlay import Overlay

GPU_FULL = "GPU_FULL"
GPU_FRAGMENTED = "GPU_FRAGMENTED"


class GpuTotals:
    """GPUs that a workload requests, and GPUs that are free on the nodes that it may use, in thousandths."""

    def __init__(self, overlay: Overlay, pod_sets: Sequence[PendingPodSet], allowed_nodes: Bools) -> None:
        self.requested, self.free = 0, 0
        self.free_by_node: list[int] = []
        """Free GPUs (for shares: thousandths) of each node that has any, largest first."""
        nodes_by_kind: dict[tuple[object, ...], tuple[PendingPodSet, Bools]] = {}
        for pod_set in pod_sets:
            gpu = pod_set.shape.gpu
            if gpu is None or gpu.profile or not gpu.milli or not pod_set.count:
                continue
            self.requested += pod_set.count * gpu.count * gpu.milli
            row = overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod)
            key = (gpu.models, gpu.milli == WHOLE_MILLI)
            earlier = nodes_by_kind.get(key)
            nodes = (
                nodes_limited_by_capacity(overlay, row)
                & allowed_nodes
                & ~_excluded_by_inter_pod_rules(overlay, pod_set, row)
            )
            nodes_by_kind[key] = (pod_set, nodes if earlier is None else earlier[1] | nodes)
        for pod_set, nodes in nodes_by_kind.values():
            assert pod_set.shape.gpu is not None
            free = np.where(nodes, free_gpus(overlay, pod_set.shape), 0)
            unit = WHOLE_MILLI if pod_set.shape.gpu.milli == WHOLE_MILLI else 1
            self.free += int(free.sum()) * unit
            self.free_by_node += free[free > 0].tolist()
        self.free_by_node.sort(reverse=True)
        self._pod_sets = [pod_set for pod_set in pod_sets if pod_set.count and pod_set.shape.gpu is not None]

    @property
    def are_fragmented(self) -> bool:
        """Whether enough GPUs are free in total, but not on the right nodes."""
        if not 0 < self.requested <= self.free:
            return False
        gpu = self._pod_sets[0].shape.gpu if len(self._pod_sets) == 1 else None
        if gpu is None or gpu.milli != WHOLE_MILLI or gpu.count < 1:
            return True
        # If enough nodes have all GPUs of a pod free, the cause is another one than fragmentation.
        return sum(free // gpu.count for free in self.free_by_node) < self._pod_sets[0].count


def _excluded_by_inter_pod_rules(overlay: Overlay, pod_set: PendingPodSet, row: int) -> Bools:
    """Nodes that inter-pod affinity or spread constraints exclude."""
    if not overlay.has_inter_pod_constraints(pod_set.pod):
        return np.zeros(overlay.snapshot.nodes.size, dtype=np.bool_)
    excluded: Bools = (overlay.reasons(pod_set.pod, row) & np.uint64(PERMANENT_BITS)) != 0
    return excluded
