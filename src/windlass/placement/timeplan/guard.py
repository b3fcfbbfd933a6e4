"""Nobody runs into a wall that binds it: what the site asks, where starts are planned, before it places anything.

Bound is whoever was decided after the workload that the wall is for, and everybody by a reservation but its holders.
Two exceptions: a workload for which others are evicted takes what is its right, and a start that needs borrowed quota
doesn't hold up work of another queue that stays within its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.model.reasons import RESERVED_FOR_OTHERS
from windlass.model.workload import Workload
from windlass.placement.timeplan.messages import delays_plan_message
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.planned_start import PlannedStart, starts_after_own_reservation
from windlass.placement.timeplan.quota_timeline import assignment_usage
from windlass.placement.timeplan.run_limits import run_limit_of
from windlass.queueing.placement_interface import PlacementResult, PodSetChoice

LAST_TURN = 1 << 60
RequestKind = tuple[object, ...]


class PlannedStartGuard:
    """Implements `placement.workload_placer.PlacementGuard`."""

    def __init__(
        self, occupancy: Occupancy, planned_starts: Sequence[PlannedStart], turns: Mapping[str, int]
    ) -> None:
        self._room, self._site = occupancy, occupancy.placer
        self._walls, self._turns = planned_starts, turns
        self._refused: dict[RequestKind, PlacementResult] = {}
        """What was refused once is refused again while nobody has gone: room only gets less."""

    def on_workload_removed(self) -> None:
        self._refused.clear()

    def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult:
        if self._site.placed_workloads.follows_removal:
            return self._noted(workload, choices, self._site.place_ignoring_plans(workload, choices))
        return self.place_around_plans(workload, choices)

    def place_around_plans(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult:
        """Also where others have just gone: those who come first would have their room."""
        walls = self._binding(workload, choices)
        if not walls:
            return self._noted(workload, choices, self._site.place_ignoring_plans(workload, choices))
        kind = self._kind(workload, choices)
        if kind in self._refused:
            return self._refused[kind]
        found = self._room.place_without_conflict(workload, choices, walls)
        if found.ok:
            return self._noted(workload, choices, found)
        before = self._site.checkpoint()
        plain = self._site.place_ignoring_plans(workload, choices)
        self._site.rollback(before)
        if not plain.ok:
            return plain
        message = delays_plan_message(walls, self._room)
        # Not feasible: no eviction would help, since it is not those who run that are in the way.
        refused = PlacementResult(ok=False, message=message, code=RESERVED_FOR_OTHERS.code, feasible=False)
        self._refused[kind] = refused
        return refused

    def _kind(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> RequestKind:
        """The same for workloads that would be refused for the same reason, if the later one is bound by no less."""
        parts, _, _ = self._site.pending_pod_sets(workload, choices)
        shapes = tuple((part.shape.key, part.count, part.topology) for part in parts)
        held = tuple(
            wall.key for wall in self._walls if wall.reserved_for is not None and wall.is_for(workload)
        )
        return (
            workload.queue_name,
            workload.namespace,
            run_limit_of(workload, self._room.settings),
            shapes,
            held,
        )

    def _noted(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], found: PlacementResult
    ) -> PlacementResult:
        if found.ok:
            self._room.add_placed(workload, choices)
        return found

    def _binding(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> list[PlannedStart]:
        now, settings = self._room.now, self._room.settings
        limit = run_limit_of(workload, settings)
        end = None if limit is None else now + limit
        turn = self._turns.get(workload.key, LAST_TURN)
        walls = [
            wall
            for wall in self._walls
            if wall.turn < turn
            and wall.overlaps(now, end)
            and wall.applies_at(now, settings.reservation_lead)
            and not wall.is_for(workload)
        ]
        walls = [wall for wall in walls if not starts_after_own_reservation(wall, workload, self._walls, now)]
        if any(wall.borrows for wall in walls) and not self._borrows(workload, choices):
            node = self._room.cluster_queue_of(workload)
            own = node.name if node is not None else ""
            walls = [wall for wall in walls if not wall.borrows or wall.queue == own]
        return walls

    def _borrows(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> bool:
        node = self._room.cluster_queue_of(workload)
        if node is None:
            return True
        self._room.set_quota_at(self._room.now, ())
        usage = assignment_usage(workload, choices, node, self._site)
        return any(node.borrows_with(cell, amount) for cell, amount in usage.items())
