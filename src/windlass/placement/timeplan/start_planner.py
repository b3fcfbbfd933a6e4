"""Plans the starts of waiting workloads, and finds those that a workload behind them delays.

`engine.decide_with_backfill` runs a pass, calls `plan`, and runs the next pass around the planned starts until none is
delayed. The result is the outcomes of the last pass, the planned starts (for `Reserve` decisions), and what each hold
says about time.
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
"""Codes of holds that don't go away when running workloads end."""


class Outlook(msgspec.Struct, frozen=True):
    """What a hold says about time."""

    start: int | None
    ahead: int
    text: str
    basis: tuple[str, ...] = ()
    """The workloads and reservations whose end the start rests on."""


class PlannedOutcomes(msgspec.Struct, frozen=True):
    outcomes: list[Outcome]
    planned_starts: list[PlannedStart]
    """Reservations first, then planned starts in order."""
    outlooks: dict[str, Outlook]
    shortfalls: list[ReservationShortfall]


class _KnownEnds(msgspec.Struct):
    """Known ends of occupants: (end, workload) by node, and workloads by end."""

    version: int
    """Version of the overlay for which it was computed."""
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
        """`workloads` are all workloads, running and waiting, in the pieces that are decided on their own."""
        occupancy.add_running(workloads)
        self._occupancy = occupancy
        self._reservations, self._shortfalls = plan_reservations(occupancy, reservations, workloads)
        self._search = EarliestStartSearch(occupancy, config)
        self._by_key = {workload.key: workload for workload in workloads}
        self._plans: dict[str, PlannedStart] = {}
        self._basis: dict[str, list[str]] = {}
        self._delayed: dict[str, PlannedStart] = {}
        self._cached_ends: _KnownEnds | None = None
        self._is_possible = self._can_plan()

    def guard(self, outcomes: Iterable[Outcome] = ()) -> PlannedStartGuard | None:
        """The guard of planned starts and reservations for the next pass; None where nothing can be planned.

        `outcomes` of the last pass say in which order the workloads were decided.
        """
        if not self._is_possible:
            return None
        decided = (outcome for outcome in outcomes if isinstance(outcome, Admitted | Held))
        turns = {outcome.workload: outcome.decided_in_cycle for outcome in decided}
        return PlannedStartGuard(self._occupancy, [*self._reservations, *self._plans.values()], turns)

    def plan(self, outcomes: Sequence[Outcome]) -> bool:
        """Plan a start for every waiting workload, in order; true if a workload behind delays one of them."""
        if self._is_possible:
            self._plan(outcomes)
        return bool(self._delayed)

    def planned_outcomes(self, outcomes: list[Outcome]) -> PlannedOutcomes:
        planned_starts = [*self._reservations, *self._plans.values()]
        return PlannedOutcomes(outcomes, planned_starts, self._outlooks(outcomes), self._shortfalls)

    def _can_plan(self) -> bool:
        settings = self._occupancy.settings
        if self._reservations:
            return True
        if not settings.history and settings.run_estimates is None:
            return any(workload.max_run_seconds is not None for workload in self._by_key.values())
        return any(run_limit_of(workload, settings) is not None for workload in self._by_key.values())

    # Planned starts

    def _plan(self, outcomes: Sequence[Outcome]) -> None:
        """Fills `_plans` and `_basis`, and `_delayed` with the planned starts that workloads behind would delay."""
        self._plans, self._basis, self._delayed = {}, {}, {}
        last_start: dict[str, int | None] = {}
        """StrictFIFO queue → the start of its last workload so far: nothing behind may start before it."""
        for hold in self._waiting(outcomes)[: self._occupancy.settings.depth]:
            workload = self._by_key[hold.workload]
            queue = self._strict_queue(workload)
            not_before = last_start.get(queue, 0) if queue else 0
            planned = (
                None
                if not_before is None
                else self._earliest_start(workload, hold.decided_in_cycle, not_before, outcomes)
            )
            if queue:
                # None also for all behind it: a strict queue does not pass a workload whose start is unknown.
                last_start[queue] = planned.start if planned is not None else None
            if planned is not None:
                self._plans[planned.key] = planned
                self._basis[planned.key] = self._basis_of(planned)

    def _earliest_start(
        self, workload: Workload, turn: int, not_before: int, outcomes: Sequence[Outcome]
    ) -> PlannedStart | None:
        others = [plan for plan in (*self._reservations, *self._plans.values()) if not plan.is_for(workload)]
        found = self._search.earliest(workload, others, turn, not_before)
        later = [
            self._by_key[outcome.workload]
            for outcome in outcomes
            if isinstance(outcome, Admitted) and outcome.decided_in_cycle > turn and not outcome.after
        ]
        if not later or (found is not None and found.start <= self._occupancy.now + 1):
            return found
        # If it would start earlier without the workloads that were decided after it, they delay it.
        keys = {behind.key for behind in later}
        undelayed = self._search.earliest(workload, others, turn, not_before, keys)
        # Some of those behind may start all the same (the exceptions of `guard`): only the others delay it.
        if undelayed is not None and (undelayed.borrows or self._reservations):
            restricted = {behind.key for behind in later if self._must_not_delay(behind, undelayed)}
            undelayed = self._search.earliest(workload, others, turn, not_before, restricted)
        if undelayed is None or (found is not None and found.start <= undelayed.start):
            return found
        self._delayed[workload.key] = undelayed
        return undelayed

    def _must_not_delay(self, workload: Workload, planned: PlannedStart) -> bool:
        """Whether the workload must not delay the planned start; the exceptions are those of `guard`."""
        if starts_after_own_reservation(planned, workload, self._reservations, self._occupancy.now):
            return False
        node = self._occupancy.cluster_queue_of(workload)
        if not planned.borrows or node is None or node.name == planned.queue:
            return True
        self._occupancy.set_quota_at(self._occupancy.now, ())
        return any(node.borrows_with(cell, 0) for cell in node.usage)

    def _waiting(self, outcomes: Sequence[Outcome]) -> list[Held]:
        """The holds that may go away when running workloads end, in the order in which they were decided."""
        held = [
            outcome
            for outcome in outcomes
            if isinstance(outcome, Held)
            and outcome.code not in PERMANENT_CODES
            and outcome.workload in self._by_key
            and not is_above_minimum(outcome.workload)
            and not self._by_key[outcome.workload].hold
            and self._by_key[outcome.workload].active
        ]
        return sorted(held, key=lambda outcome: (outcome.decided_in_cycle, outcome.workload))

    def _strict_queue(self, workload: Workload) -> str:
        node = self._occupancy.cluster_queue_of(workload)
        return node.name if node is not None and node.spec.queueing_strategy == "StrictFIFO" else ""

    def _basis_of(self, planned: PlannedStart) -> list[str]:
        """The workloads whose end makes room for it: those on its nodes or, where only quota lacked, the last to
        end."""
        known_plans = [*self._reservations, *self._plans.values()]
        others = [plan for plan in known_plans if plan.key != planned.key]
        with_end = [(plan.end, plan) for plan in others if plan.end is not None]
        ended = [(end, plan) for end, plan in with_end if end <= planned.start]
        known_ends = self._ends()
        on_nodes = {(end, plan.key) for end, plan in ended if plan.nodes & planned.nodes}
        on_nodes |= {
            (end, key)
            for node in planned.nodes
            for end, key in known_ends.by_node.get(node, ())
            if end <= planned.start
        }
        if on_nodes:
            return [key for _, key in sorted(on_nodes)]
        before = bisect_right(known_ends.ends, planned.start)
        last = max([end for end, _ in ended] + known_ends.ends[before - 1 : before], default=0)
        return sorted([plan.key for end, plan in ended if end == last] + known_ends.by_end.get(last, []))

    def _ends(self) -> _KnownEnds:
        """Computed once for all plans of one pass."""
        occupancy = self._occupancy
        if self._cached_ends is None or self._cached_ends.version != occupancy.overlay.version:
            known_ends = _KnownEnds(occupancy.overlay.version)
            for occupant in occupancy.occupants():
                if occupant.end is not None:
                    known_ends.by_end.setdefault(occupant.end, []).append(occupant.workload.key)
                    for node in occupancy.nodes_of(occupant.workload.key):
                        known_ends.by_node.setdefault(node, []).append((occupant.end, occupant.workload.key))
            known_ends.ends.extend(sorted(known_ends.by_end))
            self._cached_ends = known_ends
        return self._cached_ends

    def hold_delaying_admissions(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The outcomes with admissions turned into holds where they would still delay a plan: the last resort, where
        the passes don't converge."""
        kept: list[Outcome] = []
        for outcome in outcomes:
            delayed = [
                plan
                for plan in self._delayed.values()
                if isinstance(outcome, Admitted)
                and plan.turn < outcome.decided_in_cycle
                and not outcome.after
                and self._must_not_delay(self._by_key[outcome.workload], plan)
            ]
            end = next(
                (occupant.end for occupant in self._occupancy.occupants() if occupant.workload.key == outcome.workload),
                None,
            )
            delayed = [plan for plan in delayed if plan.overlaps(self._occupancy.now, end)]
            if delayed and isinstance(outcome, Admitted):
                self._occupancy.placer.remove(self._by_key[outcome.workload])
                code, turn = RESERVED_FOR_OTHERS.code, outcome.decided_in_cycle
                message = messages.delays_plan_message(delayed, self._occupancy)
                kept.append(Held(outcome.workload, code, message, turn))
            else:
                kept.append(outcome)
        return kept

    # Texts of holds

    def _outlooks(self, outcomes: Sequence[Outcome]) -> dict[str, Outlook]:
        unbounded: list[str] | None = None
        depth = self._occupancy.settings.depth
        counts: dict[str, int] = {}
        found: dict[str, Outlook] = {}
        for position, hold in enumerate(self._waiting(outcomes) if depth else ()):
            workload = self._by_key[hold.workload]
            node = self._occupancy.cluster_queue_of(workload)
            queue = node.name if node is not None else ""
            ahead = counts.get(queue, 0)
            counts[queue] = ahead + 1
            plan = self._plans.get(hold.workload)
            if plan is not None:
                keys = self._basis[plan.key]
                known_by = messages.StartBasis(keys, self._estimates(keys))
                text = messages.planned_start_message(plan, known_by, ahead, self._occupancy)
            elif position >= depth:
                text = messages.beyond_depth_message(depth, ahead)
            else:
                if unbounded is None:
                    unbounded = sorted({*map(workload_key, self._unbounded())})
                text = messages.no_planned_start_message(unbounded, bool(self._strict_queue(workload)), ahead)
            start = None if plan is None else plan.start
            found[hold.workload] = Outlook(start, ahead, text, tuple(self._basis.get(hold.workload, ())))
        return found

    def _estimates(self, keys: Sequence[str]) -> list[RunTimeEstimate]:
        """Estimates for those of the workloads whose end is known only from earlier runs."""
        settings, known = self._occupancy.settings, [key for key in keys if key in self._by_key]
        estimates = (run_estimate_of(self._by_key[key], settings) for key in known)
        return [estimate for estimate in estimates if estimate is not None]

    def _unbounded(self) -> Iterator[str]:
        """Placed workloads without a known end."""
        known = self._occupancy.settings.history or self._occupancy.settings.run_estimates
        for key in self._occupancy.placer.placed_workloads:
            workload = self._by_key.get(key)
            if workload is not None and workload.max_run_seconds is None and not known:
                yield key
            elif workload is not None and workload.admission is not None:
                if expected_end(workload, self._occupancy.settings, self._occupancy.now) is None:
                    yield key
            elif workload is not None and run_limit_of(workload, self._occupancy.settings) is None:
                yield key
