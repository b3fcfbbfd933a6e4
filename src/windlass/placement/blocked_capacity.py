"""Room that is promised to others, put up on the overlay while something is placed, and taken down afterwards.

`placement.timeplan` makes them from planned starts and reservations; `placement.workload_placer` places around them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from windlass.model.pod import Pod
from windlass.placement.overlay import AssumedPod, Overlay


class PlannedPod(NamedTuple):
    """A place on a node for a pod that is not there yet."""

    pod: Pod
    row: int
    """Of the table."""
    node: int


class BlockedCapacity:
    """Seats that are taken, and nodes that are closed."""

    def __init__(self, planned_pods: Iterable[PlannedPod] = (), blocked_nodes: Iterable[int] = ()) -> None:
        self._seats, self._closed = tuple(planned_pods), tuple(blocked_nodes)
        self._taken: list[AssumedPod] = []
        self._shut: list[int] = []

    @property
    def is_empty(self) -> bool:
        return not self._seats and not self._closed

    def apply(self, overlay: Overlay) -> None:
        """A seat for which there is no room any more is left out: what is there already can't be kept free."""
        self._taken = [placing for seat in self._seats if (placing := try_assume(overlay, seat)) is not None]
        self._shut = list(self._closed)
        for node in self._shut:
            overlay.block_node(node)

    def revert(self, overlay: Overlay) -> None:
        for placing in self._taken:
            overlay.forget(placing)
        for node in self._shut:
            overlay.block_node(node, -1)
        self._taken, self._shut = [], []


def try_assume(overlay: Overlay, planned: PlannedPod) -> AssumedPod | None:
    """The pod on the node, if the node itself has room for it."""
    overlay.refresh(planned.row)
    if overlay.table.cells.why[planned.row, planned.node]:
        return None
    return overlay.assume(planned.pod, planned.row, planned.node)
