"""Pods on their own and time: which of them are decided beside the gangs, and what the rest has to leave free.

`engine.decide` places most lone pods in one fast loop that knows nothing of time. Those with a run-time limit, and
those that hold a reservation, may use room that others may not, so they are decided one by one. For the rest, the room
that is spoken for is put up as obstacles on the overlay.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.cluster.snapshot import Snapshot
from windlass.cluster.state import Ints
from windlass.model.reasons import RESERVED_FOR_OTHERS
from windlass.model.workload import Workload
from windlass.placement.obstacles import Obstacles, try_seat
from windlass.placement.overlay import Overlay
from windlass.placement.place import Placed, table_rows
from windlass.placement.timeplan.room import Room
from windlass.placement.timeplan.terms import TimeSettings, limit_of
from windlass.placement.timeplan.walls import Wall

MOST_PLANNED = 128
"""So many lone pods that wait get planned starts, where anything has a known end; of more, only those with a limit."""
MOST_LOOKS = 20_000
"""The same in pods times nodes, which is what plans cost: about 15 µs each, and a decision must not take seconds."""
MOST_NOTED = 256
"""So many refused pods are asked whether they would fit if nothing were kept free; it is only for their verdict."""


def decided_in_time(
    snapshot: Snapshot, together: Sequence[Workload], alone: Sequence[Workload], settings: TimeSettings
) -> list[Workload]:
    """Those of the lone pods that are decided one by one."""
    waiting = [one for one in alone if one.admission is None]
    if not waiting:
        return []
    reservations = snapshot.reservations
    looks = len(waiting) * snapshot.facts.size
    few = bool(settings.depth) and len(waiting) <= MOST_PLANNED and looks <= MOST_LOOKS
    if few and (reservations or _has_ends(together, alone, settings)):
        return waiting
    if not reservations and not any(one.admission is None for one in together):
        return []
    urgent = max((one.priority for one in together if one.admission is None and not one.hold), default=0)
    return [
        one
        for one in waiting
        if limit_of(one, settings) is not None
        or (reservations and one.priority > urgent)
        or any(
            reserved.who.holds(one.namespace, one.queue, one.pod_sets[0].pod.metadata.labels)
            for reserved in reservations
        )
    ]


def has_ends(alone: Sequence[Workload]) -> bool:
    """Whether any lone pod says for how long it runs: then starts can be planned, and declared durations end."""
    return any(one.max_run_seconds is not None for one in alone)


def _has_ends(together: Sequence[Workload], alone: Sequence[Workload], settings: TimeSettings) -> bool:
    return has_ends(alone) or any(limit_of(one, settings) is not None for one in together)


def keep_free(room: Room, walls: Sequence[Wall]) -> Obstacles:
    """Puts up, on the overlay as it is now, what work without a limit has to leave alone."""
    lead = room.settings.reservation_lead
    walls = [
        wall
        for wall in walls
        if wall.overlaps(room.now, None) and wall.binds_at(room.now, lead) and wall.seats
    ]
    if not walls:
        return Obstacles()
    free = room.free(room.now)
    needed = np.any(room.spare(room.now, None, walls) < free, axis=1).tolist()
    seats, closed = [], set()
    for wall in walls:
        mark = room.mark()
        missing = {seat.node for seat in wall.seats if try_seat(room.overlay, seat) is None}
        room.rewind(mark)
        seats += [seat for seat in wall.seats if seat.node not in missing and needed[seat.node]]
        # Those who leave by then free too little: what is free on the node now is needed as well.
        closed |= {node for node in missing if needed[node]}
    obstacles = Obstacles(seats, sorted(closed))
    obstacles.put_up(room.overlay)
    return obstacles


def note_reserved(overlay: Overlay, queue: Ints, placed: Placed, obstacles: Obstacles) -> None:
    """Says of refused pods that would fit if nothing were kept free that this is why."""
    obstacles.take_down(overlay)
    refused = np.flatnonzero((placed.node < 0) & (placed.refusal >= 0))[:MOST_NOTED].tolist()
    if not refused or obstacles.is_empty:
        return
    rows = table_rows(overlay, queue)
    for position in refused:
        pod = overlay.snapshot.pods.objects[int(queue[position])]
        if not overlay.reasons(pod, int(rows[position])).all():
            placed.held[position] = RESERVED_FOR_OTHERS
