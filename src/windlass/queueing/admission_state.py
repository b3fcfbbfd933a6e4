"""The running account of one decision: who is admitted, who has to go, who waits, and what of it is on the quota
tree.

`cycle` writes it, `admit` reads the outcomes out of it. Two states have to be within quota: *now*, with the victims
still there and those who wait for them not yet; and *afterwards*, without victims and with everybody admitted. The
tree holds the second, except that the victims of the present round stay on it until the round ends (Kueue's rule, so
that workloads nominated together are judged on the same state).
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.queueing.flavor_assignment import Assignment
from windlass.queueing.outcome import (
    BUDGET_OVERRIDE_BY_REASON,
    IN_CLUSTER_QUEUE,
    IN_COHORT_FAIR_SHARING,
    IN_COHORT_RECLAIM_WHILE_BORROWING,
    IN_COHORT_RECLAMATION,
    QUOTA_INSUFFICIENT,
    Admitted,
    Evicted,
    Held,
    Outcome,
)
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import HoldMessage, PlacementResult
from windlass.queueing.preemption_common import PreemptionContext, Target
from windlass.queueing.quota_node import AdmittedWorkload, QuotaNode, Usage

_WHY = {
    IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    IN_COHORT_RECLAMATION: "reclamation within the cohort",
    IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
    IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
}


class AdmissionState:
    def __init__(self, rules: PreemptionContext) -> None:
        self._ledger = rules.local_queue_usage
        self._disruptions, self._yields = rules.disruptions, rules.config.budgets_yield_to
        self._now = rules.now
        self._decided: dict[str, Admitted | Evicted] = {}
        self._held: dict[str, Held] = {}
        self._round = 0
        self._turns: dict[str, int] = {}
        self.current_victims: dict[str, AdmittedWorkload] = {}
        """Victims of this round; still on the tree."""
        self._withdrawn: set[str] = set()
        self._arrived: list[AdmittedWorkload] = []
        self._gone: dict[int, list[AdmittedWorkload]] = {}
        """Victims of earlier rounds by root of their tree; off the tree, and not really gone yet."""
        self._waiting: dict[int, list[tuple[QuotaNode, Usage]]] = {}
        """What those take who wait for victims; on the tree, and not really there yet."""

    def outcomes(self) -> list[Outcome]:
        return [*self._decided.values(), *(self._held[key] for key in sorted(self._held))]

    def hold(self, key: str, code: str, message: HoldMessage) -> None:
        self._held[key] = Held(key, code, message, self._turn(key))

    def _turn(self, key: str) -> int:
        """The round in which the workload was first decided."""
        return self._turns.setdefault(key, self._round)

    def evict_stopped(self, running: AdmittedWorkload, reason: str, message: str) -> None:
        """Its queue was stopped."""
        self._decided[running.key] = Evicted(running.key, "", reason, message)

    def overlaps(self, targets: list[Target]) -> bool:
        """Others of this round have evicted the same, or whom a disruption budget now keeps."""
        return self._breaks_budget(targets) or any(
            target.victim.key in self.current_victims or target.victim.key in self._withdrawn
            for target in targets
        )

    def _breaks_budget(self, targets: list[Target]) -> bool:
        if self._disruptions is None:
            return False
        bound = [
            target.victim.workload
            for target in targets
            if BUDGET_OVERRIDE_BY_REASON[target.reason] not in self._yields
            and not (target.victim.is_evicting or target.victim.is_assumed)
        ]
        return not self._disruptions.allow(self._disruptions.count_by_budget(*bound), {})

    def fits_now(self, node: QuotaNode, usage: Usage, without: Iterable[AdmittedWorkload] = ()) -> bool:
        """With the victims of all rounds still there, but for those that are named."""
        root = id(node.root)
        gone, waiting = self._gone.get(root, ()), self._waiting.get(root, ())
        for running in gone:
            running.node.add_usage(running.usage)
        for other, taken in waiting:
            other.remove_usage(taken)
        for running in without:
            running.node.remove_usage(running.usage)
        fits = node.fits(usage)
        for running in without:
            running.node.add_usage(running.usage)
        for other, taken in waiting:
            other.add_usage(taken)
        for running in gone:
            running.node.remove_usage(running.usage)
        return fits

    def fits_afterwards(self, node: QuotaNode, usage: Usage, targets: list[Target]) -> bool:
        """Without the victims of this round and without the workload's own."""
        away = {**self.current_victims, **{target.victim.key: target.victim for target in targets}}
        for running in away.values():
            running.node.remove_usage(running.usage)
        fits = node.fits(usage)
        for running in away.values():
            running.node.add_usage(running.usage)
        return fits

    def admit(
        self, pending: PendingWorkload, assignment: Assignment, place: PlacementResult, targets: list[Target]
    ) -> None:
        victims = self._evict(pending, targets)
        after = {*place.after, *(running.key for running in victims)}
        if not self.fits_now(pending.node, assignment.usage, victims):
            after |= self._in_flight(pending.node.root)
        self._decided[pending.key] = Admitted(
            pending.key,
            pending.node.name,
            assignment.choices,
            place.nodes,
            tuple(sorted(after)),
            self._turn(pending.key),
        )
        self._held.pop(pending.key, None)
        if self._ledger is not None:
            self._ledger.charge(pending.local_queue, assignment.usage)
        pending.node.add_usage(assignment.usage)
        if after:
            self._waiting.setdefault(id(pending.node.root), []).append((pending.node, assignment.usage))
        elif not pending.workload.nominated:
            # For whom others went is not taken back as if nothing had happened; anybody else may be.
            self._arrive(pending, assignment.usage, place)

    def _in_flight(self, root: QuotaNode) -> set[str]:
        """All victims in a tree that are not really gone yet."""
        gone = self._gone.get(id(root), [])
        return {
            running.key for running in (*gone, *self.current_victims.values()) if running.node.root is root
        }

    def _arrive(self, pending: PendingWorkload, usage: Usage, place: PlacementResult) -> None:
        running = AdmittedWorkload(pending.workload, pending.node, usage, self._now)
        running.is_assumed = True
        running.assumed_nodes = frozenset(name for part in place.nodes for name in part)
        self._arrived.append(running)

    def _evict(self, pending: PendingWorkload, targets: list[Target]) -> list[AdmittedWorkload]:
        """Those that have to end first; what was only just admitted is taken back instead."""
        victims = []
        for running, reason in targets:
            if running.is_assumed:
                self._withdraw(running, pending)
                continue
            victims.append(running)
            self.current_victims[running.key] = running
            if not running.is_evicting:
                if self._disruptions is not None:
                    self._disruptions.record(self._disruptions.count_by_budget(running.workload))
                message = _preempted(pending, running, reason)
                self._decided[running.key] = Evicted(running.key, pending.key, reason, message)
        return victims

    def _withdraw(self, running: AdmittedWorkload, pending: PendingWorkload) -> None:
        running.remove_from_tree()
        self._withdrawn.add(running.key)
        del self._decided[running.key]
        self.hold(
            running.key,
            QUOTA_INSUFFICIENT,
            f"fits only in quota that {pending.key} of ClusterQueue {pending.node.name} has a claim to",
        )

    def begin_cycle(self) -> None:
        self._round += 1

    def end_cycle(self) -> None:
        for running in self.current_victims.values():
            running.remove_from_tree()
            self._gone.setdefault(id(running.node.root), []).append(running)
        for running in self._arrived:
            running.node.admitted[running.key] = running
        self.current_victims = {}
        self._arrived = []


def _preempted(pending: PendingWorkload, running: AdmittedWorkload, reason: str) -> str:
    """Kueue's words."""
    return (
        f"Preempted to accommodate a workload (UID: {pending.workload.uid or 'UNKNOWN'}, JobUID: UNKNOWN) "
        f"due to {_WHY[reason]}; preemptor path: {pending.node.path}; preemptee path: {running.node.path}"
    )
