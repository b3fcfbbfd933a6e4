"""Room for calendar reservations: where their units lie, while they last or once they begin.

`passes` asks before anything is decided. A unit is placed like a pod, on what is free at the reservation's start by
the known ends of those who run; units that the last plan put on a node stay there while they can. What the holders have
started since the reservation began counts as taken from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from windlass.cluster.node_state import Ints
from windlass.cluster.shape import make_shape
from windlass.model.quota import quota_requests
from windlass.model.reservation import Reservation
from windlass.model.workload import Workload
from windlass.placement.blocked_capacity import PlannedPod
from windlass.placement.gang import PendingPodSet
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.planned_start import PlannedStart
from windlass.placement.timeplan.pod_set_fitter import PodSetFitter

RESERVATION_UNIT = "unit"


class ReservationShortfall(msgspec.Struct, frozen=True):
    """A reservation for which there is not enough room."""

    key: str
    wanted: int
    found: int


def plan_reservations(
    occupancy: Occupancy, reservations: Iterable[Reservation], workloads: Sequence[Workload]
) -> tuple[list[PlannedStart], list[ReservationShortfall]]:
    """A wall for every reservation that is not over, the earliest first."""
    walls: list[PlannedStart] = []
    short: list[ReservationShortfall] = []
    for one in sorted(reservations, key=lambda one: (one.start, one.name)):
        if one.until <= occupancy.now:
            continue
        used = _used_by_holders(occupancy, one, workloads)
        left = max(0, one.count - sum(used.values()))
        spare = occupancy.spare(max(occupancy.now, one.start), one.until, walls)
        seats = _stay(occupancy, one, used, left, spare)
        seats += _find(occupancy, one, left - len(seats), [*used, *(seat.node for seat in seats)], spare)
        walls.append(PlannedStart(one.key, one.start, one.until, tuple(seats), reserved_for=one.who))
        if len(seats) < left:
            short.append(ReservationShortfall(one.key, one.count, len(seats) + one.count - left))
    return walls, short


def _used_by_holders(room: Occupancy, one: Reservation, workloads: Sequence[Workload]) -> dict[int, int]:
    """Node → units that the holders have taken since it began."""
    used: dict[int, int] = {}
    index = room.overlay.snapshot.nodes.index
    unit = quota_requests(one.template)
    measure = next((name for name in ("nvidia.com/gpu", "cpu", "memory") if unit.get(name)), "pods")
    wall = PlannedStart(one.key, one.start, one.until, (), reserved_for=one.who)
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


def _stay(
    room: Occupancy, one: Reservation, used: dict[int, int], most: int, spare: Ints
) -> list[PlannedPod]:
    """Units where the last plan had them; `spare` goes down by them."""
    index = room.overlay.snapshot.nodes.index
    seats: list[PlannedPod] = []
    for name, units in sorted(one.nodes.items()):
        if name in index:
            node = index[name]
            wanted = max(0, min(units - used.get(node, 0), most - len(seats)))
            here = np.zeros(len(spare), dtype=np.bool_)
            here[node] = True
            seats += _fitting(room, one, wanted).plan_as_many_as_fit(0, spare, here)
    return seats


def _find(
    room: Occupancy, one: Reservation, units: int, beside: Sequence[int], spare: Ints
) -> list[PlannedPod]:
    """Places for units that have none: all in one domain where that is asked for, else as many as there is room for."""
    if units <= 0:
        return []
    fitting = _fitting(room, one, units)
    if not one.topology:
        return fitting.plan_as_many_as_fit(0, spare)
    facts = room.overlay.snapshot.nodes
    for value in _domains(room, one, beside):
        found = fitting.plan_all_pods(spare, among=facts.matching_labels({one.topology: value}))
        if found is not None:
            return found
    return []


def _fitting(room: Occupancy, one: Reservation, units: int) -> PodSetFitter:
    return PodSetFitter(
        room.overlay,
        room.forecast,
        [PendingPodSet(RESERVATION_UNIT, units, one.template, make_shape(one.template))],
    )


def _domains(room: Occupancy, one: Reservation, beside: Sequence[int]) -> list[str]:
    """Values of the label: the smallest domain first, or only the one that units lie in already."""
    nodes = room.overlay.snapshot.nodes.objects
    sizes = Counter(node.labels.get(one.topology, "") for node in nodes)
    there = {nodes[row].labels.get(one.topology, "") for row in beside} or set(sizes)
    return sorted((value for value in there if value), key=lambda value: (sizes[value], value))
