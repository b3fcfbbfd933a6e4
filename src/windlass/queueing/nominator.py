"""How a workload could be admitted: flavors, and victims where it needs them; with fewer pods where that is allowed.

`cycle` nominates with quota alone (`nominate`, cheap, for every head) and asks again with placement (`with_room`)
only for those whose pods found no room.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from windlass.model.queue import QueueSystem
from windlass.model.workload import PodSet, Workload
from windlass.queueing import classical_preemption, fair_sharing_preemption, flavor_assigner
from windlass.queueing.flavor_assignment import Assignment, FlavorAssignmentMode, PreemptionMode
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import PlacementInterface, PlacementResult
from windlass.queueing.preemption_common import PlacementTrial, PreemptionContext, PreemptionRequest, Target
from windlass.queueing.quota_node import FlavorResource


class Proposal(NamedTuple):
    """What a workload would take and who would have to go."""

    assignment: Assignment
    targets: list[Target]
    failure: PlacementResult | None = None
    """Where quota would do, why the pods found no room."""


Attempt = Callable[[tuple[int, ...]], Proposal]


class Nominator:
    def __init__(self, system: QueueSystem, rules: PreemptionContext, placement: PlacementInterface) -> None:
        self._flavors = system.flavors
        self._rules = rules
        self._site = placement

    def nominate(self, pending: PendingWorkload) -> Proposal:
        """By quota alone."""
        return self._search(pending, lambda counts: self._by_quota(pending, counts))

    def nominate_with_placement(self, pending: PendingWorkload) -> Proposal:
        """By quota and placement; the site is left as it was."""
        return self._search(pending, lambda counts: self._by_placement(pending, counts))

    def _search(self, pending: PendingWorkload, attempt: Attempt) -> Proposal:
        """All pods if possible; else as many as fit, with or without victims."""
        whole = attempt(pending.counts)
        if _is_found(whole) or not self._rules.config.partial_admission:
            return whole
        deltas = reducible_counts(pending.workload)
        if not any(deltas):
            return whole
        return _largest_part(pending.counts, deltas, attempt) or whole

    def _by_quota(self, pending: PendingWorkload, counts: tuple[int, ...]) -> Proposal:
        assignment = self._assign(pending, counts, frozenset())
        if assignment.mode != FlavorAssignmentMode.PREEMPT:
            return Proposal(assignment, [])
        return Proposal(assignment, self._victims(pending, assignment, None))

    def _by_placement(self, pending: PendingWorkload, counts: tuple[int, ...]) -> Proposal:
        banned: frozenset[str] = frozenset()
        first: Proposal | None = None
        while True:
            assignment = self._assign(pending, counts, banned)
            if assignment.mode != FlavorAssignmentMode.FIT:
                break
            failure = self._why_no_room(pending, assignment)
            if failure is None:
                return Proposal(assignment, [])
            first = first or Proposal(assignment, [], failure)
            more = banned | self._replaceable(pending, assignment)
            # The queue prefers the next flavor to preemption: where it has one, look there first.
            if more == banned or pending.node.spec.fungibility.when_can_preempt != "TryNextFlavor":
                break
            banned = more
        return self._make_room(pending, first or Proposal(assignment, []))

    def _make_room(self, pending: PendingWorkload, proposal: Proposal) -> Proposal:
        assignment, _, failure = proposal
        if failure is not None:
            assignment.placement_failed = True
            assignment.mode = (
                FlavorAssignmentMode.PREEMPT if failure.feasible else FlavorAssignmentMode.NO_FIT
            )
        if assignment.mode != FlavorAssignmentMode.PREEMPT:
            return proposal
        overlay = PlacementTrial(self._site, pending, assignment.choices, failure)
        targets = self._victims(pending, assignment, overlay)
        if not targets and not assignment.placement_failed:
            # Who has freed what quota lacks may be no help: what else the pods ask for can lack room as well.
            assignment.placement_failed = True
            overlay.reset_throttle()
            targets = self._victims(pending, assignment, overlay)
        overlay.close()
        return Proposal(assignment, targets, overlay.failure)

    def _why_no_room(self, pending: PendingWorkload, assignment: Assignment) -> PlacementResult | None:
        before = self._site.checkpoint()
        result = self._site.place(pending.workload, assignment.choices)
        self._site.rollback(before)
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

    def _assign(
        self, pending: PendingWorkload, counts: tuple[int, ...], banned: frozenset[str]
    ) -> Assignment:
        config = self._rules.config
        rules = flavor_assigner.FlavorAssignmentOptions(
            self._flavors,
            lambda cell, amount: self._oracle(pending, cell, amount),
            fair_sharing=config.fair_sharing,
            ignore_undeclared=config.ignore_undeclared,
            banned=banned,
        )
        return flavor_assigner.assign_flavors(pending, counts, rules)

    def _oracle(
        self, pending: PendingWorkload, cell: FlavorResource, amount: int
    ) -> tuple[PreemptionMode, int]:
        """Would preemption free this much of one cell, and from how far up would the quota come then?"""
        targets = self._find(
            PreemptionRequest(pending, {cell: amount}, frozenset([cell]), self._rules), cheapest=False
        )
        for target in targets:
            target.victim.node.remove_usage(target.victim.usage)
        height, _ = flavor_assigner.lowest_fitting_height(pending.node, cell, amount)
        for target in targets:
            target.victim.node.add_usage(target.victim.usage)
        if not targets:
            return PreemptionMode.NO_CANDIDATES, height
        own = any(target.victim.node is pending.node for target in targets)
        return (PreemptionMode.PREEMPT if own else PreemptionMode.RECLAIM), height

    def _victims(
        self, pending: PendingWorkload, assignment: Assignment, overlay: PlacementTrial | None
    ) -> list[Target]:
        ask = PreemptionRequest(pending, assignment.usage, assignment.needs_preemption, self._rules, overlay)
        return self._find(ask, cheapest=True)

    def _find(self, ask: PreemptionRequest, *, cheapest: bool) -> list[Target]:
        if self._rules.config.fair_sharing:
            return fair_sharing_preemption.find_victims(ask)
        return classical_preemption.find_victims(ask, cheapest=cheapest)


def _is_found(proposal: Proposal) -> bool:
    return proposal.assignment.mode == FlavorAssignmentMode.FIT or bool(proposal.targets)


def _largest_part(counts: tuple[int, ...], deltas: tuple[int, ...], attempt: Attempt) -> Proposal | None:
    """Binary search over how far all sets are reduced, in proportion."""
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
        return tuple(_spare(pod_set) for pod_set in sets)
    spare = max(0, sum(pod_set.count for pod_set in sets) - workload.min_pods)
    deltas = [0] * len(sets)
    for index in range(len(sets) - 1, -1, -1):  # the first set leads: it gives last, and never its last pod
        deltas[index] = min(spare, max(0, sets[index].count - 1))
        spare -= deltas[index]
    return tuple(deltas)


def _spare(pod_set: PodSet) -> int:
    return 0 if pod_set.min_count is None else max(0, pod_set.count - pod_set.min_count)
