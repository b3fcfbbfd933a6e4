"""Would this request start now? Tried on the decision's own overlay, with quota and planned starts, and undone.

`changes` asks for smaller and looser requests, `relief` for what is there once others have gone. Trials are counted, so
that a plan can be explained in bounded time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from windlass.model.errors import InputError
from windlass.model.workload import Workload
from windlass.placement.explain.post_decision import SMALL_CLUSTER_NODES, PostDecisionState
from windlass.placement.timeplan.guard import PlannedStartGuard
from windlass.queueing.flavor_assignment import Assignment, FlavorAssignmentMode
from windlass.queueing.nominator import Nominator
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import PlacementResult, PodSetChoice
from windlass.queueing.preemption_common import PreemptionContext

MAX_DRY_RUNS = 32
"""Requests that are tried for one hold."""
MAX_PODS = 2048
"""Pods that are placed for one hold, all trials together."""
NODE_CHECKS, NODE_CHECKS_LARGE = 40_000, 4_000_000
"""Nodes that are looked at for one plan, all trials of all holds together, with few nodes and with many."""

Choices = tuple[PodSetChoice, ...]


class DryRunBudget:
    """What may be spent on one plan: counted in nodes looked at, never in seconds."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.left = NODE_CHECKS if nodes <= SMALL_CLUSTER_NODES else NODE_CHECKS_LARGE


class DryRuns:
    """The trials of one hold."""

    def __init__(self, state: PostDecisionState, budget: DryRunBudget | None = None) -> None:
        self.state = state
        self._budget = budget or DryRunBudget(state.overlay.snapshot.nodes.size)
        state.count_admitted()
        self._planner = Nominator(
            state.occupancy.system, PreemptionContext(state.queues, state.now), state.placer
        )
        self._trials, self._pods = 0, 0

    @property
    def is_exhausted(self) -> bool:
        return self._trials >= MAX_DRY_RUNS or self._pods >= MAX_PODS or self._budget.left <= 0

    def would_start(
        self, piece: Workload, without: Collection[str] = (), *, ignore_plans: bool = False
    ) -> bool:
        """Whether quota, planned starts and nodes would let it start now, once those named have gone; or, where that
        is asked for, if nobody's plan stood before it."""
        if self.is_exhausted:
            return False
        with self._undone():
            try:
                for key in without:
                    self.state.placer.remove(self.state.occupancy.workload(key))
                choices = self.choices(piece, without)
                return choices is not None and self._place(piece, choices, ignore_plans).ok
            except InputError:
                return False  # a request that nobody could make

    def choices(self, piece: Workload, without: Collection[str] = ()) -> Choices | None:
        """Flavors by quota as it is now; None where quota doesn't suffice."""
        if not piece.queue_name:
            return tuple(PodSetChoice(one.name, one.count, {}) for one in piece.pod_sets)
        assignment = self.assignment(piece, without)
        return (
            assignment.choices
            if assignment is not None and assignment.mode == FlavorAssignmentMode.FIT
            else None
        )

    def assignment(self, piece: Workload, without: Collection[str] = ()) -> Assignment | None:
        node = self.state.occupancy.cluster_queue_of(piece)
        if node is None:
            return None
        self.state.occupancy.set_quota_at(self.state.now, (), without)
        return self._planner.nominate(PendingWorkload(piece, node, self.state.placer)).assignment

    def _place(self, piece: Workload, choices: Choices, whoever_is_ahead: bool) -> PlacementResult:
        self._trials += 1
        self._budget.left -= self._budget.nodes
        self._pods += sum(choice.count for choice in choices)
        if whoever_is_ahead:
            return self.state.placer.place(piece, choices)
        guard = PlannedStartGuard(self.state.occupancy, self.state.planned_starts, self.state.turns)
        return guard.place_around_plans(piece, choices)

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """Everything is as it was afterwards, the rows of the table that only the trial needed included."""
        room, table = self.state.occupancy, self.state.overlay.table
        mark, rows, known = room.checkpoint(), table.rows_in_use(), room.placer.cache_sizes()
        try:
            yield
        finally:
            room.rollback(mark)
            table.release_rows_except(rows)
            room.placer.truncate_caches(known)
