"""Nobody runs into a wall that binds it: what the site asks, where starts are planned, before it places anything.

Bound is whoever was decided after the workload that the wall is for, and everybody by a reservation but its holders.
Two exceptions: a workload for which others are evicted takes what is its right, and a start that needs borrowed quota
doesn't hold up work of another queue that stays within its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.model.reasons import RESERVED_FOR_OTHERS
from windlass.model.workload import Workload
from windlass.placement.timeplan.clock import usage_of
from windlass.placement.timeplan.room import Room
from windlass.placement.timeplan.terms import limit_of
from windlass.placement.timeplan.walls import Wall, waits_for_its_room
from windlass.placement.timeplan.words import in_the_way
from windlass.queueing.site import PlaceResult, PodSetChoice

LAST = 1 << 60
Kind = tuple[object, ...]


class PlanGuard:
    """Implements `placement.site.Guard`."""

    def __init__(self, room: Room, walls: Sequence[Wall], turns: Mapping[str, int]) -> None:
        self._room, self._site = room, room.site
        self._walls, self._turns = walls, turns
        self._refused: dict[Kind, PlaceResult] = {}
        """What was refused once is refused again while nobody has gone: room only gets less."""

    def somebody_left(self) -> None:
        self._refused.clear()

    def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlaceResult:
        if self._site.seats.after_removal:
            return self._noted(workload, choices, self._site.place_freely(workload, choices))
        return self.place_beside_plans(workload, choices)

    def place_beside_plans(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlaceResult:
        """Also where others have just gone: those who come first would have their room."""
        walls = self._binding(workload, choices)
        if not walls:
            return self._noted(workload, choices, self._site.place_freely(workload, choices))
        kind = self._kind(workload, choices)
        if kind in self._refused:
            return self._refused[kind]
        found = self._room.settle(workload, choices, walls)
        if found.ok:
            return self._noted(workload, choices, found)
        before = self._site.checkpoint()
        plain = self._site.place_freely(workload, choices)
        self._site.rollback(before)
        if not plain.ok:
            return plain
        message = in_the_way(walls, self._room)
        # Not feasible: no eviction would help, since it is not those who run that are in the way.
        refused = PlaceResult(ok=False, message=message, code=RESERVED_FOR_OTHERS.code, feasible=False)
        self._refused[kind] = refused
        return refused

    def _kind(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> Kind:
        """The same for workloads that would be refused for the same reason, if the later one is bound by no less."""
        parts, _, _ = self._site.parts(workload, choices)
        shapes = tuple((part.shape.key, part.count, part.topology) for part in parts)
        held = tuple(wall.key for wall in self._walls if wall.who is not None and wall.is_for(workload))
        return workload.queue, workload.namespace, limit_of(workload, self._room.settings), shapes, held

    def _noted(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], found: PlaceResult
    ) -> PlaceResult:
        if found.ok:
            self._room.add_placed(workload, choices)
        return found

    def _binding(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> list[Wall]:
        now, settings = self._room.now, self._room.settings
        limit = limit_of(workload, settings)
        end = None if limit is None else now + limit
        turn = self._turns.get(workload.key, LAST)
        walls = [
            wall
            for wall in self._walls
            if wall.turn < turn
            and wall.overlaps(now, end)
            and wall.binds_at(now, settings.reservation_lead)
            and not wall.is_for(workload)
        ]
        walls = [wall for wall in walls if not waits_for_its_room(wall, workload, self._walls, now)]
        if any(wall.borrows for wall in walls) and not self._borrows(workload, choices):
            node = self._room.queue_of(workload)
            own = node.name if node is not None else ""
            walls = [wall for wall in walls if not wall.borrows or wall.queue == own]
        return walls

    def _borrows(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> bool:
        node = self._room.queue_of(workload)
        if node is None:
            return True
        self._room.show_quota(self._room.now, ())
        usage = usage_of(workload, choices, node, self._site)
        return any(node.borrows_with(cell, amount) for cell, amount in usage.items())
