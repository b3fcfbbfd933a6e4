"""Pods on their own and time: which of them are decided beside the gangs, and what the rest has to leave free.

`engine.decide` places most lone pods in one fast loop that knows nothing of time. Those with a run-time limit, and
those that hold a reservation, may use room that others may not, so they are decided one by one. For the rest, the room
that is spoken for is put up as obstacles on the overlay.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.cluster.node_state import Ints
from windlass.cluster.snapshot import Snapshot
from windlass.model.reasons import RESERVED_FOR_OTHERS
from windlass.model.workload import Workload
from windlass.placement.blocked_capacity import BlockedCapacity, try_assume
from windlass.placement.overlay import Overlay
from windlass.placement.single_pod_placer import SinglePodResults, score_table_rows
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.planned_start import PlannedStart
from windlass.placement.timeplan.run_limits import PlannedStartSettings, run_limit_of

MAX_PLANNED_PODS = 128
"""So many lone pods that wait get planned starts, where anything has a known end; of more, only those with a limit."""
MAX_NODE_CHECKS = 20_000
"""The same in pods times nodes, which is what plans cost: about 15 µs each, and a decision must not take seconds."""
MAX_MARKED_PODS = 256
"""So many refused pods are asked whether they would fit if nothing were kept free; it is only for their verdict."""


def single_pods_to_plan(
    snapshot: Snapshot,
    gangs: Sequence[Workload],
    single_pods: Sequence[Workload],
    settings: PlannedStartSettings,
) -> list[Workload]:
    """Those of the lone pods that are decided one by one."""
    waiting = [one for one in single_pods if one.admission is None]
    if not waiting:
        return []
    reservations = snapshot.reservations
    looks = len(waiting) * snapshot.nodes.size
    few = bool(settings.depth) and len(waiting) <= MAX_PLANNED_PODS and looks <= MAX_NODE_CHECKS
    if few and (reservations or _has_ends(gangs, single_pods, settings)):
        return waiting
    if not reservations and not any(one.admission is None for one in gangs):
        return []
    urgent = max((one.priority for one in gangs if one.admission is None and not one.hold), default=0)
    return [
        one
        for one in waiting
        if run_limit_of(one, settings) is not None
        or (reservations and one.priority > urgent)
        or any(
            reserved.who.matches(one.namespace, one.queue_name, one.pod_sets[0].template.metadata.labels)
            for reserved in reservations
        )
    ]


def any_run_limit(single_pods: Sequence[Workload]) -> bool:
    """Whether any lone pod says for how long it runs: then starts can be planned, and declared durations end."""
    return any(one.max_run_seconds is not None for one in single_pods)


def _has_ends(
    together: Sequence[Workload], alone: Sequence[Workload], settings: PlannedStartSettings
) -> bool:
    return any_run_limit(alone) or any(run_limit_of(one, settings) is not None for one in together)


def block_planned_capacity(occupancy: Occupancy, planned_starts: Sequence[PlannedStart]) -> BlockedCapacity:
    """Puts up, on the overlay as it is now, what work without a limit has to leave alone."""
    lead = occupancy.settings.reservation_lead
    planned_starts = [
        wall
        for wall in planned_starts
        if wall.overlaps(occupancy.now, None) and wall.applies_at(occupancy.now, lead) and wall.pods
    ]
    if not planned_starts:
        return BlockedCapacity()
    free = occupancy.free(occupancy.now)
    needed = np.any(occupancy.spare(occupancy.now, None, planned_starts) < free, axis=1).tolist()
    seats, closed = [], set()
    for wall in planned_starts:
        mark = occupancy.checkpoint()
        missing = {seat.node for seat in wall.pods if try_assume(occupancy.overlay, seat) is None}
        occupancy.rollback(mark)
        seats += [seat for seat in wall.pods if seat.node not in missing and needed[seat.node]]
        # Those who leave by then free too little: what is free on the node now is needed as well.
        closed |= {node for node in missing if needed[node]}
    obstacles = BlockedCapacity(seats, sorted(closed))
    obstacles.apply(occupancy.overlay)
    return obstacles


def mark_reserved_for_others(
    overlay: Overlay, queue: Ints, placed: SinglePodResults, blocked: BlockedCapacity
) -> None:
    """Says of refused pods that would fit if nothing were kept free that this is why."""
    blocked.revert(overlay)
    refused = np.flatnonzero((placed.node < 0) & (placed.refusal >= 0))[:MAX_MARKED_PODS].tolist()
    if not refused or blocked.is_empty:
        return
    rows = score_table_rows(overlay, queue)
    for position in refused:
        pod = overlay.snapshot.pods.objects[int(queue[position])]
        if not overlay.reasons(pod, int(rows[position])).all():
            placed.held[position] = RESERVED_FOR_OTHERS
