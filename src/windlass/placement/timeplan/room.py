"""Who is on the site and until when; what is free then beside the walls; and what may be placed now.

`guard` places through it what starts now, `starts` and `calendar` look ahead with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from windlass.cluster.state import Ints
from windlass.model.queue import QueueSystem
from windlass.model.workload import Workload
from windlass.placement.obstacles import Obstacles, Seat
from windlass.placement.overlay import Overlay
from windlass.placement.site import OverlaySite
from windlass.placement.timeplan.clock import (
    Amended,
    Holder,
    Holding,
    Holdings,
    QuotaClock,
    usage_of,
    usage_of_running,
)
from windlass.placement.timeplan.fitting import Fitting
from windlass.placement.timeplan.forecast import Forecast
from windlass.placement.timeplan.profile import Profile
from windlass.placement.timeplan.terms import TimeSettings, end_of, limit_of
from windlass.placement.timeplan.walls import Wall
from windlass.queueing.node import QuotaNode, Usage
from windlass.queueing.site import PlaceResult, PodSetChoice

MOST_KEPT = 16
"""So many versions of the site are remembered with what is held of quota."""
TRIES = 8
"""So often a place is looked for with the nodes closed at which the last one ran into a wall."""


class Occupant(NamedTuple):
    """Somebody who runs, or was placed in this decision."""

    workload: Workload
    end: int | None
    holding: Holding | None


class Present(NamedTuple):
    """Who is on the site at one version of it."""

    version: int
    occupants: list[Occupant]
    ends: dict[str, int | None]


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
        self._present = Present(-1, [], {})
        self._counted: dict[str, Holder] = {}
        """Those who hold quota and ran at first."""
        self._all_running = Holdings(())
        self._holdings: dict[tuple[int, frozenset[str]], Amended] = {}
        self._last_profile: tuple[object, Profile, Sequence[Wall]] | None = None
        self._placed: dict[str, tuple[Workload, tuple[PodSetChoice, ...]]] = {}
        """Placed in this decision, and not worked out yet."""

    # Who is there

    def add_running(self, workloads: Iterable[Workload]) -> None:
        running = [workload for workload in workloads if workload.admission is not None]
        self.site.seats.watch(running)
        self._running += running

    def _work_out_running(self) -> None:
        usage = self.overlay.recall.usage
        for workload in self._running:
            queue = workload.admission.queue if workload.admission is not None else ""
            holding = (queue, usage.of(workload, usage_of_running)) if queue else None
            end = end_of(workload, self.settings, self.now)
            self._occupants[workload.key] = Occupant(workload, end, holding)
            if holding is not None:
                self._counted[workload.key] = (end, holding)
        if self._running:
            self._running.clear()
            self._all_running = Holdings(self._counted.values())

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
        return self._now_present().occupants

    def _now_present(self) -> Present:
        version = self.overlay.version
        if self._running or self._placed or self._present.version != version:
            if self._running or self._placed:
                self._holdings.clear()
                self.forecast.forget()
                self._last_profile = None
            self._work_out_running()
            for workload, choices in self._placed.values():
                self._work_out(workload, choices)
            self._placed.clear()
            seats = self.site.seats
            present = [one for key, one in self._occupants.items() if key in seats]
            self._present = Present(version, present, {one.workload.key: one.end for one in present})
        return self._present

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
        if not walls:
            return self.free(start, without).copy()
        return self._profile(walls, frozenset(without)).spare(start, end)

    def _profile(self, walls: Sequence[Wall], without: frozenset[str]) -> Profile:
        key = (self._now_present().version, without, tuple(map(id, walls)))
        if self._last_profile is None or self._last_profile[0] != key:
            free = partial(self.free, without=without)
            profile = Profile(walls, self.forecast.held_by_wall, free)
            self._last_profile = (key, profile, walls)
        return self._last_profile[1]

    def free(self, moment: int, without: Collection[str] = ()) -> Ints:
        """By node, once everybody has left who has ended by then, or is named. Not to be written to."""
        return self.forecast.free(moment, self._now_present().ends, without)

    def show_quota(self, moment: int, walls: Iterable[Wall], without: Collection[str] = ()) -> None:
        """Quota as those hold it who are still there at the moment, and these walls."""
        present = self._now_present()
        key = (present.version, frozenset(without))
        found = self._holdings.get(key)
        if found is None:
            if len(self._holdings) >= MOST_KEPT:
                self._holdings.clear()
            found = self._holdings[key] = self._held_by(present.ends.keys() - key[1])
        self.clock.show(found.at(moment), ((wall.queue, wall.usage) for wall in walls if wall.queue))

    def _held_by(self, keys: set[str]) -> Amended:
        """What these hold, as a change of what all hold who ran at first."""
        others = (self._occupants[key] for key in keys - self._counted.keys())
        more = [(one.end, one.holding) for one in others if one.holding is not None]
        less = [self._counted[key] for key in self._counted.keys() - keys]
        return Amended(self._all_running, more, less)

    def leaves_quota(
        self,
        node: QuotaNode,
        usage: Usage,
        moments: Sequence[int],
        walls: Sequence[Wall],
        without: Collection[str] = (),
    ) -> bool:
        """Whether quota suffices at these moments, now or later, for this usage and for everybody who has a plan then.

        A plan that quota doesn't suffice for anyway is nobody's fault.
        """
        plans = [wall for wall in walls if wall.queue]
        if not plans or not moments:
            return True
        if self._fits_beside(node, usage, self.now, plans, without):
            return True  # with all of them at once, and all who run: so at any moment
        return all(
            self._fits_beside(node, usage, moment, standing, without)
            or not self._fits_beside(node, {}, moment, standing, without)
            for moment in moments
            if (standing := [wall for wall in plans if wall.stands_at(moment)])
        )

    def _fits_beside(
        self,
        node: QuotaNode,
        usage: Usage,
        moment: int,
        plans: Sequence[Wall],
        without: Collection[str],
    ) -> bool:
        """Whether quota covers the usage and all these plans, beside those who run at the moment.

        In whichever order they are added: what is added takes exactly so much of the headroom there, and what reaches
        a cohort leaves some in it, or doesn't fit.
        """
        self.show_quota(moment, plans, without)
        node.add(usage)
        asked = {(wall.queue, cell) for wall in plans for cell, amount in wall.usage.items() if amount}
        asked |= {(node.name, cell) for cell, amount in usage.items() if amount}
        fits = all(
            queue.headroom(cell) >= 0 for name, cell in asked if (queue := self.clock.queue(name)) is not None
        )
        node.remove(usage)
        return fits

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
            if not self.leaves_quota(node, usage, moments, walls):
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
