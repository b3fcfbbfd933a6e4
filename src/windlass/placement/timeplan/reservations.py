"""Chooses nodes for the units of calendar reservations.

`start_planner` asks before anything is decided. A unit is placed like a pod, in what is free at the reservation's start
by the known ends of running workloads. Units stay on the node of the last plan while that is possible. Units that the
holders of the reservation have used since it began are subtracted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from windlass.cluster.node_state import Ints
from windlass.cluster.shape import make_shape
from windlass.model.names.nvidia import GPU_RESOURCE
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
    """A reservation that doesn't get all its units."""

    key: str
    wanted: int
    found: int


def plan_reservations(
    occupancy: Occupancy, reservations: Iterable[Reservation], workloads: Sequence[Workload]
) -> tuple[list[PlannedStart], list[ReservationShortfall]]:
    """A `PlannedStart` for every reservation that is not over, the earliest first."""
    planned_starts: list[PlannedStart] = []
    shortfalls: list[ReservationShortfall] = []
    # In time order, since each leaves less for the next; by name, so that the plan is the same every time.
    for reserved in sorted(reservations, key=lambda reserved: (reserved.start, reserved.name)):
        if reserved.until <= occupancy.now:
            continue
        used = _used_by_holders(occupancy, reserved, workloads)
        left = max(0, reserved.count - sum(used.values()))
        spare = occupancy.spare(max(occupancy.now, reserved.start), reserved.until, planned_starts)
        units = _keep_on_nodes(occupancy, reserved, used, left, spare)
        nodes = [*used, *(unit.node for unit in units)]
        units += _place_units(occupancy, reserved, left - len(units), nodes, spare)
        planned_starts.append(
            PlannedStart(
                reserved.key,
                reserved.start,
                reserved.until,
                tuple(units),
                reserved_for=reserved.who,
            )
        )
        if len(units) < left:
            found = len(units) + reserved.count - left
            shortfalls.append(ReservationShortfall(reserved.key, reserved.count, found))
    return planned_starts, shortfalls


def _used_by_holders(occupancy: Occupancy, reserved: Reservation, workloads: Sequence[Workload]) -> dict[int, int]:
    """Node → units that workloads of the reservation have used since it began."""
    used: dict[int, int] = {}
    index = occupancy.overlay.snapshot.nodes.index
    unit = quota_requests(reserved.template)
    # Pods of the holders may have another size than a unit: they are converted by the scarcest resource of a unit.
    measure = next((name for name in (GPU_RESOURCE, "cpu", "memory") if unit.get(name)), "pods")
    planned = PlannedStart(reserved.key, reserved.start, reserved.until, (), reserved_for=reserved.who)
    for workload in workloads if reserved.start <= occupancy.now else ():
        if workload.admission is None or workload.started_at < reserved.start or not planned.is_for(workload):
            continue
        for assignment in workload.admission.assignments:
            per_pod = assignment.usage.get(measure, assignment.count) // max(1, assignment.count)
            for name, pods in assignment.nodes.items():
                if name in index:
                    units = -(-per_pod * pods // max(1, unit.get(measure, 1)))  # rounded up
                    used[index[name]] = used.get(index[name], 0) + units
    return used


def _keep_on_nodes(
    occupancy: Occupancy, reservation: Reservation, used: dict[int, int], most: int, spare: Ints
) -> list[PlannedPod]:
    """Units on the nodes of the last plan; what they take is subtracted from `spare`."""
    index = occupancy.overlay.snapshot.nodes.index
    pods: list[PlannedPod] = []
    for name, units in sorted(reservation.nodes.items()):
        if name in index:
            node = index[name]
            wanted = max(0, min(units - used.get(node, 0), most - len(pods)))
            here = np.zeros(len(spare), dtype=np.bool_)
            here[node] = True
            pods += _unit_fitter(occupancy, reservation, wanted).plan_as_many_as_fit(0, spare, here)
    return pods


def _place_units(
    occupancy: Occupancy, reservation: Reservation, units: int, used_nodes: Sequence[int], spare: Ints
) -> list[PlannedPod]:
    """New nodes for units: all in one domain of the requested level, or none; without a level, as many as fit."""
    if units <= 0:
        return []
    fitter = _unit_fitter(occupancy, reservation, units)
    if not reservation.topology:
        return fitter.plan_as_many_as_fit(0, spare)
    nodes = occupancy.overlay.snapshot.nodes
    for value in _domains(occupancy, reservation, used_nodes):
        found = fitter.plan_all_pods(spare, among=nodes.matching_labels({reservation.topology: value}))
        if found is not None:
            return found
    return []


def _unit_fitter(occupancy: Occupancy, reservation: Reservation, units: int) -> PodSetFitter:
    return PodSetFitter(
        occupancy.overlay,
        occupancy.forecast,
        [PendingPodSet(RESERVATION_UNIT, units, reservation.template, make_shape(reservation.template))],
    )


def _domains(occupancy: Occupancy, reservation: Reservation, used_nodes: Sequence[int]) -> list[str]:
    """Values of the topology label, the smallest domain first; only those of `used_nodes` where there are any."""
    nodes = occupancy.overlay.snapshot.nodes.objects
    sizes = Counter(node.labels.get(reservation.topology, "") for node in nodes)
    values = {nodes[row].labels.get(reservation.topology, "") for row in used_nodes} or set(sizes)
    return sorted((value for value in values if value), key=lambda value: (sizes[value], value))
