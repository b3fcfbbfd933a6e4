"""Full or fragmented? The code of a hold for lack of GPUs, told apart by what is free in all.

The pass that decides counts node by node: none of them has room for one more pod. Whether the GPUs are all in use, or
free in pieces, shows only in the sum. It is worked out when a hold is read, once for all that ask for the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.cluster.facts import Bools
from windlass.placement.explain.space import WHOLE, free_gpus, open_nodes
from windlass.placement.gang import Part
from windlass.placement.overlay import Overlay

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
            nodes = open_nodes(overlay, row) & among
            kinds[key] = (part, nodes if known is None else known[1] | nodes)
        for part, nodes in kinds.values():
            assert part.shape.gpu is not None
            free = np.where(nodes, free_gpus(overlay, part.shape), 0)
            unit = WHOLE if part.shape.gpu.milli == WHOLE else 1
            self.free += int(free.sum()) * unit
            self.pieces += free[free > 0].tolist()
        self.pieces.sort(reverse=True)

    @property
    def are_fragmented(self) -> bool:
        """There is enough in all; that it doesn't start is a matter of where."""
        return 0 < self.asked <= self.free
