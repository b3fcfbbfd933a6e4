"""The entry point of queueing: which workloads are admitted, which are evicted for them, and why the rest waits.

`placement.decision_pass` calls `admit` with the queues, all workloads and the placement to try pods on. Cycles (see
`cycle`) run until nothing changes. A refused workload is tried again only in the next decision, since free quota and
free nodes only decrease within one; unless an admission of this decision was withdrawn, which frees both, or another
queue has evicted from its own, which may be within its quota then. The order of
the input doesn't matter.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from windlass.model.disruption import DisruptionTracker
from windlass.model.errors import InputError
from windlass.model.kueue.workloads import deactivated_message
from windlass.model.labels import matches_selector
from windlass.model.names.kubernetes import NAMESPACE_NAME_LABEL
from windlass.model.queue import QueueSystem
from windlass.model.queue_names import describe_cluster_queue, describe_queue, is_shared_queue
from windlass.model.workload import Workload
from windlass.queueing.admission_state import AdmissionState
from windlass.queueing.config import QueueConfig
from windlass.queueing.cycle import WAITS_FOR_ADMITTED, Cycle, Entry
from windlass.queueing.flavor_assignment import FlavorAssignmentMode
from windlass.queueing.nominator import Nominator
from windlass.queueing.outcome import (
    ADMISSION_DEFERRED,
    BEHIND_HEAD,
    CLUSTER_QUEUE_STOPPED,
    DEACTIVATED,
    LIMIT_REACHED,
    LOCAL_QUEUE_STOPPED,
    QUEUE_MISSING,
    SUSPENDED,
    Outcome,
)
from windlass.queueing.pending_queue import PendingQueue
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import PlacementInterface
from windlass.queueing.preemption_common import PreemptionContext, UnqueuedCandidates
from windlass.queueing.queue_limits import limit_refusal
from windlass.queueing.quota_cache import QuotaTreeCache
from windlass.queueing.quota_node import AdmittedWorkload, QuotaNode, local_queue_key
from windlass.queueing.quota_tree import QuotaTree
from windlass.queueing.usage_history import LocalQueueUsage

INVALID_OBJECT = "INVALID_OBJECT"
DRAIN = "HoldAndDrain"
NOT_CONSIDERED = "not considered"
UNREADY_PREFIX = "waits until the pods of "
"""How the messages of `ADMISSION_DEFERRED` begin; `placement.explain.limits` reads them."""
MAX_RECONSIDERATIONS = 32
"""How often refused workloads are tried again because an admission was withdrawn: a decision has to end."""


def admit(
    queue_system: QueueSystem,
    workloads: Sequence[Workload],
    config: QueueConfig,
    now: int,
    placement: PlacementInterface,
    disruptions: DisruptionTracker | None = None,
    quota_cache: QuotaTreeCache | None = None,
    unqueued_candidates: UnqueuedCandidates | None = None,
    evict_nothing: Collection[str] = (),
) -> list[Outcome]:
    """Outcomes of all queued workloads; workloads in no queue get none.

    `unqueued_candidates`: what may be evicted besides, for a workload that finds no room within its quota.
    `evict_nothing`: workloads for which nothing may be evicted.
    """
    running: list[Workload] = []
    pending_workloads: list[Workload] = []
    for workload in workloads:
        if workload.queue_name:
            (pending_workloads if workload.admission is None else running).append(workload)
    quota_cache = quota_cache or QuotaTreeCache()
    tree = quota_cache.tree_with_usage(queue_system, config, now, running)
    context = PreemptionContext(
        config,
        now,
        disruptions=disruptions,
        unqueued_candidates=unqueued_candidates,
        evict_nothing=evict_nothing,
    )
    decision = _Decision(queue_system, tree, context, placement)
    decision.drain()
    # By key, so that nothing depends on the order of the input, not even the numbers of request shapes.
    for workload in sorted(pending_workloads, key=lambda workload: workload.key):
        known = quota_cache.pending_by_id.get(id(workload))
        if known is not None:
            known.reset(placement)
            decision.push(known)
        else:
            pending = decision.enqueue(workload)
            if pending is not None:
                quota_cache.pending_by_id[id(workload)] = pending
    quota_cache.prune(len(pending_workloads))
    unready = [workload.key for workload in running if workload.unready_since and not workload.evicting]
    if config.blocks_admission and unready:
        decision.hold_all(f"{UNREADY_PREFIX}{min(unready)} are ready (waitForPodsReady.blockAdmission)")
    else:
        decision.run()
    return decision.state.outcomes()


class _Decision:
    def __init__(
        self, system: QueueSystem, tree: QuotaTree, context: PreemptionContext, placement: PlacementInterface
    ) -> None:
        """`tree`: with the usage of all admitted workloads."""
        config = context.config
        self._system = system
        self._config = config
        self._placement = placement
        self._tree = tree
        self._local_queue_usage = (
            LocalQueueUsage(config.history, system.local_queues, context.now) if config.history else None
        )
        self._queues: dict[str, PendingQueue] = {}
        self._blocked_heads: list[tuple[PendingWorkload, PendingQueue]] = []
        """Heads of StrictFIFO queues that found no victims: they reserve quota again in every cycle."""
        self._refused: dict[str, tuple[PendingWorkload, PendingQueue]] = {}
        """Held workloads by key, for another try where an admission is withdrawn."""
        self._reconsiderations = 0
        self._context = context._replace(local_queue_usage=self._local_queue_usage)
        self.state = AdmissionState(self._context)
        if self._local_queue_usage is not None:
            for running in self._admitted_workloads():
                self._local_queue_usage.add_admitted(running)

    def _admitted_workloads(self) -> list[AdmittedWorkload]:
        return [running for queue in self._tree.queues.values() for running in queue.admitted.values()]

    def drain(self) -> None:
        """Evicts deactivated workloads, and everything in queues whose stop policy is HoldAndDrain."""
        for running in self._admitted_workloads():
            if not running.workload.active and not running.is_evicting:
                self._evict_stopped(running, DEACTIVATED, f"Workload {running.key} (spec.active: false)")
        policies = {queue.stop_policy for queue in self._system.queues.values()}
        policies |= {queue.stop_policy for queue in self._system.local_queues.values()}
        if DRAIN not in policies:
            return
        for running in sorted(self._admitted_workloads(), key=lambda running: running.key):
            local = self._system.local_queue(running.workload.namespace, running.workload.queue_name)
            if running.is_evicting:
                continue
            if running.node.spec.stop_policy == DRAIN:
                stopped = f"ClusterQueue {running.node.name} (spec.stopPolicy: {DRAIN})"
                self._evict_stopped(running, CLUSTER_QUEUE_STOPPED, stopped)
            elif local is not None and local.stop_policy == DRAIN:
                stopped = f"LocalQueue {local.key} (spec.stopPolicy: {DRAIN})"
                self._evict_stopped(running, LOCAL_QUEUE_STOPPED, stopped)

    def _evict_stopped(self, running: AdmittedWorkload, reason: str, message: str) -> None:
        self.state.evict_stopped(running, reason, message)
        # Its usage stays on the tree until it has ended, but preemption must not choose it as a victim.
        del running.node.admitted[running.key]

    def enqueue(self, workload: Workload) -> PendingWorkload | None:
        """Adds the workload to its queue; holds it and returns None where that is not possible."""
        why = self._why_not_queued(workload)
        if why:
            self.state.hold(workload.key, workload.hold_code or (QUEUE_MISSING if workload.active else SUSPENDED), why)
            return None
        local = self._system.local_queue(workload.namespace, workload.queue_name)
        assert local is not None, "it is queued"
        name = local.cluster_queue
        try:
            pending = PendingWorkload(workload, self._tree.queues[name], self._placement)
        except InputError as error:
            self.state.hold(workload.key, error.code or INVALID_OBJECT, str(error))
            return None
        self.push(pending)
        return pending

    def push(self, pending: PendingWorkload) -> None:
        queue = self._queues.get(pending.node.name)
        if queue is None:
            queue = self._queues[pending.node.name] = PendingQueue(pending.node, self._local_queue_usage)
        queue.push(pending)

    def _why_not_queued(self, workload: Workload) -> str:
        if workload.hold:
            return workload.hold
        if not workload.active:
            return deactivated_message(workload.key)
        queue = workload.queue_name
        shown = describe_queue(queue) if is_shared_queue(queue) else f"LocalQueue {local_queue_key(workload)}"
        local = self._system.local_queue(workload.namespace, workload.queue_name)
        if local is None:
            return f"{shown} doesn't exist"
        if local.stop_policy != "None":
            return f"{shown} is stopped (spec.stopPolicy: {local.stop_policy})"
        if local.inactive_reason:
            return f"{shown} is inactive: {local.inactive_reason}"
        name = local.cluster_queue
        if name not in self._tree.queues:
            return f"{describe_cluster_queue(name)} doesn't exist"
        if name in self._tree.inactive_reasons:
            return f"{describe_cluster_queue(name)} {self._tree.inactive_reasons[name]}"
        known = self._system.namespaces.get(workload.namespace, {})
        labels = {NAMESPACE_NAME_LABEL: workload.namespace, **known}
        if not matches_selector(self._system.queues[name].namespace_selector, labels):
            names = f"namespace {workload.namespace}, {describe_cluster_queue(name)}"
            return f"Workload namespace doesn't match ClusterQueue selector: {names}"
        return ""

    def run(self) -> None:
        nominator = Nominator(self._system, self._context, self._placement)
        cycle = Cycle(nominator, self.state, self._placement, self._config.fair_sharing)
        active = [self._queues[name] for name in sorted(self._queues)]
        for _ in range(self._config.max_cycles):
            heads = [(head, queue) for queue in active if (head := self._next_head(queue)) is not None]
            # Queues that are empty or blocked drop out; one whose blocked head is admitted comes back.
            active = [queue for _, queue in heads]
            if not heads or self.state.is_closed:
                self._push_back_heads(heads)
                break
            blocked_heads, self._blocked_heads = self._blocked_heads, []
            self._requeue_all(cycle.run(heads + blocked_heads), active)
            withdrawn, relieved = self.state.take_withdrawn(), self.state.take_queues_with_victims()
            if (withdrawn or relieved) and self._reconsiderations < MAX_RECONSIDERATIONS:
                self._reconsiderations += 1
                self._push_back_refused(withdrawn, relieved, active)
        self._hold_the_rest()

    def _push_back_refused(
        self, withdrawn: list[AdmittedWorkload], relieved: list[QuotaNode], active: list[PendingQueue]
    ) -> None:
        """What was refused while the withdrawn admissions stood may fit now: in the same tree, by quota or by place.
        And what was refused in a `relieved` queue, from which others have evicted, before those that wait behind it.

        Not behind a withdrawn head of a StrictFIFO queue, which waits again.
        """
        heads = {running.node.name for running in withdrawn if running.node.spec.queueing_strategy == "StrictFIFO"}
        roots = {id(running.node.root) for running in withdrawn}
        passed = [node for node in relieved if node.name in self._queues and self._queues[node.name].waiting()]
        for key, (pending, queue) in list(self._refused.items()):
            is_concerned = id(queue.node.root) in roots or queue.node in passed
            if not is_concerned or queue.node.name in heads:
                continue
            del self._refused[key]
            queue.inadmissible_shapes.clear()
            queue.blocked_by = None
            queue.push(pending)
            if queue not in active:
                active.append(queue)
        self._blocked_heads = [(head, queue) for head, queue in self._blocked_heads if head.key in self._refused]

    def _next_head(self, queue: PendingQueue) -> PendingWorkload | None:
        """Holds workloads whose shape quota has refused already, without trying them again."""
        has_limits = queue.node.spec.policy.has_limits
        while (head := queue.pop()) is not None:
            above = limit_refusal(head, partial(self._waiting_in, queue)) if has_limits else ""
            if above:
                self.state.hold(head.key, LIMIT_REACHED, above)
                self._refused[head.key] = (head, queue)
                continue
            refused = queue.inadmissible_shapes and queue.inadmissible_shapes.get(head.shape(self._system.flavors))
            if not refused:
                return head
            self.state.hold(head.key, *refused)
            self._refused[head.key] = (head, queue)
        return None

    def _waiting_in(self, queue: PendingQueue) -> list[Workload]:
        """Everything that waits in the queue, also what was refused in this decision."""
        refused = [pending.workload for pending, of in self._refused.values() if of is queue]
        return [*refused, *(pending.workload for pending in queue.waiting())]

    def _requeue_all(self, entries: list[Entry], active: list[PendingQueue]) -> None:
        """Skipped entries try again only if the cycle changed something; otherwise cycles would never end."""
        changed = False
        skipped = []
        for entry in entries:
            if entry.is_skipped:
                skipped.append(entry)
            else:
                # In this order: `_requeue` has to run for every entry.
                changed = self._requeue(entry, active) or changed
        for entry in skipped:
            if changed or entry.pending.has_flavors_left:
                self._push_back(entry, active)
            else:
                self._hold_until_next_decision(entry)

    def _requeue(self, entry: Entry, active: list[PendingQueue]) -> bool:
        """Returns whether anything differs from before the cycle."""
        was_blocked = entry.queue.blocked_by is entry.pending
        if entry.is_admitted:
            if was_blocked:
                entry.queue.blocked_by = None
                active.append(entry.queue)
            return True
        if entry.pending.has_flavors_left:
            self._push_back(entry, active)
            return True
        self._hold_until_next_decision(entry)
        return not was_blocked

    def _push_back(self, entry: Entry, active: list[PendingQueue]) -> None:
        if entry.queue.blocked_by is entry.pending:
            entry.queue.blocked_by = None
            active.append(entry.queue)
        entry.queue.push(entry.pending)

    def _hold_until_next_decision(self, entry: Entry) -> None:
        pending, queue = entry.pending, entry.queue
        self.state.hold(pending.key, entry.code, entry.message)
        self._refused[pending.key] = (pending, queue)
        pending.tried_flavors = ()
        if queue.is_strict:
            queue.blocked_by = pending
            if entry.assignment.mode == FlavorAssignmentMode.PREEMPT:
                self._blocked_heads.append((pending, queue))
        # By quota only: whether nodes have room may differ for the next workload of the same shape.
        elif entry.refused_by_quota:
            queue.inadmissible_shapes[pending.shape(self._system.flavors)] = (entry.code, entry.message)

    def _push_back_heads(self, heads: list[tuple[PendingWorkload, PendingQueue]]) -> None:
        for head, queue in heads:
            queue.push(head)

    def hold_all(self, why: str) -> None:
        for queue in self._queues.values():
            while (pending := queue.pop_ignoring_block()) is not None:
                self.state.hold(pending.key, ADMISSION_DEFERRED, why)

    def _hold_the_rest(self) -> None:
        if self.state.is_closed:
            self.hold_all(WAITS_FOR_ADMITTED)
        for queue in self._queues.values():
            head = queue.blocked_by
            while (pending := queue.pop_ignoring_block()) is not None:
                if head is not None:
                    strict = f"{describe_cluster_queue(queue.node.name)} (StrictFIFO)"
                    why = f"waits behind {head.key}, the head of {strict}"
                    self.state.hold(pending.key, BEHIND_HEAD, why)
                else:
                    why = f"{NOT_CONSIDERED}: the decision stopped after {self._config.max_cycles} admission cycles"
                    self.state.hold(pending.key, ADMISSION_DEFERRED, why)
