"""Capacity that is promised to other workloads, blocked on the overlay while a workload is placed.

`placement.timeplan` makes it from planned starts and reservations; `placement.workload_placer` places around it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from windlass.model.pod import Pod
from windlass.placement.overlay import AssumedPod, Overlay


class PlannedPod(NamedTuple):
    """A pod on the node where it is planned to start."""

    pod: Pod
    row: int
    """Row of the score table."""
    node: int


class BlockedCapacity:
    """Planned pods, which take their resources, and nodes that take no new pods."""

    def __init__(self, planned_pods: Iterable[PlannedPod] = (), blocked_nodes: Iterable[int] = ()) -> None:
        self._planned_pods, self._nodes = tuple(planned_pods), tuple(blocked_nodes)
        self._assumed: list[AssumedPod] = []
        self._blocked_nodes: list[int] = []
        """What `apply` has changed, for `revert`."""

    @property
    def is_empty(self) -> bool:
        return not self._planned_pods and not self._nodes

    def apply(self, overlay: Overlay) -> None:
        """Planned pods that no longer fit are left out: capacity in use can't be kept free."""
        tried = (try_assume(overlay, planned) for planned in self._planned_pods)
        self._assumed = [assumed for assumed in tried if assumed is not None]
        self._blocked_nodes = list(self._nodes)
        for node in self._blocked_nodes:
            overlay.block_node(node)

    def revert(self, overlay: Overlay) -> None:
        # Not by rollback: the pods that were placed around the blocked capacity stay.
        for assumed in self._assumed:
            overlay.forget(assumed)
        for node in self._blocked_nodes:
            overlay.block_node(node, -1)
        self._assumed, self._blocked_nodes = [], []


def try_assume(overlay: Overlay, planned: PlannedPod) -> AssumedPod | None:
    """Assume the pod on its node, if node-local rules allow it."""
    if overlay.table.cells.why[overlay.refresh(planned.row), planned.node]:
        return None
    return overlay.assume(planned.pod, planned.row, planned.node)
