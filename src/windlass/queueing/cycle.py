"""One admission cycle: at most one head of every queue, all nominated on the same state, then processed in order.

`admit` runs cycles until nothing changes. Nomination looks at quota alone. Processing checks that an entry still fits
after the entries before it, places its pods, and writes the result to the admission state. An entry that needs
preemption and finds no victims reserves its quota until the cycle ends, so that later entries don't take it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from windlass.queueing.admission_state import AdmissionState
from windlass.queueing.flavor_assignment import Assignment, FlavorAssignmentMode
from windlass.queueing.nominator import Nominator, Proposal
from windlass.queueing.outcome import ADMISSION_DEFERRED, QUOTA_INSUFFICIENT, TOPOLOGY_NOFIT
from windlass.queueing.pending_queue import PendingQueue
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import HoldMessage, PlacementInterface
from windlass.queueing.preemption_common import Target
from windlass.queueing.quota_node import QuotaNode, Usage
from windlass.queueing.tournament import fair_sharing_order

WAITS_FOR_ADMITTED = (
    "waits until the pods of the workload admitted before it are ready (waitForPodsReady.blockAdmission)"
)


class Entry:
    """The head of a queue in this cycle, with its nomination."""

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

    def __init__(self, pending: PendingWorkload, queue: PendingQueue, proposal: Proposal) -> None:
        self.pending = pending
        self.queue = queue
        self.assignment: Assignment = proposal.assignment
        self.targets: list[Target] = proposal.targets
        self.is_admitted = False
        self.is_skipped = False
        """Entries before it took what it needs; it may try again in the next cycle."""
        self.refused_by_quota = False
        """Quota refused it, and so would refuse any other workload of the same shape."""
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

    def skip(self, why: str, code: str = QUOTA_INSUFFICIENT) -> None:
        self.is_skipped = True
        self.code, self.message = code, why


class Cycle:
    def __init__(
        self,
        nominator: Nominator,
        state: AdmissionState,
        placement: PlacementInterface,
        fair_sharing: bool,
    ) -> None:
        self._nominator = nominator
        self._state = state
        self._placement = placement
        self._fair_sharing = fair_sharing
        self._reservations: list[tuple[QuotaNode, Usage]] = []

    def run(self, heads: list[tuple[PendingWorkload, PendingQueue]]) -> list[Entry]:
        self._state.begin_cycle()
        entries = [Entry(pending, queue, self._nominator.nominate(pending)) for pending, queue in heads]
        for entry in self._order(entries):
            self._process(entry)
        # Reservations hold for this cycle only; a head that stays blocked reserves again in the next.
        for node, reserved in self._reservations:
            node.remove_usage(reserved)
        self._reservations = []
        self._state.end_cycle()
        for entry in entries:
            entry.pending.nominations += 1
            entry.pending.tried_flavors = () if entry.is_admitted else entry.assignment.tried_flavors
        return entries

    def _order(self, entries: list[Entry]) -> Iterator[Entry]:
        if self._fair_sharing:
            return fair_sharing_order(entries)
        return iter(sorted(entries, key=_entry_sort_key))

    def _process(self, entry: Entry) -> None:
        if self._state.is_closed:
            entry.skip(WAITS_FOR_ADMITTED, ADMISSION_DEFERRED)
            return
        if self._state.overlaps(entry.targets):
            self._renominate(entry)
        mode = entry.assignment.mode
        if mode == FlavorAssignmentMode.NO_FIT:
            entry.refused_by_quota = True
        elif mode == FlavorAssignmentMode.PREEMPT and not entry.targets:
            entry.refused_by_quota = True
            self._reserve_quota(entry)
        elif mode == FlavorAssignmentMode.DEFERRED:
            self._admit_or_preempt(entry)
        # Also after the second nomination, which had the other entries' victims off the tree.
        elif self._state.overlaps(entry.targets):
            entry.skip("Workload has overlapping preemption targets with another workload")
        elif not self._state.fits_afterwards(entry.node, entry.assignment.usage, entry.targets):
            entry.skip("Workload no longer fits after processing another workload")
        elif self._should_try_next_flavor(entry):
            entry.skip("Workload would have to wait for preemptions of other workloads")
        else:
            self._admit_or_preempt(entry)

    def _renominate(self, entry: Entry) -> None:
        """Nominates again on the state after this cycle's evictions, with the flavors of the first nomination."""
        pending = entry.pending
        pending.tried_flavors = ()
        pending.pinned_flavors = tuple(
            {name: served.flavor for name, served in part.flavors.items()} for part in entry.assignment.pod_sets
        )
        self._nominate_without_victims(entry, self._nominator.nominate)
        pending.pinned_flavors = ()
        if entry.assignment.mode == FlavorAssignmentMode.FIT:
            entry.assignment.mode = FlavorAssignmentMode.DEFERRED

    def _reserve_quota(self, entry: Entry) -> None:
        """Until the cycle ends. A queue that reclaims from any priority can always take back what it lends."""
        if entry.node.spec.preemption.reclaim_within_cohort != "Any":
            reserved = _quota_to_reserve(entry)
            entry.node.add_usage(reserved)
            self._reservations.append((entry.node, reserved))

    def _should_try_next_flavor(self, entry: Entry) -> bool:
        """Whether it fits only once other workloads' victims have ended, and flavors are left that may be free now."""
        assignment = entry.assignment
        if assignment.mode != FlavorAssignmentMode.FIT or not assignment.has_flavors_left:
            return False
        return not self._state.fits_now(entry.node, assignment.usage)

    def _admit_or_preempt(self, entry: Entry) -> None:
        """Places the pods; else nominates again with placement, which may take victims that are in no queue."""
        if self._place(entry):
            return
        self._nominate_without_victims(entry, self._nominator.nominate_with_placement)
        assignment = entry.assignment
        if assignment.mode == FlavorAssignmentMode.PREEMPT and not entry.targets:
            self._reserve_quota(entry)
        elif (
            assignment.mode != FlavorAssignmentMode.NO_FIT
            and self._state.fits_afterwards(entry.node, assignment.usage, entry.targets)
            and not self._place(entry)
        ):
            entry.is_skipped = True  # quota suffices: code and message stay those of the nodes

    def _place(self, entry: Entry) -> bool:
        before = self._placement.checkpoint()
        for target in entry.targets:
            self._placement.remove(target.victim.workload)
        result = self._placement.place(entry.pending.workload, entry.assignment.choices)
        if not result.ok:
            self._placement.rollback(before)
            entry.code, entry.message = result.code or TOPOLOGY_NOFIT, result.message
            return False
        self._state.admit(entry.pending, entry.assignment, result, entry.targets)
        entry.is_admitted = True
        return True

    def _nominate_without_victims(self, entry: Entry, find: Callable[[PendingWorkload], Proposal]) -> None:
        """Without reservations either, as in the first nomination: what a blocked head reserves would count in its
        queue's share, and workloads of that queue would be evicted for a share that it does not have. Whether the entry
        fits beside the reservations is checked afterwards."""
        victims = list(self._state.current_victims.values())
        for running in victims:
            running.remove_from_tree()
        for node, reserved in self._reservations:
            node.remove_usage(reserved)
        entry.apply_proposal(find(entry.pending))
        for node, reserved in self._reservations:
            node.add_usage(reserved)
        for running in victims:
            running.add_to_tree()


def _entry_sort_key(entry: Entry) -> tuple[object, ...]:
    """Workloads for which others were evicted, then by how far up the tree they borrow, the priority of their queues,
    and in queue order."""
    return (
        not entry.pending.workload.nominated,
        entry.assignment.borrowing_level,
        -entry.node.spec.priority,
        entry.pending.sort_key,
    )


def _quota_to_reserve(entry: Entry) -> Usage:
    """What it asks for, up to nominal quota; for one that borrows, up to the borrowing limit."""
    node, reserved = entry.node, {}
    for cell, amount in entry.assignment.usage.items():
        quota, used = node.quota(cell), node.usage.get(cell, 0)
        if not entry.assignment.borrowing_level:
            amount = max(0, min(amount, quota.nominal - used))
        elif quota.borrowing_limit is not None:
            amount = max(0, min(amount, quota.nominal + quota.borrowing_limit - used))
        reserved[cell] = amount
    return reserved
