"""Walls: room that is spoken for, from one moment to another.

`starts` makes one for every planned start, `calendar` for every reservation; `guard` and `room` keep others out.
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
"""Nodes that a domain is named by before it says how many more there are."""


class PlannedStart(msgspec.Struct, frozen=True):
    key: str
    start: int
    end: int | None
    """None: for ever, as far as is known."""
    pods: tuple[PlannedPod, ...]
    turn: int = -1
    """Those decided after this turn are bound by it."""
    queue: str = ""
    """ClusterQueue, where it takes quota."""
    usage: Usage = {}
    borrows: bool = False
    """It takes more than its queue's own quota."""
    reserved_for: ReservationSubjects | None = None
    """Of a reservation: those whom it is for."""

    def overlaps(self, start: int, end: int | None) -> bool:
        return (end is None or self.start < end) and (self.end is None or self.end > start)

    def is_active_at(self, moment: int) -> bool:
        return self.start <= moment and (self.end is None or self.end > moment)

    def is_for(self, workload: Workload) -> bool:
        """Whether the workload itself may use the room."""
        if self.reserved_for is None:
            return self.key == workload.key
        labels = workload.pod_sets[0].template.metadata.labels if workload.pod_sets else {}
        return self.reserved_for.matches(workload.namespace, workload.queue_name, labels)

    def applies_at(self, moment: int, lead: int) -> bool:
        """Whether what starts at the moment has to mind it; reservations that are far off don't count yet."""
        return self.reserved_for is None or self.start - moment <= lead

    @property
    def nodes(self) -> set[int]:
        return {seat.node for seat in self.pods}


def starts_after_own_reservation(
    planned: PlannedStart, workload: Workload, planned_starts: Iterable[PlannedStart], now: int
) -> bool:
    """Whether a planned start waits for the end of a reservation that the workload holds now: that is no reason to keep
    the holder out of it."""
    return any(
        one.is_for(workload)
        and one.is_active_at(now)
        and one.end is not None
        and planned.start >= one.end
        and planned.nodes <= one.nodes
        for one in planned_starts
        if one.reserved_for is not None
    )


def pods_by_node(planned: PlannedStart, facts: NodeColumns) -> dict[str, int]:
    counts: dict[str, int] = {}
    for seat in planned.pods:
        name = facts.names[seat.node]
        counts[name] = counts.get(name, 0) + 1
    return counts


def describe_domain(nodes: Sequence[int], facts: NodeColumns) -> str:
    """The node; or the narrowest domain that holds all nodes; or the nodes by name."""
    rows = sorted(set(nodes))
    if len(rows) == 1:
        return facts.names[rows[0]]
    for level in reversed(DEFAULT_TOPOLOGY_KEYS):
        values = {facts.objects[row].labels.get(level, "") for row in rows}
        if len(values) == 1 and values != {""}:
            return f"{level}={values.pop()}"
    named = ", ".join(facts.names[row] for row in rows[:MAX_NAMED_NODES])
    return named + (f" and {len(rows) - MAX_NAMED_NODES} more" if len(rows) > MAX_NAMED_NODES else "")
