"""The outcomes of one decision so far (admitted, evicted, held), and how they show on the quota tree.

`cycle` writes it, `admit` reads the outcomes. Two states have to be within quota: *now*, with the victims still
running and without the workloads that wait for them; and *afterwards*, without the victims and with everything
admitted. The tree holds the second, except that victims of the current cycle stay on it until the cycle ends: as in
Kueue, all workloads nominated in one cycle are judged on the same state.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.model.workload import Workload
from windlass.queueing.flavor_assignment import Assignment
from windlass.queueing.outcome import (
    BUDGET_OVERRIDE_BY_REASON,
    IN_CLUSTER_QUEUE,
    IN_COHORT_FAIR_SHARING,
    IN_COHORT_RECLAIM_WHILE_BORROWING,
    IN_COHORT_RECLAMATION,
    PRIORITY,
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

_REASON_TEXT = {
    IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    IN_COHORT_RECLAMATION: "reclamation within the cohort",
    IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
    IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
}


class AdmissionState:
    def __init__(self, context: PreemptionContext) -> None:
        self._local_queue_usage = context.local_queue_usage
        self._disruptions, self._budgets_yield_to = context.disruptions, context.config.budgets_yield_to
        self._now = context.now
        self._blocks_admission = context.config.blocks_admission
        self._decided: dict[str, Admitted | Evicted] = {}
        self._held: dict[str, Held] = {}
        self._cycle = 0
        self._first_cycles: dict[str, int] = {}
        self.current_victims: dict[str, AdmittedWorkload] = {}
        """Victims of this cycle; still on the tree."""
        self._withdrawn: set[str] = set()
        self._newly_withdrawn: list[AdmittedWorkload] = []
        self._queues_with_victims: list[QuotaNode] = []
        self._newly_admitted: list[AdmittedWorkload] = []
        self._evicted: dict[int, list[AdmittedWorkload]] = {}
        """id of the root → victims of earlier cycles: off the tree, but still running."""
        self._waiting_usage: dict[int, list[tuple[QuotaNode, Usage]]] = {}
        """id of the root → usage of workloads that wait for victims: on the tree, but not running yet."""

    def outcomes(self) -> list[Outcome]:
        return [*self._decided.values(), *(self._held[key] for key in sorted(self._held))]

    @property
    def is_closed(self) -> bool:
        """Whether one workload has been admitted where only one is at a time."""
        return self._blocks_admission and any(isinstance(outcome, Admitted) for outcome in self._decided.values())

    def hold(self, key: str, code: str, message: HoldMessage) -> None:
        self._held[key] = Held(key, code, message, self._first_cycle(key))

    def _first_cycle(self, key: str) -> int:
        """The cycle in which the workload was first decided."""
        return self._first_cycles.setdefault(key, self._cycle)

    def evict_stopped(self, running: AdmittedWorkload, reason: str, message: str) -> None:
        """Evicts a workload that was deactivated or whose queue was stopped."""
        self._decided[running.key] = Evicted(running.key, "", reason, message)

    def overlaps(self, targets: list[Target]) -> bool:
        """Whether another entry of this cycle has taken one of the victims, or used up a disruption budget."""
        return self._breaks_budget(targets) or any(
            target.victim.key in self.current_victims or target.victim.key in self._withdrawn for target in targets
        )

    def _breaks_budget(self, targets: list[Target]) -> bool:
        if self._disruptions is None:
            return False
        protected = [
            target.victim.workload
            for target in targets
            if BUDGET_OVERRIDE_BY_REASON[target.reason] not in self._budgets_yield_to
            and not (target.victim.is_evicting or target.victim.is_assumed)
        ]
        return not self._disruptions.allow(self._disruptions.count_by_budget(*protected), {})

    def fits_now(self, node: QuotaNode, usage: Usage, without: Iterable[AdmittedWorkload] = ()) -> bool:
        """Whether the usage fits while the victims of all cycles still run, except those in `without`."""
        root = id(node.root)
        evicted, waiting = self._evicted.get(root, ()), self._waiting_usage.get(root, ())
        # The tree is changed and changed back: `add_usage` and `remove_usage` are exact inverses.
        for running in evicted:
            running.node.add_usage(running.usage)
        for queue, waiting_usage in waiting:
            queue.remove_usage(waiting_usage)
        for running in without:
            running.node.remove_usage(running.usage)
        fits = node.fits(usage)
        for running in without:
            running.node.add_usage(running.usage)
        for queue, waiting_usage in waiting:
            queue.add_usage(waiting_usage)
        for running in evicted:
            running.node.remove_usage(running.usage)
        return fits

    def fits_afterwards(self, node: QuotaNode, usage: Usage, targets: list[Target]) -> bool:
        """Whether the usage fits once the victims of this cycle and `targets` have ended."""
        removed = {**self.current_victims, **{target.victim.key: target.victim for target in targets}}
        for running in removed.values():
            running.node.remove_usage(running.usage)
        fits = node.fits(usage)
        for running in removed.values():
            running.node.add_usage(running.usage)
        return fits

    def admit(
        self, pending: PendingWorkload, assignment: Assignment, place: PlacementResult, targets: list[Target]
    ) -> None:
        victims = self._evict(pending, targets)
        after = {*place.after, *(running.key for running in victims)}
        if not self.fits_now(pending.node, assignment.usage, victims):
            # Quota is not tied to one victim: what it needs may be freed by any of them, so it waits for all.
            after |= self._in_flight(pending.node.root)
        self._decided[pending.key] = Admitted(
            pending.key,
            pending.node.name,
            assignment.choices,
            place.nodes,
            tuple(sorted(after)),
            self._first_cycle(pending.key),
        )
        self._held.pop(pending.key, None)
        self._withdrawn.discard(pending.key)
        if self._local_queue_usage is not None:
            self._local_queue_usage.charge(pending.local_queue, assignment.usage)
        pending.node.add_usage(assignment.usage)
        if after:
            self._waiting_usage.setdefault(id(pending.node.root), []).append((pending.node, assignment.usage))
        elif not pending.workload.nominated:
            # A workload for which others were evicted earlier keeps its admission. Any other that starts at once can
            # still be withdrawn in a later cycle of this decision, at no cost.
            self._add_assumed(pending, assignment.usage, place)

    def _in_flight(self, root: QuotaNode) -> set[str]:
        """Keys of all victims in a tree, which still run."""
        victims = (*self._evicted.get(id(root), ()), *self.current_victims.values())
        return {running.key for running in victims if running.node.root is root}

    def _add_assumed(self, pending: PendingWorkload, usage: Usage, place: PlacementResult) -> None:
        # By cycle, so that of equals the one admitted last is withdrawn first.
        running = AdmittedWorkload(pending.workload, pending.node, usage, self._now + self._cycle)
        running.is_assumed = True
        running.assumed_nodes = frozenset(name for part in place.nodes for name in part)
        self._newly_admitted.append(running)

    def _evict(self, pending: PendingWorkload, targets: list[Target]) -> list[AdmittedWorkload]:
        """Returns the victims that have to end first. Targets admitted in this decision are withdrawn instead."""
        victims = []
        for target in targets:
            running = target.victim
            if running.is_assumed:
                self._withdraw(running, pending)
                continue
            victims.append(running)
            self.current_victims[running.key] = running
            if running.node is not pending.node and running.node.queue is not None:
                self._queues_with_victims.append(running.node)
            # One that is terminating already needs no decision; its end is waited for all the same.
            if not running.is_evicting:
                self._decided[running.key] = evicted_for(pending.workload, pending.node, target)
        if self._disruptions is not None:
            disrupted = [running.workload for running in victims if not running.is_evicting]
            self._disruptions.record(self._disruptions.count_by_budget(*disrupted))
        return victims

    def _withdraw(self, running: AdmittedWorkload, pending: PendingWorkload) -> None:
        running.remove_from_tree()
        self._withdrawn.add(running.key)
        self._newly_withdrawn.append(running)
        del self._decided[running.key]
        self.hold(
            running.key,
            QUOTA_INSUFFICIENT,
            f"fits only in quota that is reserved for {pending.key} in ClusterQueue {pending.node.name}",
        )

    def take_withdrawn(self) -> list[AdmittedWorkload]:
        """The admissions withdrawn since the last call: what was refused beside them may fit now."""
        withdrawn, self._newly_withdrawn = self._newly_withdrawn, []
        return withdrawn

    def take_queues_with_victims(self) -> list[QuotaNode]:
        """The queues from which others have evicted since the last call: what each of them lacked within its own quota,
        it may have now."""
        queues, self._queues_with_victims = self._queues_with_victims, []
        return queues

    def begin_cycle(self) -> None:
        self._cycle += 1

    def end_cycle(self) -> None:
        for running in self.current_victims.values():
            running.remove_from_tree()
            self._evicted.setdefault(id(running.node.root), []).append(running)
        # Candidates from the next cycle on: within one cycle, no entry withdraws another.
        for running in self._newly_admitted:
            running.node.admitted[running.key] = running
        self.current_victims = {}
        self._newly_admitted = []


def evicted_for(preemptor: Workload, queue: QuotaNode, target: Target) -> Evicted:
    """`queue`: of the preemptor. A preemption by the rules of queues has Kueue's sentence."""
    running, reason = target.victim, target.reason
    message = (
        f"Preempted to accommodate a workload (UID: {preemptor.uid or 'UNKNOWN'}, JobUID: UNKNOWN) "
        f"due to {_REASON_TEXT[reason]}; preemptor path: {queue.path}; preemptee path: {running.node.path}"
        if reason != PRIORITY
        else ""
    )
    return Evicted(running.key, preemptor.key, reason, message, running.eviction_cost[0], target.least_lost)
