"""Walls: room that is spoken for, from one moment to another.

`starts` makes one for every planned start, `calendar` for every reservation; `guard` and `room` keep others out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from windlass.cluster.facts import NodeFacts
from windlass.model.reservation import Who
from windlass.model.topology import DEFAULT_TOPOLOGY_KEYS
from windlass.model.workload import Workload
from windlass.placement.obstacles import Seat
from windlass.queueing.node import Usage

MOST_NODES = 4
"""Nodes that a domain is named by before it says how many more there are."""


class Wall(msgspec.Struct, frozen=True):
    key: str
    start: int
    end: int | None
    """None: for ever, as far as is known."""
    seats: tuple[Seat, ...]
    turn: int = -1
    """Those decided after this turn are bound by it."""
    queue: str = ""
    """ClusterQueue, where it takes quota."""
    usage: Usage = {}
    borrows: bool = False
    """It takes more than its queue's own quota."""
    who: Who | None = None
    """Of a reservation: those whom it is for."""

    def overlaps(self, start: int, end: int | None) -> bool:
        return (end is None or self.start < end) and (self.end is None or self.end > start)

    def stands_at(self, moment: int) -> bool:
        return self.start <= moment and (self.end is None or self.end > moment)

    def is_for(self, workload: Workload) -> bool:
        """Whether the workload itself may use the room."""
        if self.who is None:
            return self.key == workload.key
        labels = workload.pod_sets[0].pod.metadata.labels if workload.pod_sets else {}
        return self.who.holds(workload.namespace, workload.queue, labels)

    def binds_at(self, moment: int, lead: int) -> bool:
        """Whether what starts at the moment has to mind it; reservations that are far off don't count yet."""
        return self.who is None or self.start - moment <= lead

    @property
    def nodes(self) -> set[int]:
        return {seat.node for seat in self.seats}


def waits_for_its_room(wall: Wall, workload: Workload, walls: Iterable[Wall], now: int) -> bool:
    """Whether a planned start waits for the end of a reservation that the workload holds now: that is no reason to keep
    the holder out of it."""
    return any(
        one.is_for(workload)
        and one.stands_at(now)
        and one.end is not None
        and wall.start >= one.end
        and wall.nodes <= one.nodes
        for one in walls
        if one.who is not None
    )


def counts_by_node(wall: Wall, facts: NodeFacts) -> dict[str, int]:
    counts: dict[str, int] = {}
    for seat in wall.seats:
        name = facts.names[seat.node]
        counts[name] = counts.get(name, 0) + 1
    return counts


def domain_of(nodes: Sequence[int], facts: NodeFacts) -> str:
    """The node; or the narrowest domain that holds all nodes; or the nodes by name."""
    rows = sorted(set(nodes))
    if len(rows) == 1:
        return facts.names[rows[0]]
    for level in reversed(DEFAULT_TOPOLOGY_KEYS):
        values = {facts.nodes[row].labels.get(level, "") for row in rows}
        if len(values) == 1 and values != {""}:
            return f"{level}={values.pop()}"
    named = ", ".join(facts.names[row] for row in rows[:MOST_NODES])
    return named + (f" and {len(rows) - MOST_NODES} more" if len(rows) > MOST_NODES else "")
