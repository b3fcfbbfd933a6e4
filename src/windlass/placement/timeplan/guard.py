"""Keeps workloads from delaying planned starts and from using other workloads' reservations.

`placement.workload_placer` asks the guard before it places a workload, where starts are planned. A planned start
restricts every workload that was decided after its own, also those for which others would be evicted: once the victims
are gone it would have to wait for the planned start, and they would come back. A reservation restricts all workloads
that it isn't for. Two exceptions: a planned start on borrowed quota doesn't delay a workload of another queue that
stays within its nominal quota; and no planned start delays a workload that could evict it.
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

    def __init__(self, occupancy: Occupancy, planned_starts: Sequence[PlannedStart], turns: Mapping[str, int]) -> None:
        self._occupancy, self._placer = occupancy, occupancy.placer
        self._planned_starts, self._turns = planned_starts, turns
        self._refused: dict[RequestKind, tuple[PlacementResult, list[PlannedStart]]] = {}
        """Refusals by kind of request, and the plans in the way. They hold until a workload is removed: placing more
        only takes capacity."""
        self.plans_in_the_way: dict[str, list[PlannedStart]] = {}
        """Workloads that were refused for plans."""
        self.respected_plans: dict[str, frozenset[str]] = {}
        """Workloads that were refused → keys of all plans that they had to respect. Moving others changes nothing."""

    def on_workload_removed(self) -> None:
        self._refused.clear()

    def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult:
        plans = self._plans_to_respect(workload, choices)
        if not plans:
            return self._record(workload, choices, self._placer.place_ignoring_plans(workload, choices))
        kind = self._request_kind(workload, choices)
        self.respected_plans[workload.key] = frozenset(planned.key for planned in plans)
        if kind in self._refused:
            refused, self.plans_in_the_way[workload.key] = self._refused[kind]
            return refused
        result = self._occupancy.place_without_conflict(workload, choices, plans)
        if result.ok:
            return self._record(workload, choices, result)
        checkpoint = self._placer.checkpoint()
        # Only to tell which message is true: that plans are in the way, or that there is no room at all.
        unrestricted = self._placer.place_ignoring_plans(workload, choices)
        self._placer.rollback(checkpoint)
        if not unrestricted.ok:
            return unrestricted
        plans = self.plans_in_the_way[workload.key] = self._in_the_way(workload, plans, unrestricted)
        message = delays_plan_message(plans, self._occupancy)
        # `feasible=False` keeps preemption from evicting anything: plans are in the way, not running workloads.
        refused = PlacementResult(ok=False, message=message, code=RESERVED_FOR_OTHERS.code, feasible=False)
        self._refused[kind] = (refused, plans)
        return refused

    def _in_the_way(
        self, workload: Workload, plans: list[PlannedStart], unrestricted: PlacementResult
    ) -> list[PlannedStart]:
        """The plans on the nodes that it would get now; else those that share its quota; else all."""
        rows = self._occupancy.overlay.snapshot.nodes.index
        nodes = {rows[name] for by_node in unrestricted.nodes for name in by_node}
        on_nodes = [planned for planned in plans if planned.nodes & nodes]
        node = self._occupancy.cluster_queue_of(workload)
        cohort = {node.name, *(queue.name for queue in node.root.subtree_queues())} if node is not None else set()
        return on_nodes or [planned for planned in plans if planned.queue in cohort] or plans

    def _request_kind(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> RequestKind:
        """Equal for workloads that are refused alike, provided that the later one is restricted at least as much."""
        pod_sets, _, _ = self._placer.pending_pod_sets(workload, choices)
        shapes = tuple((pod_set.shape.key, pod_set.count, pod_set.topology) for pod_set in pod_sets)
        reservations = tuple(
            planned.key
            for planned in self._planned_starts
            if planned.reserved_for is not None and planned.is_for(workload)
        )
        return (
            workload.queue_name,
            workload.namespace,
            workload.priority,
            workload.preemption_policy,
            run_limit_of(workload, self._occupancy.settings),
            shapes,
            reservations,
        )

    def _record(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], result: PlacementResult
    ) -> PlacementResult:
        if result.ok:
            self._occupancy.add_placed(workload, choices)
        return result

    def _plans_to_respect(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> list[PlannedStart]:
        now, settings = self._occupancy.now, self._occupancy.settings
        limit = run_limit_of(workload, settings)
        end = None if limit is None else now + limit
        turn = self._turns.get(workload.key, LAST_TURN)
        plans = [
            planned
            for planned in self._planned_starts
            if planned.turn < turn
            and planned.overlaps(now, end)
            and planned.applies_at(now, settings.reservation_lead)
            and not planned.is_for(workload)
            # One that starts in this pass takes what was planned for it; it must not be counted twice.
            and planned.key not in self._placer.placed_workloads
            and not self._occupancy.could_evict(workload, planned)
        ]
        plans = [
            planned
            for planned in plans
            if not starts_after_own_reservation(planned, workload, self._planned_starts, now)
        ]
        if any(planned.borrows for planned in plans) and not self._borrows(workload, choices):
            node = self._occupancy.cluster_queue_of(workload)
            own_queue = node.name if node is not None else ""
            plans = [planned for planned in plans if not planned.borrows or planned.queue == own_queue]
        return plans

    def _borrows(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> bool:
        node = self._occupancy.cluster_queue_of(workload)
        if node is None:
            return True
        self._occupancy.set_quota_at(self._occupancy.now, ())
        usage = assignment_usage(workload, choices, node, self._placer)
        return any(node.borrows_with(cell, amount) for cell, amount in usage.items())
