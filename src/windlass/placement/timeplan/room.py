"""The site as it will be at a moment: who has left by then, which walls stand, and what fits beside them.

`guard` asks it whether a workload may start now, `starts` whether one could start later. Everything is tried on the one
overlay and undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from windlass.model.queue import QueueSystem
from windlass.model.workload import Workload
from windlass.placement.obstacles import Obstacles, Seat, try_seat
from windlass.placement.overlay import Overlay
from windlass.placement.site import OverlaySite
from windlass.placement.timeplan.clock import Holding, QuotaClock, usage_of, usage_of_running
from windlass.placement.timeplan.terms import TimeSettings, end_of, limit_of
from windlass.placement.timeplan.walls import Wall
from windlass.queueing.node import QuotaNode, Usage
from windlass.queueing.site import PlaceResult, PodSetChoice

TRIES = 8
"""So often a place is looked for with the nodes closed at which the last one ran into a wall."""


class Occupant(NamedTuple):
    """Somebody who runs, or was placed in this decision."""

    workload: Workload
    end: int | None
    holding: Holding | None


class Room:
    def __init__(
        self, overlay: Overlay, site: OverlaySite, system: QueueSystem, now: int, settings: TimeSettings
    ) -> None:
        self.overlay, self.site, self.system = overlay, site, system
        self.now, self.settings = now, settings
        self.clock = QuotaClock(system)
        self._occupants: dict[str, Occupant] = {}
        self._placed: dict[str, tuple[Workload, tuple[PodSetChoice, ...]]] = {}
        """Placed in this decision, and not worked out yet."""

    # Who is there

    def add_running(self, workloads: Iterable[Workload]) -> None:
        for workload in workloads:
            if workload.admission is not None:
                self.site.watch(workload)
                queue = workload.admission.queue
                holding = (queue, usage_of_running(workload)) if queue else None
                end = end_of(workload, self.settings, self.now)
                self._occupants[workload.key] = Occupant(workload, end, holding)

    def add_placed(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> None:
        """It starts now, if it stays placed."""
        self._placed[workload.key] = (workload, choices)

    def _work_out(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> None:
        node = self.queue_of(workload)
        holding = (node.name, usage_of(workload, choices, node, self.site)) if node is not None else None
        limit = limit_of(workload, self.settings)
        end = None if limit is None else self.now + limit
        self._occupants[workload.key] = Occupant(workload, end, holding)

    def occupants(self) -> list[Occupant]:
        """Those who are on the site as it is now."""
        for workload, choices in self._placed.values():
            self._work_out(workload, choices)
        self._placed.clear()
        seats = self.site.seats
        return [one for key, one in self._occupants.items() if key in seats]

    def queue_of(self, workload: Workload) -> QuotaNode | None:
        local = self.system.local_queues.get(f"{workload.namespace}/{workload.queue}")
        return self.clock.queue(local.cluster_queue) if local is not None else None

    def nodes_of(self, key: str) -> set[int]:
        seats = self.site.seats[key]
        nodes = self.overlay.snapshot.pods.node
        return {int(nodes[row]) for row in seats.running} | {place.placing.node for place in seats.placed}

    def seats_of(self, key: str) -> tuple[Seat, ...]:
        placings = [place.placing for place in self.site.seats[key].placed]
        return tuple(Seat(one.pod, one.row, one.node) for one in placings)

    # Moving in time

    def mark(self) -> tuple[int, int]:
        return self.overlay.checkpoint(), self.site.checkpoint()

    def rewind(self, mark: tuple[int, int]) -> None:
        self.site.rollback(mark[1])
        self.overlay.rollback(mark[0])

    def release(self, moment: int) -> None:
        """Take off the site whoever has ended by then."""
        for one in self.occupants():
            if one.end is not None and one.end <= moment:
                self.site.remove(one.workload)

    def show_quota(self, walls: Iterable[Wall]) -> None:
        """Quota as those hold it who are on the site now, and these walls."""
        holdings = {one.workload.key: one.holding for one in self.occupants() if one.holding is not None}
        holdings |= {wall.key: (wall.queue, wall.usage) for wall in walls if wall.queue}
        self.clock.show(holdings)

    # What fits

    def settle(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], moment: int, walls: Sequence[Wall]
    ) -> PlaceResult:
        """Place the workload, on the site as it stands for the moment, so that no wall is run into until it ends."""
        limit = limit_of(workload, self.settings)
        end = None if limit is None else moment + limit
        walls = [wall for wall in walls if wall.overlaps(moment, end)]
        standing = [seat for wall in walls if wall.stands_at(moment) for seat in wall.seats]
        starts = sorted({wall.start for wall in walls if wall.start > moment})
        if any(not self._leaves_quota(workload, choices, at, walls) for at in (moment, *starts)):
            return PlaceResult(ok=False)
        closed: set[int] = set()
        for _ in range(TRIES):
            before = self.site.checkpoint()
            found = self.site.place_around(workload, choices, Obstacles(standing, sorted(closed)))
            if not found.ok:
                return found
            conflicts = self._conflicts(workload.key, starts, walls)
            if not conflicts:
                return found
            self.site.rollback(before)
            closed |= conflicts
        return PlaceResult(ok=False)

    def _conflicts(self, key: str, moments: Sequence[int], walls: Sequence[Wall]) -> set[int]:
        """Nodes of the workload at which a wall has no room, at the first of the moments when that is so."""
        own = self.nodes_of(key)
        for moment in moments:
            mark = self.mark()
            self.release(moment)
            seats = [seat for wall in walls if wall.stands_at(moment) for seat in wall.seats]
            full = {seat.node for seat in seats if try_seat(self.overlay, seat) is None}
            self.rewind(mark)
            if full & own:
                return full & own
        return set()

    def _leaves_quota(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], moment: int, walls: Sequence[Wall]
    ) -> bool:
        """Whether quota suffices at the moment for it and for everybody who has a plan then."""
        standing = [wall for wall in walls if wall.stands_at(moment) and wall.queue]
        node = self.queue_of(workload)
        if node is None or not standing:
            return True
        mark = self.mark()
        self.release(moment)
        usage = usage_of(workload, choices, node, self.site)
        fits = self._all_fit(standing, (node, usage)) or not self._all_fit(standing, None)
        self.rewind(mark)
        return fits

    def _all_fit(self, walls: Sequence[Wall], first: tuple[QuotaNode, Usage] | None) -> bool:
        self.show_quota(())
        added = []
        asked = [first] if first else []
        asked += [(node, wall.usage) for wall in walls if (node := self.clock.queue(wall.queue)) is not None]
        for node, usage in asked:
            if not node.fits(usage):
                break
            node.add(usage)
            added.append((node, usage))
        for node, usage in added:
            node.remove(usage)
        return len(added) == len(asked)
