"""Full or fragmented? The code of a hold for lack of GPUs, told apart by what is free in all.

The pass that decides counts node by node: none of them has room for one more pod. Whether the GPUs are all in use, or
free in pieces, shows only in the sum. It is worked out when a hold is read, once for all that ask for the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.cluster.facts import Bools
from windlass.model.reasons import WHY_GPU_DEVICE_ROOM
from windlass.placement.explain.space import WHOLE, free_gpus, open_nodes
from windlass.placement.gang import Part
from windlass.placement.overlay import Overlay

OF_THE_NODE = WHY_GPU_DEVICE_ROOM - 1
"""Reasons that are not about room."""
GPU_FULL = "GPU_FULL"
GPU_FRAGMENTED = "GPU_FRAGMENTED"


class GpuSums:
    """What the parts of a workload ask for in GPUs, and what is free of them where they may go."""

    def __init__(self, overlay: Overlay, parts: Sequence[Part], among: Bools) -> None:
        self.asked, self.free = 0, 0
        self.pieces: list[int] = []
        """Free GPUs (for shares: thousandths) of each node that has any, the most first."""
        kinds: dict[tuple[object, ...], tuple[Part, Bools]] = {}
        for part in parts:
            gpu = part.shape.gpu
            if gpu is None or gpu.profile or not gpu.milli or not part.count:
                continue
            self.asked += part.count * gpu.count * gpu.milli
            row = overlay.table.row(part.shape, overlay.snapshot, part.pod)
            key = (gpu.models, gpu.milli == WHOLE)
            known = kinds.get(key)
            nodes = open_nodes(overlay, row) & among & ~_kept_apart(overlay, part, row)
            kinds[key] = (part, nodes if known is None else known[1] | nodes)
        for part, nodes in kinds.values():
            assert part.shape.gpu is not None
            free = np.where(nodes, free_gpus(overlay, part.shape), 0)
            unit = WHOLE if part.shape.gpu.milli == WHOLE else 1
            self.free += int(free.sum()) * unit
            self.pieces += free[free > 0].tolist()
        self.pieces.sort(reverse=True)
        self._parts = [part for part in parts if part.count and part.shape.gpu is not None]

    @property
    def are_fragmented(self) -> bool:
        """There is enough in all; that it doesn't start is a matter of where."""
        if not 0 < self.asked <= self.free:
            return False
        gpu = self._parts[0].shape.gpu if len(self._parts) == 1 else None
        if gpu is None or gpu.milli != WHOLE or gpu.count < 1:
            return True
        # Where as many nodes as it takes have all its GPUs, something else keeps it from them.
        return sum(piece // gpu.count for piece in self.pieces) < self._parts[0].count


def _kept_apart(overlay: Overlay, part: Part, row: int) -> Bools:
    """Nodes that rules between pods close to the part."""
    if not overlay.constrains(part.pod):
        return np.zeros(overlay.snapshot.facts.size, dtype=np.bool_)
    kept: Bools = (overlay.reasons(part.pod, row) & np.uint64(OF_THE_NODE)) != 0
    return kept
