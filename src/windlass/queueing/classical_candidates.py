"""Preemption candidates by nominal quota and priority, in a tree of cohorts (Kueue's hierarchical candidates).

`classical_preemption` walks the result. Four classes: workloads over which the preemptor's queue has an advantage,
since it is closer to the quota that they borrow; candidates by priority alone; workloads of its own queue; and what is
in no queue, where the caller allows that. What is leaving already comes first, and costs nothing.
"""

from __future__ import annotations

from enum import Enum

from windlass.queueing.outcome import (
    IN_CLUSTER_QUEUE,
    IN_COHORT_RECLAIM_WHILE_BORROWING,
    IN_COHORT_RECLAMATION,
    PRIORITY,
)
from windlass.queueing.preemption_common import PreemptionRequest, sort_candidates
from windlass.queueing.quota_node import AdmittedWorkload, QuotaNode, Usage

VictimClass = tuple[bool, int, int]
"""Not evicting yet, number of its candidate class, priority: lower ones are evicted first."""


class PreemptionVariant(Enum):
    """Why a workload is a candidate; the value is Kueue's reason."""

    WITHIN_QUEUE = IN_CLUSTER_QUEUE
    BY_POSITION = IN_COHORT_RECLAMATION
    WHILE_BORROWING = IN_COHORT_RECLAIM_WHILE_BORROWING
    WITHOUT_BORROWING = "only if the preemptor's queue stays within its own quota"
    UNQUEUED = PRIORITY
    LEAVING = "it is evicted already, for whatever reason"

    @property
    def reason(self) -> str:
        has_none = self in (PreemptionVariant.WITHOUT_BORROWING, PreemptionVariant.LEAVING)
        return IN_COHORT_RECLAMATION if has_none else self.value


WHATEVER_IS_REMOVED = (PreemptionVariant.UNQUEUED, PreemptionVariant.LEAVING)
"""Their quota has nothing to do with the removals before them."""


class Candidates:
    """All candidates (`ordered`), in the order in which they are tried."""

    def __init__(self, request: PreemptionRequest) -> None:
        self._request = request
        self._variants: dict[str, tuple[PreemptionVariant, QuotaNode | None]] = {}
        policy = request.node.spec.preemption.within_cluster_queue
        own = self._candidates_in(request.node, policy, None, by_position=False)
        by_position: list[AdmittedWorkload] = []
        by_priority: list[AdmittedWorkload] = []
        self._climb(by_position, by_priority)
        self.any_hierarchical = bool(by_position)
        self.any_from_other_queues = bool(by_position or by_priority)
        unqueued = list(request.unqueued)
        self._variants |= {running.key: (PreemptionVariant.UNQUEUED, None) for running in unqueued}
        leaving = request.leaving()
        self._variants |= {running.key: (PreemptionVariant.LEAVING, None) for running in leaving}
        classes = [sort_candidates(members, request) for members in (by_position, by_priority, own, unqueued, leaving)]
        self._classes = {
            running.key: (not running.is_evicting, number, running.priority)
            for number, members in enumerate(classes)
            for running in members
        }
        # Those that are terminating anyway first, over all classes: they cost nothing.
        self.ordered = [running for members in classes for running in members if running.is_evicting]
        self.ordered += [running for members in classes for running in members if not running.is_evicting]

    def class_of(self, running: AdmittedWorkload) -> VictimClass:
        return self._classes[running.key]

    def reason(self, running: AdmittedWorkload) -> str:
        return self._variants[running.key][0].reason

    def is_eligible(self, running: AdmittedWorkload, allow_borrowing: bool) -> bool:
        """Whether it may be evicted, regardless of which victims were removed before it."""
        return not (allow_borrowing and self._variants[running.key][0] is PreemptionVariant.WITHOUT_BORROWING)

    def is_valid(self, running: AdmittedWorkload, allow_borrowing: bool) -> bool:
        """Whether its queue and the cohorts below the common one still borrow, after the removals before it."""
        if running.node is self._request.node or self._variants[running.key][0] in WHATEVER_IS_REMOVED:
            return True
        if not self.is_eligible(running, allow_borrowing):
            return False
        common = self._variants[running.key][1]
        needs_preemption = self._request.needs_preemption
        # The removals before it may have brought its queue back to its own quota, which is not to be reclaimed.
        if running.node.within_nominal(needs_preemption):
            return False
        for above in running.node.ancestors():
            if above is common:
                break
            if above.within_nominal(needs_preemption):
                return False
        return True

    def _climb(self, by_position: list[AdmittedWorkload], by_priority: list[AdmittedWorkload]) -> None:
        """Subtree by subtree towards the root; the first whose quota covers the request gives an advantage upwards."""
        node = self._request.node
        if node.spec.preemption.reclaim_within_cohort == "Never":
            return
        has_advantage, remaining = _fits_in_quota(node, self._request.usage)
        visited: QuotaNode | None = None
        for common in node.ancestors():
            members = by_position if has_advantage else by_priority
            self._collect_below(common, common, visited, members, has_advantage)
            covered, remaining = _fits_in_quota(common, remaining)
            has_advantage = has_advantage or covered
            visited = common

    def _collect_below(
        self,
        cohort: QuotaNode,
        common: QuotaNode,
        visited: QuotaNode | None,
        members: list[AdmittedWorkload],
        has_advantage: bool,
    ) -> None:
        needs_preemption = self._request.needs_preemption
        for child in cohort.cohorts:
            # The subtree that the climb comes from was collected one level below.
            if child is not visited and not child.within_nominal(needs_preemption):
                self._collect_below(child, common, visited, members, has_advantage)
        policy = self._request.node.spec.preemption.reclaim_within_cohort
        for queue in cohort.queues:
            if queue is not self._request.node and not queue.within_nominal(needs_preemption):
                members += self._candidates_in(queue, policy, common, by_position=has_advantage)

    def _candidates_in(
        self, queue: QuotaNode, policy: str, common: QuotaNode | None, *, by_position: bool
    ) -> list[AdmittedWorkload]:
        members = self._request.eviction_candidates(queue, policy)
        for running in members:
            self._variants[running.key] = (self._variant(running, by_position), common)
        return members

    def _variant(self, running: AdmittedWorkload, by_position: bool) -> PreemptionVariant:
        request = self._request
        if running.node is request.node:
            return PreemptionVariant.WITHIN_QUEUE
        if by_position:
            return PreemptionVariant.BY_POSITION
        policy = request.node.spec.preemption
        threshold = policy.max_priority_threshold
        above = threshold is not None and running.priority > threshold
        if policy.borrow_within_cohort == "Never" or above or running.priority >= request.pending.priority:
            return PreemptionVariant.WITHOUT_BORROWING
        return PreemptionVariant.WHILE_BORROWING


def _fits_in_quota(node: QuotaNode, requests: Usage) -> tuple[bool, Usage]:
    """Whether the subtree's own quota covers the requests, and how much of them counts in its parent."""
    fits = not any(node.borrows_with(cell, amount) for cell, amount in requests.items())
    return fits, {cell: max(0, amount - node.local_available(cell)) for cell, amount in requests.items()}
