"""How a workload could be admitted: its flavors, and victims where it needs them; with fewer pods where allowed.

`cycle` nominates every head by quota alone (`nominate`, cheap), and again with placement (`nominate_with_placement`)
only where the pods found no room. `placement.timeplan` and `placement.explain` use it for what-if questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from windlass.model.queue import QueueSystem
from windlass.model.reasons import RESERVED_FOR_OTHERS
from windlass.model.workload import PodSet, Workload
from windlass.queueing import classical_preemption, fair_sharing_preemption, flavor_assigner
from windlass.queueing.flavor_assignment import Assignment, FlavorAssignmentMode, PreemptionMode
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import PlacementInterface, PlacementResult
from windlass.queueing.preemption_common import PlacementTrial, PreemptionContext, PreemptionRequest, Target
from windlass.queueing.quota_node import AdmittedWorkload, FlavorResource


class Proposal(NamedTuple):
    """The flavors a workload would get, and the victims it would need."""

    assignment: Assignment
    targets: list[Target]
    failure: PlacementResult | None = None
    """Where quota suffices: why the pods found no room."""


Attempt = Callable[[tuple[int, ...]], Proposal]


class Nominator:
    def __init__(self, system: QueueSystem, context: PreemptionContext, placement: PlacementInterface) -> None:
        self._flavors = system.flavors
        self._context = context
        self._placement = placement

    def nominate(self, pending: PendingWorkload) -> Proposal:
        return self._nominate_counts(pending, lambda counts: self._by_quota(pending, counts))

    def nominate_with_placement(self, pending: PendingWorkload) -> Proposal:
        """By quota and placement; the overlay is left as it was."""
        return self._nominate_counts(pending, lambda counts: self._by_placement(pending, counts))

    def _nominate_counts(self, pending: PendingWorkload, attempt: Attempt) -> Proposal:
        """All pods if possible; else the largest reduced counts that fit, with or without victims."""
        whole = attempt(pending.counts)
        if _is_found(whole) or not self._context.config.partial_admission:
            return whole
        deltas = reducible_counts(pending.workload)
        if not any(deltas):
            return whole
        return _search_reduced(pending.counts, deltas, attempt) or whole

    def _by_quota(self, pending: PendingWorkload, counts: tuple[int, ...]) -> Proposal:
        assignment = self._assign(pending, counts, frozenset())
        if assignment.mode != FlavorAssignmentMode.PREEMPT:
            return Proposal(assignment, [])
        return Proposal(assignment, self._preemption_targets(pending, assignment, None))

    def _by_placement(self, pending: PendingWorkload, counts: tuple[int, ...]) -> Proposal:
        excluded: frozenset[str] = frozenset()
        first_failure: Proposal | None = None
        while True:
            assignment = self._assign(pending, counts, excluded)
            if assignment.mode != FlavorAssignmentMode.FIT:
                break
            failure = self._placement_failure(pending, assignment)
            if failure is None:
                return Proposal(assignment, [])
            if first_failure is None or (_never_fits(first_failure) and failure.feasible):
                first_failure = Proposal(assignment, [], failure)
            excluded_next = excluded | self._replaceable(pending, assignment)
            # TryNextFlavor: the queue prefers another flavor to preemption, so those are tried first.
            tries_next = pending.node.spec.fungibility.when_can_preempt == "TryNextFlavor"
            if excluded_next == excluded or not (tries_next or _never_fits(Proposal(assignment, [], failure))):
                break
            excluded = excluded_next
        if first_failure is None or (_never_fits(first_failure) and assignment.waits_for_quota):
            return self._with_preemption(pending, Proposal(assignment, []))
        return self._with_preemption(pending, first_failure)

    def _with_preemption(self, pending: PendingWorkload, proposal: Proposal) -> Proposal:
        assignment, _, failure = proposal
        # Quota fits, nodes don't: victims are looked for as if quota were lacking, in all cells that it uses.
        if failure is not None:
            assignment.placement_failed = True
            mode = FlavorAssignmentMode.PREEMPT if failure.feasible else FlavorAssignmentMode.NO_FIT
            assignment.mode = mode
        if assignment.mode != FlavorAssignmentMode.PREEMPT:
            return proposal
        trial = PlacementTrial(self._placement, pending, assignment.choices, failure)
        targets = self._preemption_targets(pending, assignment, trial)
        if not targets and not assignment.placement_failed:
            # Victims that free the missing quota may not free the right nodes: try candidates of all requested cells.
            assignment.placement_failed = True
            trial.reset_throttle()
            targets = self._preemption_targets(pending, assignment, trial)
        unqueued = self._unqueued_candidates(pending) if not targets else []
        if unqueued:
            trial.reset_throttle()
            targets = self._preemption_targets(pending, assignment, trial, unqueued)
        trial.close()
        return Proposal(assignment, targets, trial.failure)

    def _unqueued_candidates(self, pending: PendingWorkload) -> list[AdmittedWorkload]:
        find = self._context.unqueued_candidates
        return find(pending.workload) if find is not None else []

    def _placement_failure(self, pending: PendingWorkload, assignment: Assignment) -> PlacementResult | None:
        before = self._placement.checkpoint()
        result = self._placement.place(pending.workload, assignment.choices)
        self._placement.rollback(before)
        return None if result.ok else result

    def _replaceable(self, pending: PendingWorkload, assignment: Assignment) -> frozenset[str]:
        """Flavors of the assignment whose group has others."""
        used = {served.flavor for part in assignment.pod_sets for served in part.flavors.values()}
        return frozenset(
            quotas.flavor
            for group in pending.node.spec.resource_groups
            if len(group.flavors) > 1
            for quotas in group.flavors
            if quotas.flavor in used
        )

    def _assign(self, pending: PendingWorkload, counts: tuple[int, ...], excluded: frozenset[str]) -> Assignment:
        context = flavor_assigner.FlavorAssignmentOptions(
            self._flavors, lambda cell, amount: self._oracle(pending, cell, amount), self._context.config, excluded
        )
        return flavor_assigner.assign_flavors(pending, counts, context)

    def _oracle(self, pending: PendingWorkload, cell: FlavorResource, amount: int) -> tuple[PreemptionMode, int]:
        """Whether preemption could free this much of one cell, and how far up the tree it would borrow then."""
        targets = self._find_targets(
            PreemptionRequest(pending, {cell: amount}, frozenset([cell]), self._context), cheapest=False
        )
        for target in targets:
            target.victim.node.remove_usage(target.victim.usage)
        # Without the victims: what they free may be nearer in the tree than what would be borrowed.
        height, _ = flavor_assigner.lowest_fitting_height(pending.node, cell, amount)
        for target in targets:
            target.victim.node.add_usage(target.victim.usage)
        if not targets:
            return PreemptionMode.NO_CANDIDATES, height
        own = any(target.victim.node is pending.node for target in targets)
        return (PreemptionMode.PREEMPT if own else PreemptionMode.RECLAIM), height

    def _preemption_targets(
        self,
        pending: PendingWorkload,
        assignment: Assignment,
        trial: PlacementTrial | None,
        unqueued: Sequence[AdmittedWorkload] = (),
    ) -> list[Target]:
        cells = assignment.needs_preemption
        request = PreemptionRequest(pending, assignment.usage, cells, self._context, trial, unqueued)
        return self._find_targets(request, cheapest=True)

    def _find_targets(self, request: PreemptionRequest, *, cheapest: bool) -> list[Target]:
        if request.pending.key in self._context.evict_nothing:
            return []
        if self._context.config.fair_sharing:
            return fair_sharing_preemption.find_victims(request, cheapest=cheapest)
        return classical_preemption.find_victims(request, cheapest=cheapest)


def _is_found(proposal: Proposal) -> bool:
    return proposal.assignment.mode == FlavorAssignmentMode.FIT or bool(proposal.targets)


def _never_fits(proposal: Proposal) -> bool:
    """Whether the nodes of its flavors could not take the pods if they were empty, so that another flavor has to."""
    failure = proposal.failure
    return failure is not None and not failure.feasible and failure.code != RESERVED_FOR_OTHERS.code


def _search_reduced(counts: tuple[int, ...], deltas: tuple[int, ...], attempt: Attempt) -> Proposal | None:
    """Binary search over the total reduction, which is spread over the pod sets in proportion (as in Kueue)."""
    total = sum(deltas)
    low, high = 0, total + 1
    found: Proposal | None = None
    found_at = -1
    while low < high:
        middle = (low + high) // 2
        reduced = tuple(count - delta * middle // total for count, delta in zip(counts, deltas, strict=True))
        proposal = attempt(reduced)
        if _is_found(proposal):
            found, found_at, high = proposal, middle, middle
        else:
            low = middle + 1
    return found if found_at == low else None


def reducible_counts(workload: Workload) -> tuple[int, ...]:
    """Per pod set, how many pods it may start without."""
    sets = workload.pod_sets
    if workload.min_pods is None:
        return tuple(_reducible(pod_set) for pod_set in sets)
    spare = max(0, sum(pod_set.count for pod_set in sets) - workload.min_pods)
    deltas = [0] * len(sets)
    for index in range(len(sets) - 1, -1, -1):  # the first set, usually the leader, is reduced last
        deltas[index] = min(spare, max(0, sets[index].count - 1))
        spare -= deltas[index]
    return tuple(deltas)


def _reducible(pod_set: PodSet) -> int:
    return 0 if pod_set.min_count is None else max(0, pod_set.count - pod_set.min_count)
