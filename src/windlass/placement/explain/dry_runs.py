"""Checks whether a request would start now: places it on the decision's overlay, within quota and planned starts, and
rolls back.

`changes` checks smaller and looser requests, `relief` the same request without some running workloads. Dry runs are
counted, so that explaining a plan takes bounded time.
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
"""Dry runs for one hold."""
MAX_PODS = 2048
"""Pods placed for one hold, over all its dry runs."""
NODE_CHECKS, NODE_CHECKS_LARGE = 40_000, 4_000_000
"""Nodes looked at for one plan, over all holds: with interpreted kernels (small clusters), and with compiled ones."""

Choices = tuple[PodSetChoice, ...]


class DryRunBudget:
    """What the dry runs of one plan may cost. Counted in nodes, not in seconds, so that the answer is deterministic."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.left = NODE_CHECKS if nodes <= SMALL_CLUSTER_NODES else NODE_CHECKS_LARGE


class DryRuns:
    """The dry runs of one hold."""

    def __init__(self, state: PostDecisionState, budget: DryRunBudget | None = None) -> None:
        self.state = state
        self._budget = budget or DryRunBudget(state.overlay.snapshot.nodes.size)
        state.count_admitted()
        context = PreemptionContext(state.queues, state.now)
        self._nominator = Nominator(state.occupancy.system, context, state.placer)
        self._runs, self._pods = 0, 0

    @property
    def is_exhausted(self) -> bool:
        return self._runs >= MAX_DRY_RUNS or self._pods >= MAX_PODS or self._budget.left <= 0

    def would_start(self, piece: Workload, without: Collection[str] = (), *, ignore_plans: bool = False) -> bool:
        """Whether it would start now if the workloads in `without` had ended. `ignore_plans` ignores planned starts."""
        if self.is_exhausted:
            return False
        with self._restored():
            try:
                for key in without:
                    self.state.placer.remove(self.state.occupancy.workload(key))
                choices = self.choices(piece, without)
                return choices is not None and self._place(piece, choices, ignore_plans).ok
            except InputError:
                return False  # the changed request is not valid

    def choices(self, piece: Workload, without: Collection[str] = ()) -> Choices | None:
        """The flavors that quota allows now; None where quota doesn't suffice."""
        if not piece.queue_name:
            return tuple(PodSetChoice(pod_set.name, pod_set.count, {}) for pod_set in piece.pod_sets)
        assignment = self.assignment(piece, without)
        fits = assignment is not None and assignment.mode == FlavorAssignmentMode.FIT
        return assignment.choices if assignment is not None and fits else None

    def assignment(self, piece: Workload, without: Collection[str] = ()) -> Assignment | None:
        node = self.state.occupancy.cluster_queue_of(piece)
        if node is None:
            return None
        self.state.occupancy.set_quota_at(self.state.now, (), without)
        return self._nominator.nominate(PendingWorkload(piece, node, self.state.placer)).assignment

    def _place(self, piece: Workload, choices: Choices, ignore_plans: bool) -> PlacementResult:
        self._runs += 1
        self._budget.left -= self._budget.nodes
        self._pods += sum(choice.count for choice in choices)
        if ignore_plans:
            return self.state.placer.place(piece, choices)
        guard = PlannedStartGuard(self.state.occupancy, self.state.planned_starts, self.state.turns)
        return guard.place(piece, choices)

    @contextmanager
    def _restored(self) -> Iterator[None]:
        """Undoes everything afterwards, including rows of the score table that only the dry run needed."""
        occupancy, table = self.state.occupancy, self.state.overlay.table
        checkpoint, rows = occupancy.checkpoint(), table.rows_in_use()
        cache_sizes = occupancy.placer.cache_sizes()
        try:
            yield
        finally:
            occupancy.rollback(checkpoint)
            table.release_rows_except(rows)
            occupancy.placer.truncate_caches(cache_sizes)
