"""Plans the starts of waiting workloads, and finds those that a workload behind them delays.

`engine.decide_with_backfill` runs a pass, calls `plan`, and runs the next pass around the planned starts until none is
delayed. The result is the outcomes of the last pass, the planned starts (for `Reserve` decisions), and what each hold
says about time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from windlass.model.reasons import POD_REASONS, RESERVED_FOR_OTHERS
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
    BEHIND_HEAD,
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
) | {reason.code for reason in POD_REASONS if reason is not RESERVED_FOR_OTHERS}
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
        self._max_guarded: int | None = None
        """How many planned starts are guarded; None: all."""
        self._guarded: dict[str, int] = {}
        """Workload → the planned start that the last pass had to leave alone."""
        self._postponed: dict[str, int | None] = {}
        """Workload → the start that was left of a planned start which was guarded and could not be kept; None: no start
        is known. It is not planned for an earlier moment again."""
        self._is_guard_outdated = False
        """Whether the last pass held workloads for a planned start that can't be kept."""
        self._within_nominal: set[str] = set()
        """Workloads that start now within the nominal quota of their queue."""
        self._cached_ends: _KnownEnds | None = None
        self._guard: PlannedStartGuard | None = None
        self._is_possible = self._can_plan()

    def guard(self, outcomes: Iterable[Outcome] = (), first: int | None = None) -> PlannedStartGuard | None:
        """The guard of planned starts and reservations for the next pass; None where nothing can be planned.

        `outcomes` of the last pass say in which order the workloads were decided. `first`: only so many planned starts
        are guarded, and may not be delayed, from now on.
        """
        if not self._is_possible:
            return None
        self._max_guarded = first
        plans = list(self._plans.values())[:first]
        self._guarded = {plan.key: plan.start for plan in plans}
        decided = (outcome for outcome in outcomes if isinstance(outcome, Admitted | Held))
        turns = {outcome.workload: outcome.decided_in_cycle for outcome in decided}
        self._guard = PlannedStartGuard(self._occupancy, [*self._reservations, *plans], turns)
        return self._guard

    def plan(self, outcomes: Sequence[Outcome]) -> bool:
        """Plan a start for every waiting workload, in order; true if another pass is needed: a workload behind delays
        one of them, or was held for a start that can't be kept."""
        if self._is_possible:
            self._plan(outcomes)
            self._compare_with_guard(outcomes)
        return bool(self._delayed) or self._is_guard_outdated

    def planned_outcomes(self, outcomes: list[Outcome]) -> PlannedOutcomes:
        planned_starts = [*self._reservations, *self._plans.values()]
        outcomes = [self._with_current_plans(outcome) for outcome in outcomes]
        return PlannedOutcomes(outcomes, planned_starts, self._outlooks(outcomes), self._shortfalls)

    def _with_current_plans(self, outcome: Outcome) -> Outcome:
        """A hold for planned starts names them as they are now: the last pass may have found an earlier one."""
        if not isinstance(outcome, Held) or outcome.code != RESERVED_FOR_OTHERS.code or self._guard is None:
            return outcome
        plans = self._guard.plans_in_the_way.get(outcome.workload, ())
        current = [self._plans.get(plan.key, plan) for plan in plans]
        if not current:
            return outcome
        return msgspec.structs.replace(outcome, message=messages.delays_plan_message(current, self._occupancy))

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
        self._within_nominal = self._occupancy.placed_within_nominal()
        last_start: dict[str, int | None] = {}
        """StrictFIFO queue → the start of its last workload so far: nothing behind may start before it."""
        for hold in self._waiting(outcomes)[: self._occupancy.settings.depth]:
            workload = self._by_key[hold.workload]
            queue = self._strict_queue(workload)
            # Behind a head that no end of others helps, nothing of a strict queue can be planned.
            not_before = last_start.get(queue, None if hold.code == BEHIND_HEAD else 0) if queue else 0
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
        is_guarded = self._max_guarded is None or len(self._plans) < self._max_guarded
        if not later or not is_guarded or (found is not None and found.start <= self._occupancy.now + 1):
            return found
        postponed = self._postponed.get(workload.key, 0)
        if postponed is None:
            return found
        # Without them it may even start at once, with no end to wait for.
        not_before = max(not_before, postponed, self._occupancy.now + 1)
        # If it would start earlier without the workloads that were decided after it, they delay it.
        keys = {behind.key for behind in later}
        before = found.start if found is not None else None
        undelayed = self._search.earliest(workload, others, turn, not_before, keys, before)
        # Some of those behind may start all the same (the exceptions of `guard`): only the others delay it.
        if undelayed is not None:
            restricted = {behind.key for behind in later if self._must_not_delay(behind, undelayed)}
            if restricted != keys:
                undelayed = self._search.earliest(workload, others, turn, not_before, restricted, before)
        if undelayed is None:
            return found
        self._delayed[workload.key] = undelayed
        return undelayed

    def _compare_with_guard(self, outcomes: Sequence[Outcome]) -> None:
        """Notes the planned starts that were guarded and turned out later: what exempt workloads take can't be kept.
        Only where a workload is held that had to respect one of them can another pass change anything."""
        outdated: set[str] = set()
        for key, start in self._guarded.items():
            plan = self._plans.get(key)
            if (plan is None or plan.start > start) and key not in self._occupancy.placer.placed_workloads:
                self._postponed[key] = None if plan is None else plan.start
                outdated.add(key)
        respected = self._guard.respected_plans if self._guard is not None else {}
        self._is_guard_outdated = any(
            isinstance(outcome, Held)
            and outcome.code == RESERVED_FOR_OTHERS.code
            and not outdated.isdisjoint(respected.get(outcome.workload, ()))
            for outcome in outcomes
        )

    def _must_not_delay(self, workload: Workload, planned: PlannedStart) -> bool:
        """Whether the workload must not delay the planned start; the exceptions are those of `guard`."""
        if self._occupancy.could_evict(workload, planned):
            return False
        if starts_after_own_reservation(planned, workload, self._reservations, self._occupancy.now):
            return False
        node = self._occupancy.cluster_queue_of(workload)
        if not planned.borrows or node is None or node.name == planned.queue:
            return True
        return workload.key not in self._within_nominal

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
                text = messages.no_planned_start_message(unbounded, ahead)
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
