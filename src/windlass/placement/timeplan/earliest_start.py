"""Finds the earliest start of a waiting workload, from the known ends of running workloads.

`start_planner` asks for one workload after the other, in order, and passes the starts that are planned already. A start
is possible if quota and nodes suffice for all pods at once, until the run-time limit. Plans never evict anything.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import NamedTuple

from windlass.model.workload import Workload
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.planned_start import PlannedStart
from windlass.placement.timeplan.pod_set_fitter import PodSetFitter
from windlass.placement.timeplan.run_limits import run_limit_of
from windlass.placement.topology import DomainTree
from windlass.queueing.config import QueueConfig
from windlass.queueing.flavor_assignment import Assignment, FlavorAssignmentMode
from windlass.queueing.nominator import Nominator
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import PodSetChoice
from windlass.queueing.preemption_common import PreemptionContext

MAX_EXACT_MOMENTS = 48
"""This many moments are tried one by one, from the first that is possible without other plans, and as many of the rest,
evenly spread: a start that is far off is planned less exactly."""


class _FlavoredFit(NamedTuple):
    """The pods of a workload with these flavors, and the topology that they have to keep to."""

    choices: tuple[PodSetChoice, ...]
    fitter: PodSetFitter
    tree: DomainTree | None
    topology: str


class EarliestStartSearch:
    def __init__(self, occupancy: Occupancy, config: QueueConfig) -> None:
        self._occupancy = occupancy
        context = PreemptionContext(config, occupancy.now)
        self._nominator = Nominator(occupancy.system, context, occupancy.placer)
        self._pending: PendingWorkload | None = None
        self._last_fit: _FlavoredFit | None = None
        """Of the last flavors that quota allowed: most moments of one search get the same."""

    def earliest(
        self,
        workload: Workload,
        planned_starts: Sequence[PlannedStart],
        turn: int,
        not_before: int,
        without: Collection[str] = frozenset(),
        before: int | None = None,
    ) -> PlannedStart | None:
        """The first possible start after now, as if the workloads in `without` had ended; None where there is none, or
        none before the moment `before`."""
        occupancy = self._occupancy
        without = frozenset(without)
        ends = {occupant.end for occupant in occupancy.occupants() if occupant.end is not None}
        moments = {*ends, *(planned.end for planned in planned_starts if planned.end is not None), not_before}
        later = sorted(moment for moment in moments if moment > occupancy.now and moment >= not_before)
        if before is not None:
            later = later[: bisect_left(later, before)]
        if not later:
            return None
        self._last_fit = None
        fitter = self._fit(workload, _without_flavors(workload)).fitter

        # Ends only add capacity and quota, so `is_possible` is monotonic: bisection finds the first moment at which the
        # workload would fit without other plans, and no earlier moment has to be tried.
        def is_possible(moment: int) -> bool:
            if not fitter.can_fit(occupancy.spare(moment, moment + 1, (), without)):
                return False
            occupancy.set_quota_at(moment, (), without)
            return not workload.queue_name or self._assignment(workload) is not None

        first = bisect_left(later, True, key=is_possible)
        for moment in _sample(later[first:]):
            found = self._attempt(workload, fitter, moment, planned_starts, turn, without)
            if found is not None:
                return found
        return None

    def _attempt(
        self,
        workload: Workload,
        fitter: PodSetFitter,
        moment: int,
        planned_starts: Sequence[PlannedStart],
        turn: int,
        without: Collection[str],
    ) -> PlannedStart | None:
        """The planned start at this moment, if it is possible. Capacity comes first, being cheaper than quota."""
        occupancy = self._occupancy
        limit = run_limit_of(workload, occupancy.settings)
        end = None if limit is None else moment + limit
        lead = occupancy.settings.reservation_lead
        binding = [plan for plan in planned_starts if plan.applies_at(moment, lead)]
        spare = occupancy.spare(moment, end, binding, without)
        if not fitter.can_fit(spare):
            return None
        overlapping = [plan for plan in binding if plan.overlaps(moment, end)]
        occupancy.set_quota_at(moment, [plan for plan in overlapping if plan.is_active_at(moment)], without)
        assignment = self._assignment(workload)
        if workload.queue_name and assignment is None:
            return None
        choices = assignment.choices if assignment is not None else _without_flavors(workload)
        fit = self._fit(workload, choices)
        pods = fit.fitter.plan_all_pods(spare, fit.tree, fit.topology)
        if pods is None:
            return None
        if assignment is not None and not self._fits_quota_later(workload, assignment, overlapping, moment, without):
            return None
        node = occupancy.cluster_queue_of(workload)
        return PlannedStart(
            workload.key,
            moment,
            end,
            tuple(pods),
            turn,
            queue=node.name if node is not None else "",
            usage=assignment.usage if assignment is not None else {},
            borrows=assignment is not None and assignment.borrowing_level > 0,
            priority=workload.priority,
        )

    def _assignment(self, workload: Workload) -> Assignment | None:
        """The flavors that quota allows, as last set by `Occupancy.set_quota_at`; None where it doesn't suffice."""
        node = self._occupancy.cluster_queue_of(workload)
        if node is None:
            return None
        if self._pending is None or self._pending.workload is not workload or self._pending.node is not node:
            self._pending = PendingWorkload(workload, node, self._occupancy.placer)
        self._pending.reset(self._occupancy.placer)
        assignment = self._nominator.nominate(self._pending).assignment
        return assignment if assignment.mode == FlavorAssignmentMode.FIT else None

    def _fit(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> _FlavoredFit:
        if self._last_fit is None or self._last_fit.choices != choices:
            occupancy = self._occupancy
            pod_sets, tree, topology = occupancy.placer.pending_pod_sets(workload, choices)
            fitter = PodSetFitter(occupancy.overlay, occupancy.forecast, pod_sets)
            self._last_fit = _FlavoredFit(choices, fitter, tree, topology)
        return self._last_fit

    def _fits_quota_later(
        self,
        workload: Workload,
        assignment: Assignment,
        plans: Sequence[PlannedStart],
        moment: int,
        without: Collection[str],
    ) -> bool:
        """Whether quota also suffices whenever another planned start begins during its run."""
        node = self._occupancy.cluster_queue_of(workload)
        later = sorted({plan.start for plan in plans if plan.start > moment})
        return node is None or self._occupancy.quota_suffices(node, assignment.usage, later, plans, without)


def _sample(moments: Sequence[int]) -> list[int]:
    rest = moments[MAX_EXACT_MOMENTS:]
    step = -(-len(rest) // MAX_EXACT_MOMENTS) or 1
    # Sampled from the end, so that the last moment, when most is free, is always tried.
    return [*moments[:MAX_EXACT_MOMENTS], *reversed(rest[::-1][::step])]


def _without_flavors(workload: Workload) -> tuple[PodSetChoice, ...]:
    return tuple(PodSetChoice(pod_set.name, pod_set.count, {}) for pod_set in workload.pod_sets)
