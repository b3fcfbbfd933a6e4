"""The entry of this room: who starts, who has to go for it, and why the rest waits.

The engine calls `admit` with the queues, all workloads and a site. Rounds (see `cycle`) are run until nothing changes
any more; a workload that was refused is looked at again only in the next decision, since within one decision room
only gets less. The order of the input doesn't matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.model.disruption import DisruptionTracker
from windlass.model.errors import InputError
from windlass.model.labels import matches_selector
from windlass.model.queue import QueueSystem
from windlass.model.workload import Workload
from windlass.queueing.admission_state import AdmissionState
from windlass.queueing.config import QueueConfig
from windlass.queueing.cycle import Cycle, Entry, PreemptUnqueued
from windlass.queueing.flavor_assignment import FlavorAssignmentMode
from windlass.queueing.nominator import Nominator
from windlass.queueing.outcome import (
    BEHIND_HEAD,
    CLUSTER_QUEUE_STOPPED,
    DEACTIVATED,
    LOCAL_QUEUE_STOPPED,
    QUEUE_MISSING,
    QUOTA_INSUFFICIENT,
    Outcome,
)
from windlass.queueing.pending_queue import PendingQueue
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import PlacementInterface
from windlass.queueing.preemption_common import PreemptionContext
from windlass.queueing.quota_cache import QuotaTreeCache
from windlass.queueing.quota_node import AdmittedWorkload, local_queue_key
from windlass.queueing.quota_tree import QuotaTree
from windlass.queueing.usage_history import LocalQueueUsage

INVALID_OBJECT = "INVALID_OBJECT"
DRAIN = "HoldAndDrain"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label that every namespace has."""


def admit(
    queue_system: QueueSystem,
    workloads: Sequence[Workload],
    config: QueueConfig,
    now: int,
    placement: PlacementInterface,
    disruptions: DisruptionTracker | None = None,
    quota_cache: QuotaTreeCache | None = None,
    preempt_unqueued: PreemptUnqueued | None = None,
) -> list[Outcome]:
    """Workloads that are in no queue are none of its business: they get no outcome. `last_resort` may put them out of
    their places for one that has its quota and finds no room."""
    running: list[Workload] = []
    waiting: list[Workload] = []
    for workload in workloads:
        if workload.queue_name:
            (waiting if workload.admission is None else running).append(workload)
    quota_cache = quota_cache or QuotaTreeCache()
    tree = quota_cache.tree_with_usage(queue_system, config, now, running)
    decision = _Decision(
        queue_system, tree, PreemptionContext(config, now, disruptions=disruptions), placement
    )
    decision.drain()
    for workload in sorted(waiting, key=lambda workload: workload.key):
        known = quota_cache.pending_by_id.get(id(workload))
        if known is not None:
            known.reset(placement)
            decision.push(known)
        else:
            pending = decision.enqueue(workload)
            if pending is not None:
                quota_cache.pending_by_id[id(workload)] = pending
    quota_cache.prune(len(waiting))
    decision.run(preempt_unqueued)
    return decision.book.outcomes()


class _Decision:
    def __init__(
        self, system: QueueSystem, tree: QuotaTree, rules: PreemptionContext, site: PlacementInterface
    ) -> None:
        """`tree`: with all that runs counted on it."""
        config = rules.config
        self._system = system
        self._config = config
        self._site = site
        self._tree = tree
        self._ledger = (
            LocalQueueUsage(config.history, system.local_queues, rules.now) if config.history else None
        )
        self._lines: dict[str, PendingQueue] = {}
        self._claimants: list[tuple[PendingWorkload, PendingQueue]] = []
        """Heads of strict queues that wait for quota and keep their claim to it in every round."""
        self._rules = rules._replace(local_queue_usage=self._ledger)
        self.book = AdmissionState(self._rules)
        if self._ledger is not None:
            for running in self._running():
                self._ledger.add_admitted(running)

    def _running(self) -> list[AdmittedWorkload]:
        return [running for queue in self._tree.queues.values() for running in queue.admitted.values()]

    def drain(self) -> None:
        """What runs in a queue that is to be emptied goes, and what somebody has deactivated."""
        for running in self._running():
            if not running.workload.active and not running.is_evicting:
                self._stop(running, DEACTIVATED, "The workload is deactivated")
        policies = {queue.stop_policy for queue in self._system.queues.values()}
        policies |= {queue.stop_policy for queue in self._system.local_queues.values()}
        if DRAIN not in policies:
            return
        for running in sorted(self._running(), key=lambda running: running.key):
            local = self._system.local_queues.get(running.local_queue)
            if running.is_evicting:
                continue
            if running.node.spec.stop_policy == DRAIN:
                self._stop(running, CLUSTER_QUEUE_STOPPED, f"The ClusterQueue {running.node.name} is stopped")
            elif local is not None and local.stop_policy == DRAIN:
                self._stop(running, LOCAL_QUEUE_STOPPED, f"The LocalQueue {local.key} is stopped")

    def _stop(self, running: AdmittedWorkload, reason: str, message: str) -> None:
        """It keeps its quota until it has ended, and is nobody else's victim."""
        self.book.evict_stopped(running, reason, message)
        del running.node.admitted[running.key]

    def enqueue(self, workload: Workload) -> PendingWorkload | None:
        """In its line; None where it can't be in one."""
        why = self._why_not_queued(workload)
        if why:
            self.book.hold(workload.key, workload.hold_code or QUEUE_MISSING, why)
            return None
        name = self._system.local_queues[local_queue_key(workload)].cluster_queue
        try:
            pending = PendingWorkload(workload, self._tree.queues[name], self._site)
        except InputError as error:
            self.book.hold(workload.key, error.code or INVALID_OBJECT, str(error))
            return None
        self.push(pending)
        return pending

    def push(self, pending: PendingWorkload) -> None:
        line = self._lines.get(pending.node.name)
        if line is None:
            line = self._lines[pending.node.name] = PendingQueue(pending.node, self._ledger)
        line.push(pending)

    def _why_not_queued(self, workload: Workload) -> str:
        if workload.hold:
            return workload.hold
        if not workload.active:
            return "The workload is deactivated"
        key = local_queue_key(workload)
        local = self._system.local_queues.get(key)
        if local is None:
            return f"LocalQueue {key} doesn't exist"
        if local.stop_policy != "None":
            return f"LocalQueue {key} is stopped"
        if local.inactive_reason:
            return f"LocalQueue {key} is inactive: {local.inactive_reason}"
        name = local.cluster_queue
        if name not in self._tree.queues:
            return f"ClusterQueue {name} doesn't exist"
        if name in self._tree.inactive_reasons:
            return f"ClusterQueue {name} {self._tree.inactive_reasons[name]}"
        known = self._system.namespaces.get(workload.namespace, {})
        labels = {NAMESPACE_NAME: workload.namespace, **known}
        if not matches_selector(self._system.queues[name].namespace_selector, labels):
            return "Workload namespace doesn't match ClusterQueue selector"
        return ""

    def run(self, last_resort: PreemptUnqueued | None) -> None:
        planner = Nominator(self._system, self._rules, self._site)
        cycle = Cycle(planner, self.book, self._site, self._config.fair_sharing, last_resort)
        waiting = [self._lines[name] for name in sorted(self._lines)]
        for _ in range(self._config.max_cycles):
            heads = []
            still = []
            for line in waiting:
                head = self._next_head(line)
                if head is not None:
                    heads.append((head, line))
                    still.append(line)
            waiting = still
            if not heads:
                break
            claimants, self._claimants = self._claimants, []
            self._finish_round(cycle.run(heads + claimants), waiting)
        self._hold_the_rest()

    def _next_head(self, line: PendingQueue) -> PendingWorkload | None:
        """Passes over workloads whose like was refused already."""
        while (head := line.pop()) is not None:
            refused = line.inadmissible_shapes and line.inadmissible_shapes.get(
                head.shape(self._system.flavors)
            )
            if not refused:
                return head
            self.book.hold(head.key, *refused)
        return None

    def _finish_round(self, entries: list[Entry], waiting: list[PendingQueue]) -> None:
        moved = False
        skipped = []
        for entry in entries:
            if entry.is_skipped:
                skipped.append(entry)
            else:
                moved = self._requeue(entry, waiting) or moved
        for entry in skipped:
            if moved or entry.pending.has_flavors_left:
                self._put_back(entry, waiting)
            else:
                self._park(entry)

    def _requeue(self, entry: Entry, waiting: list[PendingQueue]) -> bool:
        """Whether anything is different from before the round."""
        was_blocked = entry.queue.blocked_by is entry.pending
        if entry.is_admitted:
            if was_blocked:
                entry.queue.blocked_by = None
                waiting.append(entry.queue)
            return True
        if entry.pending.has_flavors_left:
            self._put_back(entry, waiting)
            return True
        self._park(entry)
        return not was_blocked

    def _put_back(self, entry: Entry, waiting: list[PendingQueue]) -> None:
        if entry.queue.blocked_by is entry.pending:
            entry.queue.blocked_by = None
            waiting.append(entry.queue)
        entry.queue.push(entry.pending)

    def _park(self, entry: Entry) -> None:
        """Until the next decision."""
        pending, line = entry.pending, entry.queue
        self.book.hold(pending.key, entry.code, entry.message)
        pending.tried_flavors = ()
        if line.is_strict:
            line.blocked_by = pending
            if entry.assignment.mode == FlavorAssignmentMode.PREEMPT:
                self._claimants.append((pending, line))
        elif entry.refused_by_quota:
            line.inadmissible_shapes[pending.shape(self._system.flavors)] = (entry.code, entry.message)

    def _hold_the_rest(self) -> None:
        for line in self._lines.values():
            head = line.blocked_by
            while (pending := line.pop_ignoring_block()) is not None:
                if head is not None:
                    why = f"waits behind {head.key}, the head of ClusterQueue {line.node.name} (StrictFIFO)"
                    self.book.hold(pending.key, BEHIND_HEAD, why)
                else:
                    self.book.hold(pending.key, QUOTA_INSUFFICIENT, "not looked at: too many rounds")
