"""One set of equal pods against the nodes as they are now, nothing of it placed: who refuses, and what is free.

`limits` puts it into words, `relief` and `changes` look there for what to try, `codes` tells full from fragmented.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from windlass.cluster.facts import Bools
from windlass.cluster.shape import Shape
from windlass.cluster.state import BLOCKED, DEV_END, DEV_FIRST, FREE, HEALTHY, MODEL, REPLICAS, Ints, Words
from windlass.model.gpu import WHOLE_GPU
from windlass.placement.gang import OverlayRoom, Part
from windlass.placement.overlay import Overlay
from windlass.placement.verdicts import reason_of

WHOLE = 1000


class Space:
    def __init__(self, overlay: Overlay, part: Part) -> None:
        self.overlay, self.part = overlay, part
        self.row = overlay.table.row(part.shape, overlay.snapshot, part.pod)
        self.why: Words = overlay.reasons(part.pod, self.row)
        """By node, why it takes no pod of the part now."""
        self.fits: Ints = np.where(self.why == 0, OverlayRoom(overlay, [part], [self.row]).pods(0), 0)
        """By node, how many pods of the part it takes now."""

    @property
    def is_open(self) -> Bools:
        """By node, whether only room can keep the part off it."""
        return open_nodes(self.overlay, self.row)

    @property
    def fitting(self) -> int:
        """Pods of the part that find a place now."""
        return min(self.part.count, int(self.fits.sum()))

    def refusals(self) -> list[tuple[int, int]]:
        """(bit, nodes) for every reason, the most frequent first."""
        counts = [
            (bit, int(np.count_nonzero(self.why >> np.uint64(bit) & np.uint64(1)))) for bit in range(64)
        ]
        return sorted(((bit, nodes) for bit, nodes in counts if nodes), key=lambda one: (-one[1], one[0]))

    def codes(self) -> set[str]:
        """Of all reasons that some node has."""
        return {reason_of(self.part.shape, bit).code for bit, _ in self.refusals()}

    def free(self, resource: str) -> Ints:
        """By node."""
        column = self.overlay.snapshot.resources.column(resource)
        state = self.overlay.state
        return (
            state.free[:, column]
            if column < state.free.shape[1]
            else np.zeros(len(state.free), dtype=np.int64)
        )

    def gpus(self, models: Collection[str] | None = None) -> Ints:
        return free_gpus(self.overlay, self.part.shape, models)


def open_nodes(overlay: Overlay, row: int) -> Bools:
    """Nodes to which nothing but room keeps a pod of the row from going."""
    mask: Bools = (overlay.table.cells.static[row] == 0) & (overlay.state.node[:, BLOCKED] == 0)
    return mask


def free_gpus(overlay: Overlay, shape: Shape, models: Collection[str] | None = None) -> Ints:
    """By node, free GPUs of the models that the shape allows (or of those named): whole ones in numbers; for a share,
    thousandths of GPUs."""
    gpu, state, snapshot = shape.gpu, overlay.state, overlay.snapshot
    if gpu is None or gpu.profile:
        return np.zeros(snapshot.facts.size, dtype=np.int64)
    mask = snapshot.models.mask(gpu.models if models is None else models)
    usable = (state.device[:, HEALTHY] == 1) & (mask >> np.maximum(state.device[:, MODEL], 0) & 1 == 1)
    room = np.where(usable, state.room[:, FREE], 0)
    if gpu.milli != WHOLE:
        return _by_node(overlay, room)
    count = _by_node(overlay, (room == WHOLE).astype(np.int64))
    column = snapshot.resources.column(WHOLE_GPU)
    if not gpu_resource(shape) or column >= state.free.shape[1]:
        return count
    advertised = np.maximum(0, state.free[:, column])
    # A GPU that stands for several of them (time-slicing) is counted as it is advertised.
    return np.where(state.node[:, REPLICAS] > 1, advertised, np.minimum(count, advertised))


def gpu_resource(shape: Shape) -> bool:
    """Whether it asks for GPUs as a counted resource."""
    return any(name == WHOLE_GPU for name, _ in shape.requests)


def _by_node(overlay: Overlay, values: Ints) -> Ints:
    state = overlay.state
    sums = np.concatenate([[0], np.cumsum(values)])
    found: Ints = sums[state.node[:, DEV_END]] - sums[state.node[:, DEV_FIRST]]
    return found
