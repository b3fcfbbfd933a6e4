"""Who is on the site and until when; what is free then beside the walls; and what may be placed now.

`guard` places through it what starts now, `starts` and `calendar` look ahead with it.
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
from windlass.placement.timeplan.capacity_forecast import CapacityForecast
from windlass.placement.timeplan.planned_start import PlannedStart
from windlass.placement.timeplan.pod_set_fitter import PodSetFitter
from windlass.placement.timeplan.profile import SpareCapacityProfile
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
"""So many versions of the site are remembered with what is held of quota."""
MAX_PLACEMENT_TRIES = 8
"""So often a place is looked for with the nodes closed at which the last one ran into a wall."""


class Occupant(NamedTuple):
    """Somebody who runs, or was placed in this decision."""

    workload: Workload
    end: int | None
    queue_usage: QueueUsage | None


class PresentOccupants(NamedTuple):
    """Who is on the site at one version of it."""

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
        """Those that run, and have not been worked out yet."""
        self._occupants: dict[str, Occupant] = {}
        self._present = PresentOccupants(-1, [], {})
        self._counted: dict[str, TimedQueueUsage] = {}
        """Those who hold quota and ran at first."""
        self._all_running = QuotaTimeline(())
        self._holdings: dict[tuple[int, frozenset[str]], AmendedQuotaTimeline] = {}
        self._last_profile: tuple[object, SpareCapacityProfile, Sequence[PlannedStart]] | None = None
        self._placed: dict[str, tuple[Workload, tuple[PodSetChoice, ...]]] = {}
        """Placed in this decision, and not worked out yet."""

    # Who is there

    def add_running(self, workloads: Iterable[Workload]) -> None:
        running = [workload for workload in workloads if workload.admission is not None]
        self.placer.placed_workloads.track_running(running)
        self._running += running

    def _work_out_running(self) -> None:
        usage = self.overlay.cache.usage
        for workload in self._running:
            queue = workload.admission.cluster_queue if workload.admission is not None else ""
            holding = (queue, usage.get_or_make(workload, admitted_usage)) if queue else None
            end = expected_end(workload, self.settings, self.now)
            self._occupants[workload.key] = Occupant(workload, end, holding)
            if holding is not None:
                self._counted[workload.key] = (end, holding)
        if self._running:
            self._running.clear()
            self._all_running = QuotaTimeline(self._counted.values())

    def add_placed(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> None:
        """It starts now, if it stays placed."""
        self._placed[workload.key] = (workload, choices)

    def _work_out(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> None:
        node = self.cluster_queue_of(workload)
        holding = (
            (node.name, assignment_usage(workload, choices, node, self.placer)) if node is not None else None
        )
        limit = run_limit_of(workload, self.settings)
        end = None if limit is None else self.now + limit
        self._occupants[workload.key] = Occupant(workload, end, holding)

    def occupants(self) -> list[Occupant]:
        """Those who are on the site as it is now."""
        return self._now_present().occupants

    def _now_present(self) -> PresentOccupants:
        version = self.overlay.version
        if self._running or self._placed or self._present.version != version:
            if self._running or self._placed:
                self._holdings.clear()
                self.forecast.invalidate()
                self._last_profile = None
            self._work_out_running()
            for workload, choices in self._placed.values():
                self._work_out(workload, choices)
            self._placed.clear()
            seats = self.placer.placed_workloads
            present = [one for key, one in self._occupants.items() if key in seats]
            self._present = PresentOccupants(version, present, {one.workload.key: one.end for one in present})
        return self._present

    def workload(self, key: str) -> Workload:
        """Somebody who is or was on the site."""
        self._work_out_running()
        return self._occupants[key].workload

    def cluster_queue_of(self, workload: Workload) -> QuotaNode | None:
        local = self.system.local_queues.get(f"{workload.namespace}/{workload.queue_name}")
        return self.quota.active_queue(local.cluster_queue) if local is not None else None

    def nodes_of(self, key: str) -> set[int]:
        seats = self.placer.placed_workloads[key]
        nodes = self.overlay.snapshot.pods.node
        return {int(nodes[row]) for row in seats.running_rows} | {
            place.assumed.node for place in seats.placed
        }

    def planned_pods_of(self, key: str) -> tuple[PlannedPod, ...]:
        placings = [place.assumed for place in self.placer.placed_workloads[key].placed]
        return tuple(PlannedPod(one.pod, one.row, one.node) for one in placings)

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
        """By node, what is free from the start until the end: the least there is at any moment, walls left alone."""
        if not planned_starts:
            return self.free(start, without).copy()
        return self._profile(planned_starts, frozenset(without)).spare(start, end)

    def _profile(self, walls: Sequence[PlannedStart], without: frozenset[str]) -> SpareCapacityProfile:
        key = (self._now_present().version, without, tuple(map(id, walls)))
        if self._last_profile is None or self._last_profile[0] != key:
            free = partial(self.free, without=without)
            profile = SpareCapacityProfile(walls, self.forecast.held_by_planned_start, free)
            self._last_profile = (key, profile, walls)
        return self._last_profile[1]

    def free(self, moment: int, without: Collection[str] = ()) -> Ints:
        """By node, once everybody has left who has ended by then, or is named. Not to be written to."""
        return self.forecast.free(moment, self._now_present().ends, without)

    def set_quota_at(
        self, moment: int, planned_starts: Iterable[PlannedStart], without: Collection[str] = ()
    ) -> None:
        """Quota as those hold it who are still there at the moment, and these walls."""
        present = self._now_present()
        key = (present.version, frozenset(without))
        found = self._holdings.get(key)
        if found is None:
            if len(self._holdings) >= MAX_CACHED_VERSIONS:
                self._holdings.clear()
            found = self._holdings[key] = self._held_by(present.ends.keys() - key[1])
        self.quota.set_usage(
            found.at(moment), ((wall.queue, wall.usage) for wall in planned_starts if wall.queue)
        )

    def _held_by(self, keys: set[str]) -> AmendedQuotaTimeline:
        """What these hold, as a change of what all hold who ran at first."""
        others = (self._occupants[key] for key in keys - self._counted.keys())
        more = [(one.end, one.queue_usage) for one in others if one.queue_usage is not None]
        less = [self._counted[key] for key in self._counted.keys() - keys]
        return AmendedQuotaTimeline(self._all_running, more, less)

    def quota_suffices(
        self,
        node: QuotaNode,
        usage: Usage,
        moments: Sequence[int],
        planned_starts: Sequence[PlannedStart],
        without: Collection[str] = (),
    ) -> bool:
        """Whether quota suffices at these moments, now or later, for this usage and for everybody who has a plan then.

        A plan that quota doesn't suffice for anyway is nobody's fault.
        """
        plans = [wall for wall in planned_starts if wall.queue]
        if not plans or not moments:
            return True
        if self._fits_beside(node, usage, self.now, plans, without):
            return True  # with all of them at once, and all who run: so at any moment
        return all(
            self._fits_beside(node, usage, moment, standing, without)
            or not self._fits_beside(node, {}, moment, standing, without)
            for moment in moments
            if (standing := [wall for wall in plans if wall.is_active_at(moment)])
        )

    def _fits_beside(
        self,
        node: QuotaNode,
        usage: Usage,
        moment: int,
        plans: Sequence[PlannedStart],
        without: Collection[str],
    ) -> bool:
        """Whether quota covers the usage and all these plans, beside those who run at the moment.

        In whichever order they are added: what is added takes exactly so much of the headroom there, and what reaches
        a cohort leaves some in it, or doesn't fit.
        """
        self.set_quota_at(moment, plans, without)
        node.add_usage(usage)
        asked = {(wall.queue, cell) for wall in plans for cell, amount in wall.usage.items() if amount}
        asked |= {(node.name, cell) for cell, amount in usage.items() if amount}
        fits = all(
            queue.headroom(cell) >= 0
            for name, cell in asked
            if (queue := self.quota.active_queue(name)) is not None
        )
        node.remove_usage(usage)
        return fits

    # Placing now

    def place_without_conflict(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], planned_starts: Sequence[PlannedStart]
    ) -> PlacementResult:
        """Place the workload now so that no wall is run into until it ends; what it can't have is closed to it."""
        limit = run_limit_of(workload, self.settings)
        end = None if limit is None else self.now + limit
        node = self.cluster_queue_of(workload)
        moments = sorted({wall.start for wall in planned_starts if wall.start > self.now})
        if node is not None:
            usage = assignment_usage(workload, choices, node, self.placer)
            if not self.quota_suffices(node, usage, moments, planned_starts):
                return PlacementResult(ok=False)
        standing = [seat for wall in planned_starts if wall.is_active_at(self.now) for seat in wall.pods]
        spare = self.spare(self.now, end, planned_starts)
        parts, _, _ = self.placer.pending_pod_sets(workload, choices)
        fitting = PodSetFitter(self.overlay, self.forecast, parts)
        if not fitting.can_fit(spare):
            return PlacementResult(ok=False)
        closed = fitting.nodes_lost_to_plans(self.spare(self.now, self.now + 1, ()), spare)
        for _ in range(MAX_PLACEMENT_TRIES):
            before = self.placer.checkpoint()
            found = self.placer.place_around_blocked(
                workload, choices, BlockedCapacity(standing, sorted(closed))
            )
            if not found.ok:
                return found
            rows, held = self.forecast.held_by_planned_pods(self.planned_pods_of(workload.key))
            conflicts = set(rows[(held > np.maximum(spare[rows], 0)).any(axis=1)].tolist())
            if not conflicts & {row for wall in planned_starts for row in wall.nodes}:
                return found
            self.placer.rollback(before)
            closed |= conflicts
        return PlacementResult(ok=False)
