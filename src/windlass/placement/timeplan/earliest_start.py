"""The earliest start of a workload that waits, from the known ends of those who run.

`passes` asks for one workload after the other, in order; the starts that are planned already are walls for the next.
Feasible means quota and a place for all pods, at once, until its limit. Nobody is evicted in a plan.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence

from windlass.model.workload import Workload
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.planned_start import PlannedStart
from windlass.placement.timeplan.pod_set_fitter import PodSetFitter
from windlass.placement.timeplan.run_limits import run_limit_of
from windlass.queueing.config import QueueConfig
from windlass.queueing.flavor_assignment import Assignment, FlavorAssignmentMode
from windlass.queueing.nominator import Nominator
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import PodSetChoice
from windlass.queueing.preemption_common import PreemptionContext

MAX_EXACT_MOMENTS = 48
"""So many moments are tried after the first at which it would fit if nobody else were planned, and of those that are
left as many again, evenly spread: a start far off is planned less exactly."""


class EarliestStartSearch:
    def __init__(self, occupancy: Occupancy, config: QueueConfig) -> None:
        self._room = occupancy
        self._planner = Nominator(
            occupancy.system, PreemptionContext(config, occupancy.now), occupancy.placer
        )

    def earliest(
        self,
        workload: Workload,
        planned_starts: Sequence[PlannedStart],
        turn: int,
        not_before: int,
        without: Collection[str] = frozenset(),
    ) -> PlannedStart | None:
        """The first planned start after now, as if those named in `without` were not there; None where no known end
        makes room for it."""
        room = self._room
        without = frozenset(without)
        ends = {one.end for one in room.occupants() if one.end is not None}
        moments = {*ends, *(wall.end for wall in planned_starts if wall.end is not None), not_before}
        later = sorted(moment for moment in moments if moment > room.now and moment >= not_before)
        if not later:
            return None
        parts, _, _ = room.placer.pending_pod_sets(workload, _plain(workload))
        fitting = PodSetFitter(room.overlay, room.forecast, parts)

        # Ends only ever add room and quota: before the first moment at which it would fit with nobody else planned,
        # nothing has to be tried.
        def is_possible(moment: int) -> bool:
            if not fitting.can_fit(room.spare(moment, moment + 1, (), without)):
                return False
            room.set_quota_at(moment, (), without)
            return not workload.queue_name or self._assignment(workload) is not None

        first = bisect_left(later, True, key=is_possible)
        for moment in _some_of(later[first:]):
            found = self._attempt(workload, fitting, moment, planned_starts, turn, without)
            if found is not None:
                return found
        return None

    def _attempt(
        self,
        workload: Workload,
        plain: PodSetFitter,
        moment: int,
        walls: Sequence[PlannedStart],
        turn: int,
        without: Collection[str],
    ) -> PlannedStart | None:
        """The start at that very moment, if it is possible; room is looked at first, being cheaper than quota."""
        room = self._room
        limit = run_limit_of(workload, room.settings)
        end = None if limit is None else moment + limit
        lead = room.settings.reservation_lead
        bound = [wall for wall in walls if wall.applies_at(moment, lead)]
        spare = room.spare(moment, end, bound, without)
        if not plain.can_fit(spare):
            return None
        near = [wall for wall in bound if wall.overlaps(moment, end)]
        room.set_quota_at(moment, [wall for wall in near if wall.is_active_at(moment)], without)
        assignment = self._assignment(workload)
        if workload.queue_name and assignment is None:
            return None
        choices = assignment.choices if assignment is not None else _plain(workload)
        parts, tree, topology = room.placer.pending_pod_sets(workload, choices)
        fitting = PodSetFitter(room.overlay, room.forecast, parts)
        seats = fitting.plan_all_pods(spare, tree, topology)
        if seats is None:
            return None
        if assignment is not None and not self._keeps_to_quota(workload, assignment, near, moment, without):
            return None
        node = room.cluster_queue_of(workload)
        return PlannedStart(
            workload.key,
            moment,
            end,
            tuple(seats),
            turn,
            queue=node.name if node is not None else "",
            usage=assignment.usage if assignment is not None else {},
            borrows=assignment is not None and assignment.borrowing_level > 0,
        )

    def _assignment(self, workload: Workload) -> Assignment | None:
        """Flavors by quota as it is shown."""
        node = self._room.cluster_queue_of(workload)
        if node is None:
            return None
        assignment = self._planner.nominate(PendingWorkload(workload, node, self._room.placer)).assignment
        return assignment if assignment.mode == FlavorAssignmentMode.FIT else None

    def _keeps_to_quota(
        self,
        workload: Workload,
        assignment: Assignment,
        walls: Sequence[PlannedStart],
        moment: int,
        without: Collection[str],
    ) -> bool:
        """At the start of every plan that falls into its run."""
        node = self._room.cluster_queue_of(workload)
        later = sorted({wall.start for wall in walls if wall.start > moment})
        return node is None or self._room.quota_suffices(node, assignment.usage, later, walls, without)


def _some_of(moments: Sequence[int]) -> list[int]:
    rest = moments[MAX_EXACT_MOMENTS:]
    step = -(-len(rest) // MAX_EXACT_MOMENTS) or 1
    return [*moments[:MAX_EXACT_MOMENTS], *reversed(rest[::-1][::step])]


def _plain(workload: Workload) -> tuple[PodSetChoice, ...]:
    return tuple(PodSetChoice(one.name, one.count, {}) for one in workload.pod_sets)
