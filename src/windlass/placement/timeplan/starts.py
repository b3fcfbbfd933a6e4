"""The earliest start of a workload that waits, from the known ends of those who run.

`passes` asks for one workload after the other, in order; the starts that are planned already are walls for the next.
Feasible means quota and a place for all pods, at once, until its limit. Nobody is evicted in a plan.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from windlass.model.workload import Workload
from windlass.placement.timeplan.room import Room
from windlass.placement.timeplan.terms import limit_of
from windlass.placement.timeplan.walls import Wall
from windlass.queueing.assignment import Assignment, Mode
from windlass.queueing.config import QueueConfig
from windlass.queueing.pending import Pending
from windlass.queueing.planner import Planner
from windlass.queueing.site import PodSetChoice
from windlass.queueing.victims import Rules

MOST_TRIED = 64
"""So many moments are tried after the first at which it would fit if nobody else were planned."""


class Starts:
    def __init__(self, room: Room, config: QueueConfig) -> None:
        self._room = room
        self._planner = Planner(room.system, Rules(config, room.now), room.site)

    def earliest(self, workload: Workload, walls: Sequence[Wall], turn: int, not_before: int) -> Wall | None:
        """The first planned start after now; None where no known end makes room for it."""
        room = self._room
        ends = sorted({one.end for one in room.occupants() if one.end is not None})
        free = [room.now, *ends]
        if self.attempt(workload, free[-1], (), turn) is None:
            return None
        first = bisect_left(free, True, key=lambda at: self.attempt(workload, at, (), turn) is not None)
        moments = {*ends, *(wall.end for wall in walls if wall.end is not None), not_before}
        tried = sorted(at for at in moments if at > room.now and at >= max(free[first], not_before))
        for moment in tried[:MOST_TRIED]:
            found = self.attempt(workload, moment, walls, turn)
            if found is not None:
                return found
        return None

    def attempt(self, workload: Workload, moment: int, walls: Sequence[Wall], turn: int) -> Wall | None:
        """The start at that very moment, if it is possible."""
        room = self._room
        limit = limit_of(workload, room.settings)
        end = None if limit is None else moment + limit
        lead = room.settings.reservation_lead
        near = [wall for wall in walls if wall.overlaps(moment, end) and wall.binds_at(moment, lead)]
        mark = room.mark()
        room.release(moment)
        room.show_quota(wall for wall in near if wall.stands_at(moment))
        assignment = self._assignment(workload)
        found = None
        if assignment is not None or not workload.queue:
            choices = assignment.choices if assignment else _plain(workload)
            placed = room.settle(workload, choices, moment, near)
            if placed.ok:
                found = self._wall(workload, (moment, end), assignment, turn)
        room.rewind(mark)
        return found

    def _assignment(self, workload: Workload) -> Assignment | None:
        """Flavors by quota; where the pods find no room there, by quota and room."""
        node = self._room.queue_of(workload)
        if node is None:
            return None
        pending = Pending(workload, node, self._room.site)
        proposal = self._planner.nominate(pending)
        if proposal.assignment.mode != Mode.FIT:
            return None
        before = self._room.site.checkpoint()
        fits = self._room.site.place(workload, proposal.assignment.choices).ok
        self._room.site.rollback(before)
        if not fits:
            pending.tried = ()
            proposal = self._planner.with_room(pending)
        return None if proposal.assignment.mode != Mode.FIT or proposal.failure else proposal.assignment

    def _wall(
        self, workload: Workload, span: tuple[int, int | None], assignment: Assignment | None, turn: int
    ) -> Wall:
        node = self._room.queue_of(workload)
        return Wall(
            workload.key,
            *span,
            self._room.seats_of(workload.key),
            turn,
            queue=node.name if node is not None else "",
            usage=assignment.usage if assignment is not None else {},
            borrows=assignment is not None and assignment.borrowing > 0,
        )


def _plain(workload: Workload) -> tuple[PodSetChoice, ...]:
    return tuple(PodSetChoice(one.name, one.count, {}) for one in workload.pod_sets)
