"""Single pods and planned starts: which pods are planned one by one, and what the others have to leave free.

`engine.decide` places most single pods in one fast loop that knows nothing about time. Pods with a run-time limit or a
reservation may use capacity that others may not, so they are decided one by one, like gangs. For the fast loop, the
capacity of planned starts is blocked on the overlay.
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
"""Up to this many waiting single pods get planned starts; if more wait, only those with a run-time limit do."""
MAX_NODE_CHECKS = 20_000
"""The same limit in pods × nodes, which is what plans cost: about 15 µs each, and a decision must not take seconds."""
MAX_MARKED_PODS = 256
"""Refused pods that are checked again without blocked capacity; only their verdict depends on it."""


def single_pods_to_plan(
    snapshot: Snapshot,
    gangs: Sequence[Workload],
    single_pods: Sequence[Workload],
    settings: PlannedStartSettings,
) -> list[Workload]:
    """The single pods that are decided one by one."""
    waiting = [workload for workload in single_pods if workload.admission is None]
    if not waiting:
        return []
    reservations = snapshot.reservations
    node_checks = len(waiting) * snapshot.nodes.size
    few = bool(settings.depth) and len(waiting) <= MAX_PLANNED_PODS and node_checks <= MAX_NODE_CHECKS
    if few and (reservations or _has_ends(gangs, single_pods, settings)):
        return waiting
    if not reservations and not any(workload.admission is None for workload in gangs):
        return []
    gang_priority = max(
        (workload.priority for workload in gangs if workload.admission is None and not workload.hold),
        default=0,
    )
    return [
        workload
        for workload in waiting
        if run_limit_of(workload, settings) is not None
        or (reservations and workload.priority > gang_priority)
        or any(
            reservation.who.matches(
                workload.namespace, workload.queue_name, workload.pod_sets[0].template.metadata.labels
            )
            for reservation in reservations
        )
    ]


def any_run_limit(single_pods: Sequence[Workload]) -> bool:
    """Whether any single pod declares how long it runs: only then can starts be planned and durations expire."""
    return any(workload.max_run_seconds is not None for workload in single_pods)


def _has_ends(gangs: Sequence[Workload], single_pods: Sequence[Workload], settings: PlannedStartSettings) -> bool:
    return any_run_limit(single_pods) or any(run_limit_of(gang, settings) is not None for gang in gangs)


def block_planned_capacity(occupancy: Occupancy, planned_starts: Sequence[PlannedStart]) -> BlockedCapacity:
    """Block on the overlay what workloads without a run-time limit must leave free for planned starts."""
    lead = occupancy.settings.reservation_lead
    planned_starts = [
        planned
        for planned in planned_starts
        if planned.overlaps(occupancy.now, None) and planned.applies_at(occupancy.now, lead) and planned.pods
    ]
    if not planned_starts:
        return BlockedCapacity()
    free = occupancy.free(occupancy.now)
    needed = np.any(occupancy.spare(occupancy.now, None, planned_starts) < free, axis=1).tolist()
    pods, closed = [], set()
    for planned in planned_starts:
        checkpoint = occupancy.checkpoint()
        missing = {pod.node for pod in planned.pods if try_assume(occupancy.overlay, pod) is None}
        occupancy.rollback(checkpoint)
        pods += [pod for pod in planned.pods if pod.node not in missing and needed[pod.node]]
        # Planned pods that don't fit yet wait for running pods to end, and need what is free on the node now as well.
        closed |= {node for node in missing if needed[node]}
    blocked = BlockedCapacity(pods, sorted(closed))
    blocked.apply(occupancy.overlay)
    return blocked


def mark_reserved_for_others(overlay: Overlay, queue: Ints, placed: SinglePodResults, blocked: BlockedCapacity) -> None:
    """Unblock the capacity, and mark refused pods that would fit without it as RESERVED_FOR_OTHERS."""
    blocked.revert(overlay)
    refused = np.flatnonzero((placed.node < 0) & (placed.failure >= 0))[:MAX_MARKED_PODS].tolist()
    if not refused or blocked.is_empty:
        return
    rows = score_table_rows(overlay, queue)
    for position in refused:
        pod = overlay.snapshot.pods.objects[int(queue[position])]
        if not overlay.reasons(pod, int(rows[position])).all():
            placed.held[position] = RESERVED_FOR_OTHERS
