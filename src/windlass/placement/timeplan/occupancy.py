"""Occupancy: which workloads run where and until when, and so what capacity and quota are free at a moment.

`earliest_start` and `reservations` look ahead with it; `guard` places through it what starts now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from windlass.cluster.node_state import Ints
from windlass.model.queue import QueueSystem
from windlass.model.workload import Workload
from windlass.placement.blocked_capacity import BlockedCapacity, PlannedPod
from windlass.placement.overlay import Overlay
from windlass.placement.timeplan.capacity_forecast import CapacityForecast, SpareCapacityProfile
from windlass.placement.timeplan.planned_start import PlannedStart
from windlass.placement.timeplan.pod_set_fitter import PodSetFitter
from windlass.placement.timeplan.quota_timeline import (
    AmendedQuotaTimeline,
    QueueUsage,
    QuotaAtMoment,
    QuotaTimeline,
    TimedQueueUsage,
    admitted_usage,
    assignment_usage,
)
from windlass.placement.timeplan.run_limits import PlannedStartSettings, expected_end, run_limit_of
from windlass.placement.workload_placer import WorkloadPlacer
from windlass.queueing.placement_interface import PlacementResult, PodSetChoice
from windlass.queueing.quota_node import QuotaNode, Usage

MAX_CACHED_VERSIONS = 16
"""Quota timelines that are kept, one for each version of the overlay and set of removed workloads."""
MAX_PLACEMENT_TRIES = 8
"""Attempts to place a workload; each closes the nodes on which the last one conflicted with a planned start."""


class Occupant(NamedTuple):
    """A workload that runs, or was placed by this decision."""

    workload: Workload
    end: int | None
    queue_usage: QueueUsage | None


class PresentOccupants(NamedTuple):
    """The occupants at one version of the overlay."""

    version: int
    occupants: list[Occupant]
    ends: dict[str, int | None]


class Occupancy:
    def __init__(
        self,
        overlay: Overlay,
        placer: WorkloadPlacer,
        system: QueueSystem,
        now: int,
        settings: PlannedStartSettings,
    ) -> None:
        self.overlay, self.placer, self.system = overlay, placer, system
        self.now, self.settings = now, settings
        self.quota = QuotaAtMoment(system)
        self.forecast = CapacityForecast(overlay, placer)
        self._running: list[Workload] = []
        """Running workloads that are not in `_occupants` yet: ends and usage are computed when they are needed."""
        self._occupants: dict[str, Occupant] = {}
        self._current_state = PresentOccupants(-1, [], {})
        self._running_usage: dict[str, TimedQueueUsage] = {}
        """Usage of the running workloads that use quota."""
        self._running_quota = QuotaTimeline(())
        self._quota_timelines: dict[tuple[int, frozenset[str]], AmendedQuotaTimeline] = {}
        self._last_profile: tuple[object, SpareCapacityProfile, Sequence[PlannedStart]] | None = None
        self._placed: dict[str, tuple[Workload, tuple[PodSetChoice, ...]]] = {}
        """Workloads placed by this decision that are not in `_occupants` yet."""

    # Occupants

    def add_running(self, workloads: Iterable[Workload]) -> None:
        running = [workload for workload in workloads if workload.admission is not None]
        self.placer.placed_workloads.track_running(running)
        self._running += running

    def _add_running_occupants(self) -> None:
        usage, refusals = self.overlay.cache.usage, self.overlay.snapshot.refusals
        for workload in self._running:
            queue = workload.admission.cluster_queue if workload.admission is not None else ""
            queue_usage = (queue, usage.get_or_make(workload, admitted_usage)) if queue else None
            refused = (
                refusals.end_of(key for pod_set in workload.pod_sets for key in pod_set.pod_keys) if refusals else 0
            )
            end = expected_end(workload, self.settings, self.now, refused)
            self._occupants[workload.key] = Occupant(workload, end, queue_usage)
            if queue_usage is not None:
                self._running_usage[workload.key] = (end, queue_usage)
        if self._running:
            self._running.clear()
            self._running_quota = QuotaTimeline(self._running_usage.values())

    def add_placed(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> None:
        """The workload starts now; it counts as an occupant while the placer has it placed."""
        # Out first, so that a workload that was placed before stands where it is placed now.
        self._placed.pop(workload.key, None)
        self._placed[workload.key] = (workload, choices)

    def _add_placed_occupant(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> None:
        node = self.cluster_queue_of(workload)
        usage = assignment_usage(workload, choices, node, self.placer) if node is not None else {}
        queue_usage = (node.name, usage) if node is not None else None
        limit = run_limit_of(workload, self.settings)
        end = None if limit is None else self.now + limit
        self._occupants.pop(workload.key, None)
        self._occupants[workload.key] = Occupant(workload, end, queue_usage)

    def placed_within_nominal(self) -> set[str]:
        """The workloads placed by this decision with which their queue, at their turn, borrowed nothing."""
        used: dict[str, Usage] = {}
        found: set[str] = set()
        # Running workloads come first, then those placed by this decision in their order.
        for workload, _, queue_usage in self.occupants():
            if queue_usage is None:
                continue
            total = used.setdefault(queue_usage[0], {})
            for cell, amount in queue_usage[1].items():
                total[cell] = total.get(cell, 0) + amount
            node = self.quota.active_queue(queue_usage[0])
            if node is not None and not any(total[cell] > node.subtree_quota.get(cell, 0) for cell in queue_usage[1]):
                found.add(workload.key)
        return found

    def occupants(self) -> list[Occupant]:
        """The workloads that the placer has placed now, running or new."""
        return self._current().occupants

    def _current(self) -> PresentOccupants:
        version = self.overlay.version
        if self._running or self._placed or self._current_state.version != version:
            if self._running or self._placed:
                self._quota_timelines.clear()
                self.forecast.invalidate()
                self._last_profile = None
            self._add_running_occupants()
            for workload, choices in self._placed.values():
                self._add_placed_occupant(workload, choices)
            self._placed.clear()
            placed_workloads = self.placer.placed_workloads
            present = [occupant for key, occupant in self._occupants.items() if key in placed_workloads]
            self._current_state = PresentOccupants(
                version, present, {occupant.workload.key: occupant.end for occupant in present}
            )
        return self._current_state

    def workload(self, key: str) -> Workload:
        """A workload that is or was an occupant."""
        self._add_running_occupants()
        return self._occupants[key].workload

    def cluster_queue_of(self, workload: Workload) -> QuotaNode | None:
        local = self.system.local_queue(workload.namespace, workload.queue_name)
        return self.quota.active_queue(local.cluster_queue) if local is not None else None

    def could_evict(self, workload: Workload, planned: PlannedStart) -> bool:
        """Whether the workload could evict the planned one once that runs, by priority and the rules of its queue.

        Such a start can't be kept: held for it, the workload would evict it next, and be held for it again.
        """
        node, other = self.cluster_queue_of(workload), self.quota.active_queue(planned.queue)
        is_higher = workload.priority > planned.priority and workload.preemption_policy != "Never"
        if planned.reserved_for is not None or node is None or other is None or not is_higher:
            return False
        policy = node.spec.preemption
        if node is other:
            return policy.within_cluster_queue != "Never"
        threshold = policy.max_priority_threshold
        return (
            planned.borrows
            and node.root is other.root
            and policy.reclaim_within_cohort != "Never"
            and policy.borrow_within_cohort != "Never"
            and (threshold is None or planned.priority <= threshold)
        )

    def nodes_of(self, key: str) -> set[int]:
        placed = self.placer.placed_workloads[key]
        nodes = self.overlay.snapshot.pods.node
        running = {int(nodes[row]) for row in placed.running_rows}
        return running | {placement.assumed.node for placement in placed.placed}

    def planned_pods_of(self, key: str) -> tuple[PlannedPod, ...]:
        assumed = [placement.assumed for placement in self.placer.placed_workloads[key].placed]
        return tuple(PlannedPod(pod.pod, pod.row, pod.node) for pod in assumed)

    def checkpoint(self) -> tuple[int, int]:
        return self.overlay.checkpoint(), self.placer.checkpoint()

    def rollback(self, to: tuple[int, int]) -> None:
        self.placer.rollback(to[1])
        self.overlay.rollback(to[0])

    # Looking ahead

    def spare(
        self,
        start: int,
        end: int | None,
        planned_starts: Sequence[PlannedStart],
        without: Collection[str] = (),
    ) -> Ints:
        """By node, the minimum that is free from the start until the end, without what planned starts take."""
        if not planned_starts:
            return self.free(start, without).copy()
        return self._profile(planned_starts, frozenset(without)).spare(start, end)

    def _profile(self, plans: Sequence[PlannedStart], without: frozenset[str]) -> SpareCapacityProfile:
        key = (self._current().version, without, tuple(map(id, plans)))
        if self._last_profile is None or self._last_profile[0] != key:
            free = partial(self.free, without=without)
            profile = SpareCapacityProfile(plans, self.forecast.held_by_planned_start, free)
            # The plans are kept with it, so that their ids in the key are not reused.
            self._last_profile = (key, profile, plans)
        return self._last_profile[1]

    def free(self, moment: int, without: Collection[str] = ()) -> Ints:
        """By node, what is free at the moment; workloads in `without` count as ended. Read-only."""
        return self.forecast.free(moment, self._current().ends, without)

    def set_quota_at(self, moment: int, planned_starts: Iterable[PlannedStart], without: Collection[str] = ()) -> None:
        """Set `self.quota` to the usage of the moment: workloads that still run then, and these planned starts."""
        present = self._current()
        key = (present.version, frozenset(without))
        timeline = self._quota_timelines.get(key)
        if timeline is None:
            if len(self._quota_timelines) >= MAX_CACHED_VERSIONS:
                self._quota_timelines.clear()
            timeline = self._quota_timelines[key] = self._usage_timeline(present.ends.keys() - key[1])
        self.quota.set_usage(
            timeline.at(moment),
            ((planned.queue, planned.usage) for planned in planned_starts if planned.queue),
        )

    def _usage_timeline(self, keys: set[str]) -> AmendedQuotaTimeline:
        """The usage of these workloads, as a difference to the usage of all that ran at first."""
        others = (self._occupants[key] for key in keys - self._running_usage.keys())
        more = [(user.end, user.queue_usage) for user in others if user.queue_usage is not None]
        less = [self._running_usage[key] for key in self._running_usage.keys() - keys]
        return AmendedQuotaTimeline(self._running_quota, more, less)

    def quota_suffices(
        self,
        node: QuotaNode,
        usage: Usage,
        moments: Sequence[int],
        planned_starts: Sequence[PlannedStart],
        without: Collection[str] = (),
    ) -> bool:
        """Whether quota suffices at these moments for this usage together with the planned starts that are active then.

        A moment at which quota doesn't even suffice for the planned starts alone doesn't count.
        """
        with_quota = [planned for planned in planned_starts if planned.queue]
        if not with_quota or not moments:
            return True
        if self._quota_fits(node, usage, self.now, with_quota, without):
            return True  # with all plans at once and everything that runs now, so at any later moment too
        return all(
            self._quota_fits(node, usage, moment, active, without)
            or not self._quota_fits(node, {}, moment, active, without)
            for moment in moments
            if (active := [planned for planned in with_quota if planned.is_active_at(moment)])
        )

    def _quota_fits(
        self,
        node: QuotaNode,
        usage: Usage,
        moment: int,
        planned_starts: Sequence[PlannedStart],
        without: Collection[str],
    ) -> bool:
        """Whether quota covers the usage and these planned starts, in addition to what runs at the moment.

        The order in which they are added doesn't matter: all are added first, then every headroom is compared with 0.
        """
        self.set_quota_at(moment, planned_starts, without)
        node.add_usage(usage)
        cells = {(plan.queue, cell) for plan in planned_starts for cell, used in plan.usage.items() if used}
        cells |= {(node.name, cell) for cell, used in usage.items() if used}
        queues = ((self.quota.active_queue(name), cell) for name, cell in cells)
        fits = all(queue.headroom(cell) >= 0 for queue, cell in queues if queue is not None)
        node.remove_usage(usage)
        return fits

    # Placing now

    def place_without_conflict(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], planned_starts: Sequence[PlannedStart]
    ) -> PlacementResult:
        """Place the workload now so that it delays none of the planned starts until it ends."""
        limit = run_limit_of(workload, self.settings)
        end = None if limit is None else self.now + limit
        node = self.cluster_queue_of(workload)
        moments = sorted({planned.start for planned in planned_starts if planned.start > self.now})
        if node is not None:
            usage = assignment_usage(workload, choices, node, self.placer)
            if not self.quota_suffices(node, usage, moments, planned_starts):
                return PlacementResult(ok=False)
        active = [pod for planned in planned_starts if planned.is_active_at(self.now) for pod in planned.pods]
        spare = self.spare(self.now, end, planned_starts)
        pod_sets, _, _ = self.placer.pending_pod_sets(workload, choices)
        fitter = PodSetFitter(self.overlay, self.forecast, pod_sets)
        if not fitter.can_fit(spare):
            return PlacementResult(ok=False)
        # The placer knows the overlay only, not the future: nodes that conflict are closed, and it tries again.
        closed = fitter.nodes_lost_to_plans(self.spare(self.now, self.now + 1, ()), spare)
        for _ in range(MAX_PLACEMENT_TRIES):
            checkpoint = self.placer.checkpoint()
            blocked = BlockedCapacity(active, sorted(closed))
            result = self.placer.place_around_blocked(workload, choices, blocked)
            if not result.ok:
                return result
            rows, held = self.forecast.held_by_planned_pods(self.planned_pods_of(workload.key))
            # Spare is below 0 where plans take more than will be free; nothing more can be taken there.
            conflicts = set(rows[(held > np.maximum(spare[rows], 0)).any(axis=1)].tolist())
            if not conflicts & {row for planned in planned_starts for row in planned.nodes}:
                return result
            self.placer.rollback(checkpoint)
            closed |= conflicts
        return PlacementResult(ok=False)
