"""Full or fragmented? The code of a hold for lack of GPUs, told apart by what is free in all.

The pass that decides counts node by node: none of them has room for one more pod. Whether the GPUs are all in use, or
free in pieces, shows only in the sum. It is worked out when a hold is read, once for all that ask for the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.model.reasons import WHY_GPU_DEVICE_ROOM
from windlass.placement.explain.pod_set_feasibility import WHOLE_MILLI, free_gpus, nodes_limited_by_capacity
from windlass.placement.gang import PendingPodSet
from windlass.placement.overlay import Overlay

NODE_RULE_BITS = WHY_GPU_DEVICE_ROOM - 1
"""Reasons that are not about room."""
GPU_FULL = "GPU_FULL"
GPU_FRAGMENTED = "GPU_FRAGMENTED"


class GpuTotals:
    """What the parts of a workload ask for in GPUs, and what is free of them where they may go."""

    def __init__(self, overlay: Overlay, pod_sets: Sequence[PendingPodSet], allowed_nodes: Bools) -> None:
        self.requested, self.free = 0, 0
        self.free_by_node: list[int] = []
        """Free GPUs (for shares: thousandths) of each node that has any, the most first."""
        kinds: dict[tuple[object, ...], tuple[PendingPodSet, Bools]] = {}
        for part in pod_sets:
            gpu = part.shape.gpu
            if gpu is None or gpu.profile or not gpu.milli or not part.count:
                continue
            self.requested += part.count * gpu.count * gpu.milli
            row = overlay.table.row(part.shape, overlay.snapshot, part.pod)
            key = (gpu.models, gpu.milli == WHOLE_MILLI)
            known = kinds.get(key)
            nodes = nodes_limited_by_capacity(overlay, row) & allowed_nodes & ~_kept_apart(overlay, part, row)
            kinds[key] = (part, nodes if known is None else known[1] | nodes)
        for part, nodes in kinds.values():
            assert part.shape.gpu is not None
            free = np.where(nodes, free_gpus(overlay, part.shape), 0)
            unit = WHOLE_MILLI if part.shape.gpu.milli == WHOLE_MILLI else 1
            self.free += int(free.sum()) * unit
            self.free_by_node += free[free > 0].tolist()
        self.free_by_node.sort(reverse=True)
        self._parts = [part for part in pod_sets if part.count and part.shape.gpu is not None]

    @property
    def are_fragmented(self) -> bool:
        """There is enough in all; that it doesn't start is a matter of where."""
        if not 0 < self.requested <= self.free:
            return False
        gpu = self._parts[0].shape.gpu if len(self._parts) == 1 else None
        if gpu is None or gpu.milli != WHOLE_MILLI or gpu.count < 1:
            return True
        # Where as many nodes as it takes have all its GPUs, something else keeps it from them.
        return sum(piece // gpu.count for piece in self.free_by_node) < self._parts[0].count


def _kept_apart(overlay: Overlay, part: PendingPodSet, row: int) -> Bools:
    """Nodes that rules between pods close to the part."""
    if not overlay.has_inter_pod_constraints(part.pod):
        return np.zeros(overlay.snapshot.nodes.size, dtype=np.bool_)
    kept: Bools = (overlay.reasons(part.pod, row) & np.uint64(NODE_RULE_BITS)) != 0
    return kept
