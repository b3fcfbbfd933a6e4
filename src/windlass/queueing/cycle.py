"""One round: at most one head of every queue, nominated on the same state, then taken in order.

`admit` runs rounds until nothing changes. Nominating looks at quota alone; taking an entry checks that it still fits
after those before it, finds its pods a place, and writes the result into the book. An entry that needs others to go
and finds nobody reserves its quota for the rest of the round, so that later ones don't take what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from windlass.model.workload import Workload
from windlass.queueing.assignment import Assignment, Mode
from windlass.queueing.book import Book
from windlass.queueing.lines import Line
from windlass.queueing.node import QuotaNode, Usage
from windlass.queueing.outcome import QUOTA_INSUFFICIENT, TOPOLOGY_NOFIT
from windlass.queueing.pending import Pending
from windlass.queueing.planner import Planner, Proposal
from windlass.queueing.site import PlaceResult, PodSetChoice, Said, Site
from windlass.queueing.tournament import fair_order
from windlass.queueing.victims import Target


class Entry:
    """A head in this round."""

    __slots__ = (
        "assignment",
        "code",
        "is_decided",
        "is_lasting",
        "is_skipped",
        "line",
        "message",
        "pending",
        "targets",
    )

    def __init__(self, pending: Pending, line: Line, proposal: Proposal) -> None:
        self.pending = pending
        self.line = line
        self.assignment: Assignment = proposal.assignment
        self.targets: list[Target] = proposal.targets
        self.is_decided = False
        self.is_skipped = False
        """Others came first; it may try again in the next round."""
        self.is_lasting = False
        """Quota refused it; it would refuse any other of the same shape."""
        self.code = self.assignment.code
        self.message: Said = self.assignment.message

    @property
    def node(self) -> QuotaNode:
        return self.pending.node

    def propose(self, proposal: Proposal) -> None:
        self.assignment, self.targets = proposal.assignment, proposal.targets
        self.code, self.message = self.assignment.code, self.assignment.message
        if proposal.failure is not None:
            self.code = proposal.failure.code or TOPOLOGY_NOFIT
            self.message = proposal.failure.message

    def skip(self, why: str) -> None:
        self.is_skipped = True
        self.code, self.message = QUOTA_INSUFFICIENT, why


LastResort = Callable[[Workload, tuple[PodSetChoice, ...]], PlaceResult | None]
"""Places a workload that has its quota at the cost of what is in no queue; None where that doesn't help either."""


class Cycle:
    def __init__(
        self,
        planner: Planner,
        book: Book,
        site: Site,
        fair_sharing: bool,
        last_resort: LastResort | None = None,
    ) -> None:
        self._last_resort = last_resort
        self._planner = planner
        self._book = book
        self._site = site
        self._fair_sharing = fair_sharing
        self._claims: list[tuple[QuotaNode, Usage]] = []

    def run(self, heads: list[tuple[Pending, Line]]) -> list[Entry]:
        self._book.begin_round()
        entries = [Entry(pending, line, self._planner.nominate(pending)) for pending, line in heads]
        for entry in self._order(entries):
            self._take(entry)
        for node, claim in self._claims:
            node.remove(claim)
        self._claims = []
        self._book.end_round()
        for entry in entries:
            entry.pending.looks += 1
            entry.pending.tried = () if entry.is_decided else entry.assignment.tried
        return entries

    def _order(self, entries: list[Entry]) -> Iterator[Entry]:
        if self._fair_sharing:
            return fair_order(entries)
        return iter(sorted(entries, key=_turn))

    def _take(self, entry: Entry) -> None:
        if self._book.overlaps(entry.targets):
            self._look_again(entry)
        mode = entry.assignment.mode
        if mode == Mode.NO_FIT:
            entry.is_lasting = True
        elif mode == Mode.PREEMPT and not entry.targets:
            entry.is_lasting = True
            self._reserve_claim(entry)
        elif mode == Mode.DEFERRED:
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
        pending.tried = ()
        pending.pinned = tuple(
            {name: served.flavor for name, served in part.served.items()} for part in entry.assignment.sets
        )
        self._without_leaving(entry, self._planner.nominate)
        pending.pinned = ()
        if entry.assignment.mode == Mode.FIT:
            entry.assignment.mode = Mode.DEFERRED

    def _reserve_claim(self, entry: Entry) -> None:
        """Until the round ends; not where the queue can always take back what it lends."""
        if entry.node.spec.preemption.reclaim_within_cohort != "Any":
            claim = _claim(entry)
            entry.node.add(claim)
            self._claims.append((entry.node, claim))

    def _had_better_look_on(self, entry: Entry) -> bool:
        """It fits only once the victims of others are gone, and there are flavors that may be free now."""
        assignment = entry.assignment
        if assignment.mode != Mode.FIT or not assignment.has_flavors_left:
            return False
        return not self._book.fits_now(entry.node, assignment.usage)

    def _settle(self, entry: Entry) -> None:
        """Finds a place for the pods, or asks once more with placement in view, or takes that of work in no queue."""
        nominated = entry.assignment
        has_quota = nominated.mode in (Mode.FIT, Mode.DEFERRED) and not entry.targets
        if self._place(entry):
            return
        self._without_leaving(entry, self._planner.with_room)
        assignment = entry.assignment
        if assignment.mode == Mode.PREEMPT and not entry.targets:
            if not has_quota or not self._takes_from_unqueued(entry, nominated):
                self._reserve_claim(entry)
        elif (
            assignment.mode != Mode.NO_FIT
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
        entry.is_decided = True
        return True

    def _place(self, entry: Entry) -> bool:
        before = self._site.checkpoint()
        for target in entry.targets:
            self._site.remove(target.running.workload)
        result = self._site.place(entry.pending.workload, entry.assignment.choices)
        if not result.ok:
            self._site.rollback(before)
            entry.code, entry.message = result.code or TOPOLOGY_NOFIT, result.message
            return False
        self._book.admit(entry.pending, entry.assignment, result, entry.targets)
        entry.is_decided = True
        return True

    def _without_leaving(self, entry: Entry, plan: Callable[[Pending], Proposal]) -> None:
        leaving = list(self._book.leaving.values())
        for running in leaving:
            running.leave()
        entry.propose(plan(entry.pending))
        for running in leaving:
            running.join()


def _turn(entry: Entry) -> tuple[object, ...]:
    """For whom others went first; then who borrows the least."""
    return (not entry.pending.workload.promised, entry.assignment.borrowing, entry.pending.sort_key)


def _claim(entry: Entry) -> Usage:
    """What it may call its own of what it asks for: up to nominal quota, or up to the borrowing limit."""
    node, claim = entry.node, {}
    for cell, amount in entry.assignment.usage.items():
        quota, used = node.quota(cell), node.usage.get(cell, 0)
        if not entry.assignment.borrowing:
            amount = max(0, min(amount, quota.nominal - used))
        elif quota.borrowing_limit is not None:
            amount = max(0, min(amount, quota.nominal + quota.borrowing_limit - used))
        claim[cell] = amount
    return claim
