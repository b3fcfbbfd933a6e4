"""Who may be a victim by nominal quota and priority, in a tree of cohorts.

`preemption` walks the result. Three classes: those over whom the asking queue has an advantage, since it is closer to
the quota that they borrow; those whom only priority makes victims; those of its own queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from windlass.queueing.outcome import (
    IN_CLUSTER_QUEUE,
    IN_COHORT_RECLAIM_WHILE_BORROWING,
    IN_COHORT_RECLAMATION,
)
from windlass.queueing.preemption_common import PreemptionRequest, Target, sort_candidates
from windlass.queueing.quota_node import AdmittedWorkload, QuotaNode, Usage

VictimClass = tuple[bool, int, int]
"""Not on its way out yet, the place of its group, and its priority: who is lower goes first."""


class PreemptionVariant(Enum):
    """On what ground a candidate may go; the value is Kueue's reason."""

    WITHIN_QUEUE = IN_CLUSTER_QUEUE
    BY_POSITION = IN_COHORT_RECLAMATION
    WHILE_BORROWING = IN_COHORT_RECLAIM_WHILE_BORROWING
    WITHOUT_BORROWING = "only if the asking queue ends up within its own quota"

    @property
    def reason(self) -> str:
        return IN_COHORT_RECLAMATION if self is PreemptionVariant.WITHOUT_BORROWING else self.value


class Candidates:
    """All candidates in the order in which they are tried."""

    def __init__(self, request: PreemptionRequest) -> None:
        self._ask = request
        self._found: dict[str, tuple[PreemptionVariant, QuotaNode | None]] = {}
        own = self._of_queue(
            request.node, request.node.spec.preemption.within_cluster_queue, None, by_position=False
        )
        by_position: list[AdmittedWorkload] = []
        by_priority: list[AdmittedWorkload] = []
        self._climb(by_position, by_priority)
        self.any_hierarchical = bool(by_position)
        self.any_from_other_queues = bool(by_position or by_priority)
        classes = [sort_candidates(members, request) for members in (by_position, by_priority, own)]
        self._classes = {
            running.key: (not running.is_evicting, number, running.priority)
            for number, members in enumerate(classes)
            for running in members
        }
        self.ordered = [running for members in classes for running in members if running.is_evicting]
        self.ordered += [running for members in classes for running in members if not running.is_evicting]

    def eviction_cost(self, targets: Sequence[Target]) -> list[tuple[VictimClass, list[int]]]:
        """What a set of victims loses, the class that should go last first; lists compare as sets do."""
        sums: dict[VictimClass, list[int]] = {}
        for target in targets:
            running = target.victim
            total = sums.setdefault(self._classes[running.key], [0, 0, 0])
            for part, amount in enumerate((*running.eviction_cost, running.pod_count)):
                total[part] += amount
        return [(key, sums[key]) for key in sorted(sums, reverse=True)]

    def reason(self, running: AdmittedWorkload) -> str:
        return self._found[running.key][0].reason

    def is_eligible(self, running: AdmittedWorkload, allow_borrowing: bool) -> bool:
        """By what it is, whoever else has gone before."""
        return not (allow_borrowing and self._found[running.key][0] is PreemptionVariant.WITHOUT_BORROWING)

    def is_valid(self, running: AdmittedWorkload, allow_borrowing: bool) -> bool:
        """Earlier removals may have brought its queue, or a cohort below the common one, back within quota."""
        if running.node is self._ask.node:
            return True
        if not self.is_eligible(running, allow_borrowing):
            return False
        common = self._found[running.key][1]
        contested = self._ask.needs_preemption
        if running.node.within_nominal(contested):
            return False
        for above in running.node.ancestors():
            if above is common:
                break
            if above.within_nominal(contested):
                return False
        return True

    def _climb(self, by_position: list[AdmittedWorkload], by_priority: list[AdmittedWorkload]) -> None:
        """Subtree by subtree towards the root; the first that covers the request gives the advantage from there on."""
        node = self._ask.node
        if node.spec.preemption.reclaim_within_cohort == "Never":
            return
        advantage, left = _fits_in_quota(node, self._ask.usage)
        done: QuotaNode | None = None
        for common in node.ancestors():
            members = by_position if advantage else by_priority
            self._descend(common, common, done, members, advantage)
            covered, left = _fits_in_quota(common, left)
            advantage = advantage or covered
            done = common

    def _descend(
        self,
        cohort: QuotaNode,
        common: QuotaNode,
        done: QuotaNode | None,
        members: list[AdmittedWorkload],
        advantage: bool,
    ) -> None:
        contested = self._ask.needs_preemption
        for child in cohort.cohorts:
            if child is not done and not child.within_nominal(contested):
                self._descend(child, common, done, members, advantage)
        policy = self._ask.node.spec.preemption.reclaim_within_cohort
        for queue in cohort.queues:
            if queue is not self._ask.node and not queue.within_nominal(contested):
                members += self._of_queue(queue, policy, common, by_position=advantage)

    def _of_queue(
        self, queue: QuotaNode, policy: str, common: QuotaNode | None, *, by_position: bool
    ) -> list[AdmittedWorkload]:
        members = self._ask.eviction_candidates(queue, policy)
        for running in members:
            self._found[running.key] = (self._variant(running, by_position), common)
        return members

    def _variant(self, running: AdmittedWorkload, by_position: bool) -> PreemptionVariant:
        ask = self._ask
        if running.node is ask.node:
            return PreemptionVariant.WITHIN_QUEUE
        if by_position:
            return PreemptionVariant.BY_POSITION
        policy = ask.node.spec.preemption
        threshold = policy.max_priority_threshold
        above = threshold is not None and running.priority > threshold
        if policy.borrow_within_cohort == "Never" or above or running.priority >= ask.pending.priority:
            return PreemptionVariant.WITHOUT_BORROWING
        return PreemptionVariant.WHILE_BORROWING


def _fits_in_quota(node: QuotaNode, requests: Usage) -> tuple[bool, Usage]:
    """Whether the subtree's own quota covers the requests, and what of them shows in its parent."""
    fits = not any(node.borrows_with(cell, amount) for cell, amount in requests.items())
    return fits, {cell: max(0, amount - node.local_available(cell)) for cell, amount in requests.items()}
