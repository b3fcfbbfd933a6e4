"""Who is on the site and until when; what is free then beside the walls; and what may be placed now.

`guard` places through it what starts now, `starts` and `calendar` look ahead with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from windlass.cluster.state import Ints
from windlass.model.queue import QueueSystem
from windlass.model.workload import Workload
from windlass.placement.obstacles import Obstacles, Seat
from windlass.placement.overlay import Overlay
from windlass.placement.site import OverlaySite
from windlass.placement.timeplan.clock import Holding, QuotaClock, usage_of, usage_of_running
from windlass.placement.timeplan.fitting import Fitting
from windlass.placement.timeplan.forecast import Forecast
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
        self.forecast = Forecast(overlay, site)
        self._running: list[Workload] = []
        """Those that run, and have not been worked out yet."""
        self._occupants: dict[str, Occupant] = {}
        self._present: tuple[int, list[Occupant]] = (-1, [])
        self._placed: dict[str, tuple[Workload, tuple[PodSetChoice, ...]]] = {}
        """Placed in this decision, and not worked out yet."""

    # Who is there

    def add_running(self, workloads: Iterable[Workload]) -> None:
        for workload in workloads:
            if workload.admission is not None:
                self.site.seats.watch(workload)
                self._running.append(workload)

    def _work_out_running(self) -> None:
        usage = self.overlay.recall.usage
        for workload in self._running:
            queue = workload.admission.queue if workload.admission is not None else ""
            holding = (queue, usage.of(workload, usage_of_running)) if queue else None
            end = end_of(workload, self.settings, self.now)
            self._occupants[workload.key] = Occupant(workload, end, holding)
        self._running.clear()

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
        if self._running or self._placed or self._present[0] != self.overlay.log_end:
            self._work_out_running()
            for workload, choices in self._placed.values():
                self._work_out(workload, choices)
            self._placed.clear()
            seats = self.site.seats
            present = [one for key, one in self._occupants.items() if key in seats]
            self._present = (self.overlay.log_end, present)
        return self._present[1]

    def workload(self, key: str) -> Workload:
        """Somebody who is or was on the site."""
        self._work_out_running()
        return self._occupants[key].workload

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

    def mark(self) -> tuple[int, int]:
        return self.overlay.checkpoint(), self.site.checkpoint()

    def rewind(self, mark: tuple[int, int]) -> None:
        self.site.rollback(mark[1])
        self.overlay.rollback(mark[0])

    # Looking ahead

    def spare(
        self, start: int, end: int | None, walls: Sequence[Wall], without: Collection[str] = ()
    ) -> Ints:
        """By node, what is free from the start until the end: the least there is at any moment, walls left alone."""
        ends = {one.workload.key: one.end for one in self.occupants()}
        near = sorted((wall for wall in walls if wall.overlaps(start, end)), key=lambda wall: wall.start)
        least = self.forecast.free(start, ends, without)
        taken = np.zeros_like(least)
        standing: list[Wall] = []
        for moment, group in groupby(near, key=lambda wall: max(start, wall.start)):
            for wall in standing:
                if not wall.stands_at(moment):
                    rows, held = self.forecast.held_by_wall(wall)
                    taken[rows] -= held
            standing = [wall for wall in standing if wall.stands_at(moment)]
            for wall in group:
                rows, held = self.forecast.held_by_wall(wall)
                taken[rows] += held
                standing.append(wall)
            least = np.minimum(least, self.forecast.free(moment, ends, without) - taken)
        return least.copy()

    def show_quota(self, moment: int, walls: Iterable[Wall], without: Collection[str] = ()) -> None:
        """Quota as those hold it who are still there at the moment, and these walls."""
        holdings = {
            one.workload.key: one.holding
            for one in self.occupants()
            if one.holding is not None
            and one.workload.key not in without
            and (one.end is None or one.end > moment)
        }
        holdings |= {wall.key: (wall.queue, wall.usage) for wall in walls if wall.queue}
        self.clock.show(holdings)

    def leaves_quota(
        self, node: QuotaNode, usage: Usage, moment: int, walls: Sequence[Wall], without: Collection[str] = ()
    ) -> bool:
        """Whether quota suffices at the moment for this usage and for everybody who has a plan then.

        A plan that quota doesn't suffice for anyway is nobody's fault.
        """
        standing = [wall for wall in walls if wall.stands_at(moment) and wall.queue]
        if not standing:
            return True
        self.show_quota(moment, (), without)
        plans = [(one, wall.usage) for wall in standing if (one := self.clock.queue(wall.queue)) is not None]
        return _all_fit([(node, usage), *plans]) or not _all_fit(plans)

    # Placing now

    def settle(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], walls: Sequence[Wall]
    ) -> PlaceResult:
        """Place the workload now so that no wall is run into until it ends; what it can't have is closed to it."""
        limit = limit_of(workload, self.settings)
        end = None if limit is None else self.now + limit
        node = self.queue_of(workload)
        moments = sorted({wall.start for wall in walls if wall.start > self.now})
        if node is not None:
            usage = usage_of(workload, choices, node, self.site)
            if not all(self.leaves_quota(node, usage, moment, walls) for moment in moments):
                return PlaceResult(ok=False)
        standing = [seat for wall in walls if wall.stands_at(self.now) for seat in wall.seats]
        spare = self.spare(self.now, end, walls)
        parts, _, _ = self.site.parts(workload, choices)
        fitting = Fitting(self.overlay, self.forecast, parts)
        if not fitting.can_fit(spare):
            return PlaceResult(ok=False)
        closed = fitting.only_in(self.spare(self.now, self.now + 1, ()), spare)
        for _ in range(TRIES):
            before = self.site.checkpoint()
            found = self.site.place_around(workload, choices, Obstacles(standing, sorted(closed)))
            if not found.ok:
                return found
            rows, held = self.forecast.of_seats(self.seats_of(workload.key))
            conflicts = set(rows[(held > np.maximum(spare[rows], 0)).any(axis=1)].tolist())
            if not conflicts & {row for wall in walls for row in wall.nodes}:
                return found
            self.site.rollback(before)
            closed |= conflicts
        return PlaceResult(ok=False)


def _all_fit(asked: Sequence[tuple[QuotaNode, Usage]]) -> bool:
    """One after the other; the tree is left as it was."""
    added = []
    for node, usage in asked:
        if not node.fits(usage):
            break
        node.add(usage)
        added.append((node, usage))
    for node, usage in added:
        node.remove(usage)
    return len(added) == len(asked)
