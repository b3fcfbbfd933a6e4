"""Room for calendar reservations: where their units lie, while they last or once they begin.

`passes` asks before anything is decided. A unit is placed like a pod, on what is free at the reservation's start by
the known ends of those who run; units that the last plan put on a node stay there while they can. What the holders have
started since the reservation began counts as taken from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from windlass.cluster.shape import make_shape
from windlass.model.quota import quota_requests
from windlass.model.reservation import Reservation
from windlass.model.workload import PodSet, Workload
from windlass.placement.obstacles import Obstacles, Seat, try_seat
from windlass.placement.timeplan.room import Room
from windlass.placement.timeplan.walls import Wall
from windlass.queueing.site import PodSetChoice

UNIT = "unit"


class Shortfall(msgspec.Struct, frozen=True):
    """A reservation for which there is not enough room."""

    key: str
    wanted: int
    found: int


def reservation_walls(
    room: Room, reservations: Iterable[Reservation], workloads: Sequence[Workload]
) -> tuple[list[Wall], list[Shortfall]]:
    """A wall for every reservation that is not over, the earliest first."""
    walls: list[Wall] = []
    short: list[Shortfall] = []
    for one in sorted(reservations, key=lambda one: (one.start, one.name)):
        if one.until <= room.now:
            continue
        moment = max(room.now, one.start)
        mark = room.mark()
        room.release(moment)
        for wall in walls:
            if wall.overlaps(one.start, one.until):
                for seat in wall.seats:
                    try_seat(room.overlay, seat)
        used = _used_by_holders(room, one, workloads)
        left = max(0, one.count - sum(used.values()))
        seats = _stay(room, one, used, left)
        seats += _find(room, one, left - len(seats), [*used, *(seat.node for seat in seats)])
        room.rewind(mark)
        walls.append(Wall(one.key, one.start, one.until, tuple(seats), who=one.who))
        if len(seats) < left:
            short.append(Shortfall(one.key, one.count, len(seats) + one.count - left))
    return walls, short


def _used_by_holders(room: Room, one: Reservation, workloads: Sequence[Workload]) -> dict[int, int]:
    """Node → units that the holders have taken since it began."""
    used: dict[int, int] = {}
    index = room.overlay.snapshot.facts.index
    unit = quota_requests(one.pod)
    measure = next((name for name in ("nvidia.com/gpu", "cpu", "memory") if unit.get(name)), "pods")
    wall = Wall(one.key, one.start, one.until, (), who=one.who)
    for workload in workloads if one.start <= room.now else ():
        if workload.admission is None or workload.started_at < one.start or not wall.is_for(workload):
            continue
        for part in workload.admission.assignments:
            each = part.usage.get(measure, part.count) // max(1, part.count)
            for name, pods in part.nodes.items():
                if name in index:
                    used[index[name]] = used.get(index[name], 0) + -(
                        -each * pods // max(1, unit.get(measure, 1))
                    )
    return used


def _stay(room: Room, one: Reservation, used: dict[int, int], most: int) -> list[Seat]:
    """Units where the last plan had them."""
    facts = room.overlay.snapshot.facts
    row = room.overlay.table.row(make_shape(one.pod), room.overlay.snapshot)
    seats: list[Seat] = []
    for name, units in sorted(one.nodes.items()):
        node = facts.index.get(name)
        for _ in range(0 if node is None else units - used.get(node, 0)):
            assert node is not None
            seat = Seat(one.pod, row, node)
            if len(seats) < most and try_seat(room.overlay, seat) is not None:
                seats.append(seat)
    return seats


def _find(room: Room, one: Reservation, units: int, beside: Sequence[int]) -> list[Seat]:
    """Places for units that have none: all in one domain where that is asked for, else as many as there is room for."""
    if units <= 0:
        return []
    for selector in _domains(room, one, beside):
        found = _place(room, one, units, selector)
        if found:
            return found
    if one.topology:
        return []
    found = []
    while len(found) < units and (more := _place(room, one, 1, {})):
        for seat in more:
            try_seat(room.overlay, seat)
        found += more
    return found


def _domains(room: Room, one: Reservation, beside: Sequence[int]) -> Iterator[dict[str, str]]:
    """Node selectors to try: the smallest domain first, or only the one that units lie in already."""
    if not one.topology:
        yield {}
        return
    sizes: dict[str, int] = {}
    nodes = room.overlay.snapshot.facts.nodes
    for node in [nodes[row] for row in beside] or nodes:
        value = node.labels.get(one.topology, "")
        if value:
            sizes[value] = sizes.get(value, 0) + 1
    for value in sorted(sizes, key=lambda value: (sizes[value], value)):
        yield {one.topology: value}


def _place(room: Room, one: Reservation, units: int, selector: dict[str, str]) -> list[Seat]:
    spec = msgspec.structs.replace(one.pod.spec, node_selector={**one.pod.spec.node_selector, **selector})
    pod = msgspec.structs.replace(one.pod, spec=spec)
    workload = Workload(one.key, "Reservation", (PodSet(UNIT, units, pod),))
    before = room.site.checkpoint()
    found = room.site.place_around(workload, (PodSetChoice(UNIT, units, {}),), Obstacles())
    seats = list(room.seats_of(one.key)) if found.ok else []
    room.site.rollback(before)
    return seats
