"""One round: at most one head of every queue, nominated on the same state, then taken in order.

`admit` runs rounds until nothing changes. Nominating looks at quota alone; taking an entry checks that it still fits
after those before it, finds its pods a place, and writes the result into the book. An entry that needs others to go
and finds nobody reserves its quota for the rest of the round, so that later ones don't take what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from windlass.model.workload import Workload
from windlass.queueing.admission_state import AdmissionState
from windlass.queueing.flavor_assignment import Assignment, FlavorAssignmentMode
from windlass.queueing.nominator import Nominator, Proposal
from windlass.queueing.outcome import QUOTA_INSUFFICIENT, TOPOLOGY_NOFIT
from windlass.queueing.pending_queue import PendingQueue
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import (
    HoldMessage,
    PlacementInterface,
    PlacementResult,
    PodSetChoice,
)
from windlass.queueing.preemption_common import Target
from windlass.queueing.quota_node import QuotaNode, Usage
from windlass.queueing.tournament import fair_sharing_order


class Entry:
    """A head in this round."""

    __slots__ = (
        "assignment",
        "code",
        "is_admitted",
        "is_skipped",
        "message",
        "pending",
        "queue",
        "refused_by_quota",
        "targets",
    )

    def __init__(self, pending: PendingWorkload, line: PendingQueue, proposal: Proposal) -> None:
        self.pending = pending
        self.queue = line
        self.assignment: Assignment = proposal.assignment
        self.targets: list[Target] = proposal.targets
        self.is_admitted = False
        self.is_skipped = False
        """Others came first; it may try again in the next round."""
        self.refused_by_quota = False
        """Quota refused it; it would refuse any other of the same shape."""
        self.code = self.assignment.code
        self.message: HoldMessage = self.assignment.message

    @property
    def node(self) -> QuotaNode:
        return self.pending.node

    def apply_proposal(self, proposal: Proposal) -> None:
        self.assignment, self.targets = proposal.assignment, proposal.targets
        self.code, self.message = self.assignment.code, self.assignment.message
        if proposal.failure is not None:
            self.code = proposal.failure.code or TOPOLOGY_NOFIT
            self.message = proposal.failure.message

    def skip(self, why: str) -> None:
        self.is_skipped = True
        self.code, self.message = QUOTA_INSUFFICIENT, why


PreemptUnqueued = Callable[[Workload, tuple[PodSetChoice, ...]], PlacementResult | None]
"""Places a workload that has its quota at the cost of what is in no queue; None where that doesn't help either."""


class Cycle:
    def __init__(
        self,
        nominator: Nominator,
        state: AdmissionState,
        placement: PlacementInterface,
        fair_sharing: bool,
        preempt_unqueued: PreemptUnqueued | None = None,
    ) -> None:
        self._last_resort = preempt_unqueued
        self._planner = nominator
        self._book = state
        self._site = placement
        self._fair_sharing = fair_sharing
        self._claims: list[tuple[QuotaNode, Usage]] = []

    def run(self, heads: list[tuple[PendingWorkload, PendingQueue]]) -> list[Entry]:
        self._book.begin_cycle()
        entries = [Entry(pending, line, self._planner.nominate(pending)) for pending, line in heads]
        for entry in self._order(entries):
            self._take(entry)
        for node, claim in self._claims:
            node.remove_usage(claim)
        self._claims = []
        self._book.end_cycle()
        for entry in entries:
            entry.pending.nominations += 1
            entry.pending.tried_flavors = () if entry.is_admitted else entry.assignment.tried_flavors
        return entries

    def _order(self, entries: list[Entry]) -> Iterator[Entry]:
        if self._fair_sharing:
            return fair_sharing_order(entries)
        return iter(sorted(entries, key=_turn))

    def _take(self, entry: Entry) -> None:
        if self._book.overlaps(entry.targets):
            self._look_again(entry)
        mode = entry.assignment.mode
        if mode == FlavorAssignmentMode.NO_FIT:
            entry.refused_by_quota = True
        elif mode == FlavorAssignmentMode.PREEMPT and not entry.targets:
            entry.refused_by_quota = True
            self._reserve_claim(entry)
        elif mode == FlavorAssignmentMode.DEFERRED:
            self._settle(entry)
        elif self._book.overlaps(entry.targets):
            entry.skip("Workload has overlapping preemption targets with another workload")
        elif not self._book.fits_afterwards(entry.node, entry.assignment.usage, entry.targets):
            entry.skip("Workload no longer fits after processing another workload")
        elif self._had_better_look_on(entry):
            entry.skip("Workload would have to wait for preemptions of other workloads")
        else:
            self._settle(entry)

    def _look_again(self, entry: Entry) -> None:
        """On the state after the evictions of this round, keeping to the flavors of the nomination."""
        pending = entry.pending
        pending.tried_flavors = ()
        pending.pinned_flavors = tuple(
            {name: served.flavor for name, served in part.flavors.items()}
            for part in entry.assignment.pod_sets
        )
        self._without_leaving(entry, self._planner.nominate)
        pending.pinned_flavors = ()
        if entry.assignment.mode == FlavorAssignmentMode.FIT:
            entry.assignment.mode = FlavorAssignmentMode.DEFERRED

    def _reserve_claim(self, entry: Entry) -> None:
        """Until the round ends; not where the queue can always take back what it lends."""
        if entry.node.spec.preemption.reclaim_within_cohort != "Any":
            claim = _claim(entry)
            entry.node.add_usage(claim)
            self._claims.append((entry.node, claim))

    def _had_better_look_on(self, entry: Entry) -> bool:
        """It fits only once the victims of others are gone, and there are flavors that may be free now."""
        assignment = entry.assignment
        if assignment.mode != FlavorAssignmentMode.FIT or not assignment.has_flavors_left:
            return False
        return not self._book.fits_now(entry.node, assignment.usage)

    def _settle(self, entry: Entry) -> None:
        """Finds a place for the pods, or asks once more with placement in view, or takes that of work in no queue."""
        nominated = entry.assignment
        has_quota = (
            nominated.mode in (FlavorAssignmentMode.FIT, FlavorAssignmentMode.DEFERRED) and not entry.targets
        )
        if self._place(entry):
            return
        self._without_leaving(entry, self._planner.nominate_with_placement)
        assignment = entry.assignment
        if assignment.mode == FlavorAssignmentMode.PREEMPT and not entry.targets:
            if not has_quota or not self._takes_from_unqueued(entry, nominated):
                self._reserve_claim(entry)
        elif (
            assignment.mode != FlavorAssignmentMode.NO_FIT
            and self._book.fits_afterwards(entry.node, assignment.usage, entry.targets)
            and not self._place(entry)
        ):
            entry.skip("no room for its pods after processing another workload")

    def _takes_from_unqueued(self, entry: Entry, nominated: Assignment) -> bool:
        """Quota is no question: by priority it may have the place of what holds none."""
        if self._last_resort is None:
            return False
        result = self._last_resort(entry.pending.workload, nominated.choices)
        if result is None:
            return False
        self._book.admit(entry.pending, nominated, result, [])
        entry.is_admitted = True
        return True

    def _place(self, entry: Entry) -> bool:
        before = self._site.checkpoint()
        for target in entry.targets:
            self._site.remove(target.victim.workload)
        result = self._site.place(entry.pending.workload, entry.assignment.choices)
        if not result.ok:
            self._site.rollback(before)
            entry.code, entry.message = result.code or TOPOLOGY_NOFIT, result.message
            return False
        self._book.admit(entry.pending, entry.assignment, result, entry.targets)
        entry.is_admitted = True
        return True

    def _without_leaving(self, entry: Entry, plan: Callable[[PendingWorkload], Proposal]) -> None:
        leaving = list(self._book.current_victims.values())
        for running in leaving:
            running.remove_from_tree()
        entry.apply_proposal(plan(entry.pending))
        for running in leaving:
            running.add_to_tree()


def _turn(entry: Entry) -> tuple[object, ...]:
    """For whom others went first; then who borrows the least."""
    return (not entry.pending.workload.nominated, entry.assignment.borrowing_level, entry.pending.sort_key)


def _claim(entry: Entry) -> Usage:
    """What it may call its own of what it asks for: up to nominal quota, or up to the borrowing limit."""
    node, claim = entry.node, {}
    for cell, amount in entry.assignment.usage.items():
        quota, used = node.quota(cell), node.usage.get(cell, 0)
        if not entry.assignment.borrowing_level:
            amount = max(0, min(amount, quota.nominal - used))
        elif quota.borrowing_limit is not None:
            amount = max(0, min(amount, quota.nominal + quota.borrowing_limit - used))
        claim[cell] = amount
    return claim
