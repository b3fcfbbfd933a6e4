"""Planned starts: when everybody who waits is to start, who is delayed by one behind it, and what holds say about it.

`engine.decide` decides once, asks here for a plan, and decides again around the plans until nobody is delayed. What
comes out are the outcomes of the last pass, the walls (for `Reserve`), and what each hold says about time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from windlass.model.reasons import RESERVED_FOR_OTHERS
from windlass.model.reservation import Reservation
from windlass.model.workload import Workload
from windlass.placement.timeplan import messages
from windlass.placement.timeplan.earliest_start import EarliestStartSearch
from windlass.placement.timeplan.guard import PlannedStartGuard
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.planned_start import PlannedStart, starts_after_own_reservation
from windlass.placement.timeplan.reservations import ReservationShortfall, plan_reservations
from windlass.placement.timeplan.run_limits import expected_end, run_estimate_of, run_limit_of
from windlass.placement.workload_pieces import is_above_minimum, workload_key
from windlass.queueing.config import QueueConfig
from windlass.queueing.outcome import (
    FLAVOR_MISMATCH,
    QUEUE_MISSING,
    QUOTA_MISCONFIGURED,
    Admitted,
    Held,
    Outcome,
)
from windlass.queueing.run_time_estimates import RunTimeEstimate

PERMANENT_CODES = frozenset(
    {FLAVOR_MISMATCH, QUEUE_MISSING, QUOTA_MISCONFIGURED, "INVALID_OBJECT", "REQUEST_EXCEEDS_CLUSTER"}
)
"""Time doesn't cure these."""


class Outlook(msgspec.Struct, frozen=True):
    """What a hold says about time."""

    start: int | None
    ahead: int
    text: str
    basis: tuple[str, ...] = ()
    """Those whose end the start rests on."""


class PlannedOutcomes(msgspec.Struct, frozen=True):
    outcomes: list[Outcome]
    planned_starts: list[PlannedStart]
    """Reservations, then planned starts in order."""
    outlooks: dict[str, Outlook]
    shortfalls: list[ReservationShortfall]


class _Leaving(msgspec.Struct):
    """Who has a known end: by node, and by the moment of it."""

    version: int
    """Of the overlay that it was worked out on."""
    by_node: dict[int, list[tuple[int, str]]] = msgspec.field(default_factory=dict)
    by_end: dict[int, list[str]] = msgspec.field(default_factory=dict)
    ends: list[int] = msgspec.field(default_factory=list)


class StartPlanner:
    def __init__(
        self,
        occupancy: Occupancy,
        config: QueueConfig,
        workloads: Sequence[Workload],
        reservations: Iterable[Reservation],
    ) -> None:
        """`workloads` are all there are, running and waiting, in the pieces that are decided for themselves."""
        occupancy.add_running(workloads)
        self._room = occupancy
        self._reserved, self._short = plan_reservations(occupancy, reservations, workloads)
        self._starts = EarliestStartSearch(occupancy, config)
        self._by_key = {workload.key: workload for workload in workloads}
        self._plans: dict[str, PlannedStart] = {}
        self._basis: dict[str, list[str]] = {}
        self._delayed: dict[str, PlannedStart] = {}
        self._known_leaving: _Leaving | None = None
        self._is_possible = self._can_plan()

    def guard(self, outcomes: Iterable[Outcome] = ()) -> PlannedStartGuard | None:
        """Keeps those who come later, by the outcomes of the last pass, out of what is planned and reserved; None
        where nothing ends that is known, so that nothing can be planned."""
        if not self._is_possible:
            return None
        turns = {one.workload: one.decided_in_cycle for one in outcomes if isinstance(one, Admitted | Held)}
        return PlannedStartGuard(self._room, [*self._reserved, *self._plans.values()], turns)

    def plan(self, outcomes: Sequence[Outcome]) -> bool:
        """Plan a start for everybody who waits, in order; true if somebody behind holds one of them up."""
        if self._is_possible:
            self._plan(outcomes)
        return bool(self._delayed)

    def planned_outcomes(self, outcomes: list[Outcome]) -> PlannedOutcomes:
        walls = [*self._reserved, *self._plans.values()]
        return PlannedOutcomes(outcomes, walls, self._outlooks(outcomes), self._short)

    def _can_plan(self) -> bool:
        settings = self._room.settings
        if self._reserved:
            return True
        if not settings.history and settings.run_estimates is None:
            return any(workload.max_run_seconds is not None for workload in self._by_key.values())
        return any(run_limit_of(workload, settings) is not None for workload in self._by_key.values())

    # Planned starts

    def _plan(self, outcomes: Sequence[Outcome]) -> None:
        """A start for everybody who waits, in order; `_delayed` are those whom somebody behind them holds up."""
        self._plans, self._basis, self._delayed = {}, {}, {}
        before_it: dict[str, int | None] = {}
        """Strict queue → the start of the last one that was looked at."""
        for hold in self._waiting(outcomes)[: self._room.settings.depth]:
            workload = self._by_key[hold.workload]
            queue = self._strict_queue(workload)
            earlier = before_it.get(queue, 0) if queue else 0
            wall = (
                None if earlier is None else self._start(workload, hold.decided_in_cycle, earlier, outcomes)
            )
            if queue:
                before_it[queue] = wall.start if wall is not None else None
            if wall is not None:
                self._plans[wall.key] = wall
                self._basis[wall.key] = self._rests_on(wall)

    def _start(
        self, workload: Workload, turn: int, not_before: int, outcomes: Sequence[Outcome]
    ) -> PlannedStart | None:
        walls = [wall for wall in (*self._reserved, *self._plans.values()) if not wall.is_for(workload)]
        found = self._starts.earliest(workload, walls, turn, not_before)
        behind = [
            self._by_key[one.workload]
            for one in outcomes
            if isinstance(one, Admitted) and one.decided_in_cycle > turn and not one.after
        ]
        if not behind or (found is not None and found.start <= self._room.now + 1):
            return found
        alone = self._starts.earliest(workload, walls, turn, not_before, {other.key for other in behind})
        if alone is not None and (alone.borrows or self._reserved):
            bound = {other.key for other in behind if self._is_bound(other, alone)}
            alone = self._starts.earliest(workload, walls, turn, not_before, bound)
        if alone is None or (found is not None and found.start <= alone.start):
            return found
        self._delayed[workload.key] = alone
        return alone

    def _is_bound(self, other: Workload, wall: PlannedStart) -> bool:
        """A plan on borrowed quota doesn't bind another queue's work that stays within its own, and one that waits for
        the end of a reservation doesn't bind its holders; see `guard`."""
        if starts_after_own_reservation(wall, other, self._reserved, self._room.now):
            return False
        node = self._room.cluster_queue_of(other)
        if not wall.borrows or node is None or node.name == wall.queue:
            return True
        self._room.set_quota_at(self._room.now, ())
        return any(node.borrows_with(cell, 0) for cell in node.usage)

    def _waiting(self, outcomes: Sequence[Outcome]) -> list[Held]:
        """Those whom time may help, in order."""
        held = [
            one
            for one in outcomes
            if isinstance(one, Held)
            and one.code not in PERMANENT_CODES
            and one.workload in self._by_key
            and not is_above_minimum(one.workload)
            and not self._by_key[one.workload].hold
            and self._by_key[one.workload].active
        ]
        return sorted(held, key=lambda one: (one.decided_in_cycle, one.workload))

    def _strict_queue(self, workload: Workload) -> str:
        node = self._room.cluster_queue_of(workload)
        return node.name if node is not None and node.spec.queueing_strategy == "StrictFIFO" else ""

    def _rests_on(self, wall: PlannedStart) -> list[str]:
        """Those whose end makes room for it: on its nodes, or, where only quota was lacking, the last before it."""
        known = [*self._reserved, *self._plans.values()]
        planned = [(one.end, one) for one in known if one.key != wall.key and one.end is not None]
        ended = [(end, one) for end, one in planned if end <= wall.start]
        leaving = self._leaving()
        there = {(end, one.key) for end, one in ended if one.nodes & wall.nodes}
        there |= {
            (end, key)
            for node in wall.nodes
            for end, key in leaving.by_node.get(node, ())
            if end <= wall.start
        }
        if there:
            return [key for _, key in sorted(there)]
        before = bisect_right(leaving.ends, wall.start)
        last = max([end for end, _ in ended] + leaving.ends[before - 1 : before], default=0)
        return sorted([one.key for end, one in ended if end == last] + leaving.by_end.get(last, []))

    def _leaving(self) -> _Leaving:
        """Those who run or were placed, and have a known end; the same for all plans of one pass."""
        room = self._room
        if self._known_leaving is None or self._known_leaving.version != room.overlay.version:
            found = _Leaving(room.overlay.version)
            for one in room.occupants():
                if one.end is not None:
                    found.by_end.setdefault(one.end, []).append(one.workload.key)
                    for node in room.nodes_of(one.workload.key):
                        found.by_node.setdefault(node, []).append((one.end, one.workload.key))
            found.ends.extend(sorted(found.by_end))
            self._known_leaving = found
        return self._known_leaving

    def hold_delaying_admissions(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The last resort: whoever may still delay a plan doesn't start now."""
        kept: list[Outcome] = []
        for one in outcomes:
            walls = [
                wall
                for wall in self._delayed.values()
                if isinstance(one, Admitted)
                and wall.turn < one.decided_in_cycle
                and not one.after
                and self._is_bound(self._by_key[one.workload], wall)
            ]
            end = next((at.end for at in self._room.occupants() if at.workload.key == one.workload), None)
            walls = [wall for wall in walls if wall.overlaps(self._room.now, end)]
            if walls and isinstance(one, Admitted):
                self._room.placer.remove(self._by_key[one.workload])
                message = messages.delays_plan_message(walls, self._room)
                kept.append(Held(one.workload, RESERVED_FOR_OTHERS.code, message, one.decided_in_cycle))
            else:
                kept.append(one)
        return kept

    # What holds say

    def _outlooks(self, outcomes: Sequence[Outcome]) -> dict[str, Outlook]:
        unbounded: list[str] | None = None
        depth = self._room.settings.depth
        counts: dict[str, int] = {}
        found: dict[str, Outlook] = {}
        for place, hold in enumerate(self._waiting(outcomes) if depth else ()):
            workload = self._by_key[hold.workload]
            node = self._room.cluster_queue_of(workload)
            queue = node.name if node is not None else ""
            ahead = counts.get(queue, 0)
            counts[queue] = ahead + 1
            wall = self._plans.get(hold.workload)
            if wall is not None:
                keys = self._basis[wall.key]
                text = messages.planned_start_message(
                    wall, messages.StartBasis(keys, self._estimates(keys)), ahead, self._room
                )
            elif place >= depth:
                text = messages.beyond_depth_message(depth, ahead)
            else:
                unbounded = (
                    sorted({*map(workload_key, self._without_end())}) if unbounded is None else unbounded
                )
                text = messages.no_planned_start_message(unbounded, bool(self._strict_queue(workload)), ahead)
            start, basis = (wall.start, tuple(self._basis[wall.key])) if wall is not None else (None, ())
            found[hold.workload] = Outlook(start, ahead, text, basis)
        return found

    def _estimates(self, keys: Sequence[str]) -> list[RunTimeEstimate]:
        """What is known of the ends of these from nothing but earlier runs, one for each."""
        found = [
            run_estimate_of(self._by_key[key], self._room.settings) for key in keys if key in self._by_key
        ]
        return [one for one in found if one is not None]

    def _without_end(self) -> Iterator[str]:
        known = self._room.settings.history or self._room.settings.run_estimates
        for key in self._room.placer.placed_workloads:
            workload = self._by_key.get(key)
            if workload is not None and workload.max_run_seconds is None and not known:
                yield key
            elif workload is not None and workload.admission is not None:
                if expected_end(workload, self._room.settings, self._room.now) is None:
                    yield key
            elif workload is not None and run_limit_of(workload, self._room.settings) is None:
                yield key
