"""Planned starts and reservations: capacity and quota that are taken from one moment to another.

`earliest_start` makes one for every workload that gets a planned start, `reservations` for every calendar reservation;
`guard` and `occupancy` keep other workloads from delaying them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from windlass.cluster.node_columns import NodeColumns
from windlass.model.reservation import ReservationSubjects
from windlass.model.topology import DEFAULT_TOPOLOGY_KEYS
from windlass.model.workload import Workload
from windlass.placement.blocked_capacity import PlannedPod
from windlass.queueing.quota_node import Usage

MAX_NAMED_NODES = 4
"""Nodes that a text names before it only counts them."""


class PlannedStart(msgspec.Struct, frozen=True):
    key: str
    start: int
    end: int | None
    """None: its end is not known."""
    pods: tuple[PlannedPod, ...]
    turn: int = -1
    """Workloads decided after this turn (the number of a decision within the pass) must not delay it."""
    queue: str = ""
    """ClusterQueue, where it uses quota."""
    usage: Usage = {}
    borrows: bool = False
    """Whether it uses more than the nominal quota of its queue."""
    priority: int = 0
    """Of its workload."""
    reserved_for: ReservationSubjects | None = None
    """For a reservation: the workloads that may use it."""

    def overlaps(self, start: int, end: int | None) -> bool:
        return (end is None or self.start < end) and (self.end is None or self.end > start)

    def is_active_at(self, moment: int) -> bool:
        return self.start <= moment and (self.end is None or self.end > moment)

    def is_for(self, workload: Workload) -> bool:
        """Whether the workload may use the capacity: it is its own planned start, or a reservation for it."""
        if self.reserved_for is None:
            return self.key == workload.key
        labels = workload.pod_sets[0].template.metadata.labels if workload.pod_sets else {}
        return self.reserved_for.matches(workload.namespace, workload.queue_name, labels)

    def applies_at(self, moment: int, lead: int) -> bool:
        """Whether it restricts what starts at the moment; reservations further off than `lead` seconds don't yet."""
        return self.reserved_for is None or self.start - moment <= lead

    @property
    def nodes(self) -> set[int]:
        return {pod.node for pod in self.pods}


def starts_after_own_reservation(
    planned: PlannedStart, workload: Workload, planned_starts: Iterable[PlannedStart], now: int
) -> bool:
    """Whether the start is planned for the end of a reservation that the workload may use now.

    Such a plan must not keep the workload out of its own reservation.
    """
    return any(
        reservation.is_for(workload)
        and reservation.is_active_at(now)
        and reservation.end is not None
        and planned.start >= reservation.end
        and planned.nodes <= reservation.nodes
        for reservation in planned_starts
        if reservation.reserved_for is not None
    )


def pods_by_node(planned: PlannedStart, nodes: NodeColumns) -> dict[str, int]:
    counts: dict[str, int] = {}
    for pod in planned.pods:
        name = nodes.names[pod.node]
        counts[name] = counts.get(name, 0) + 1
    return counts


def describe_domain(nodes: Sequence[int], columns: NodeColumns) -> str:
    """The node; or the narrowest topology domain that contains all nodes; or the nodes by name."""
    rows = sorted(set(nodes))
    if len(rows) == 1:
        return columns.names[rows[0]]
    for level in reversed(DEFAULT_TOPOLOGY_KEYS):
        values = {columns.objects[row].labels.get(level, "") for row in rows}
        if len(values) == 1 and values != {""}:
            return f"{level}={values.pop()}"
    named = ", ".join(columns.names[row] for row in rows[:MAX_NAMED_NODES])
    return named + (f" and {len(rows) - MAX_NAMED_NODES} more" if len(rows) > MAX_NAMED_NODES else "")
