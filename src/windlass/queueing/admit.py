"""The entry of this room: who starts, who has to go for it, and why the rest waits.

The engine calls `admit` with the queues, all workloads and a site. Rounds (see `cycle`) are run until nothing changes
any more; a workload that was refused is looked at again only in the next decision, since within one decision room
only gets less. The order of the input doesn't matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.model.disruption import Disruptions
from windlass.model.errors import InputError
from windlass.model.labels import matches_selector
from windlass.model.queue import QueueSystem
from windlass.model.workload import Workload
from windlass.queueing.assignment import Mode
from windlass.queueing.book import Book
from windlass.queueing.config import QueueConfig
from windlass.queueing.counted import Counted
from windlass.queueing.cycle import Cycle, Entry, LastResort
from windlass.queueing.history import Ledger
from windlass.queueing.lines import Line
from windlass.queueing.node import Running, local_queue_key
from windlass.queueing.outcome import (
    BEHIND_HEAD,
    CLUSTER_QUEUE_STOPPED,
    DEACTIVATED,
    LOCAL_QUEUE_STOPPED,
    QUEUE_MISSING,
    QUOTA_INSUFFICIENT,
    Outcome,
)
from windlass.queueing.pending import Pending
from windlass.queueing.planner import Planner
from windlass.queueing.site import Site
from windlass.queueing.tree import QuotaTree
from windlass.queueing.victims import Rules

INVALID_OBJECT = "INVALID_OBJECT"
DRAIN = "HoldAndDrain"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label that every namespace has."""


def admit(
    system: QueueSystem,
    workloads: Sequence[Workload],
    config: QueueConfig,
    now: int,
    site: Site,
    disruptions: Disruptions | None = None,
    counted: Counted | None = None,
    last_resort: LastResort | None = None,
) -> list[Outcome]:
    """Workloads that are in no queue are none of its business: they get no outcome. `last_resort` may put them out of
    their places for one that has its quota and finds no room."""
    running: list[Workload] = []
    waiting: list[Workload] = []
    for workload in workloads:
        if workload.queue:
            (waiting if workload.admission is None else running).append(workload)
    counted = counted or Counted()
    tree = counted.tree(system, config, now, running)
    decision = _Decision(system, tree, Rules(config, now, disruptions=disruptions), site)
    decision.drain()
    for workload in sorted(waiting, key=lambda workload: workload.key):
        known = counted.waiting.get(id(workload))
        if known is not None:
            known.begin(site)
            decision.push(known)
        else:
            pending = decision.enqueue(workload)
            if pending is not None:
                counted.waiting[id(workload)] = pending
    counted.forget_gone(len(waiting))
    decision.run(last_resort)
    return decision.book.outcomes()


class _Decision:
    def __init__(self, system: QueueSystem, tree: QuotaTree, rules: Rules, site: Site) -> None:
        """`tree`: with all that runs counted on it."""
        config = rules.config
        self._system = system
        self._config = config
        self._site = site
        self._tree = tree
        self._ledger = Ledger(config.history, system.local_queues, rules.now) if config.history else None
        self._lines: dict[str, Line] = {}
        self._claimants: list[tuple[Pending, Line]] = []
        """Heads of strict queues that wait for quota and keep their claim to it in every round."""
        self._rules = rules._replace(ledger=self._ledger)
        self.book = Book(self._rules)
        if self._ledger is not None:
            for running in self._running():
                self._ledger.add_running(running)

    def _running(self) -> list[Running]:
        return [running for queue in self._tree.queues.values() for running in queue.running.values()]

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

    def _stop(self, running: Running, reason: str, message: str) -> None:
        """It keeps its quota until it has ended, and is nobody else's victim."""
        self.book.drain(running, reason, message)
        del running.node.running[running.key]

    def enqueue(self, workload: Workload) -> Pending | None:
        """In its line; None where it can't be in one."""
        why = self._why_not_queued(workload)
        if why:
            self.book.hold(workload.key, workload.hold_code or QUEUE_MISSING, why)
            return None
        name = self._system.local_queues[local_queue_key(workload)].cluster_queue
        try:
            pending = Pending(workload, self._tree.queues[name], self._site)
        except InputError as error:
            self.book.hold(workload.key, error.code or INVALID_OBJECT, str(error))
            return None
        self.push(pending)
        return pending

    def push(self, pending: Pending) -> None:
        line = self._lines.get(pending.node.name)
        if line is None:
            line = self._lines[pending.node.name] = Line(pending.node, self._ledger)
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
        if local.inactive:
            return f"LocalQueue {key} is inactive: {local.inactive}"
        name = local.cluster_queue
        if name not in self._tree.queues:
            return f"ClusterQueue {name} doesn't exist"
        if name in self._tree.inactive:
            return f"ClusterQueue {name} {self._tree.inactive[name]}"
        known = self._system.namespaces.get(workload.namespace, {})
        labels = {NAMESPACE_NAME: workload.namespace, **known}
        if not matches_selector(self._system.queues[name].namespace_selector, labels):
            return "Workload namespace doesn't match ClusterQueue selector"
        return ""

    def run(self, last_resort: LastResort | None) -> None:
        planner = Planner(self._system, self._rules, self._site)
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

    def _next_head(self, line: Line) -> Pending | None:
        """Passes over workloads whose like was refused already."""
        while (head := line.pop()) is not None:
            refused = line.parked_shapes and line.parked_shapes.get(head.shape(self._system.flavors))
            if not refused:
                return head
            self.book.hold(head.key, *refused)
        return None

    def _finish_round(self, entries: list[Entry], waiting: list[Line]) -> None:
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

    def _requeue(self, entry: Entry, waiting: list[Line]) -> bool:
        """Whether anything is different from before the round."""
        was_blocked = entry.line.blocked_by is entry.pending
        if entry.is_decided:
            if was_blocked:
                entry.line.blocked_by = None
                waiting.append(entry.line)
            return True
        if entry.pending.has_flavors_left:
            self._put_back(entry, waiting)
            return True
        self._park(entry)
        return not was_blocked

    def _put_back(self, entry: Entry, waiting: list[Line]) -> None:
        if entry.line.blocked_by is entry.pending:
            entry.line.blocked_by = None
            waiting.append(entry.line)
        entry.line.push(entry.pending)

    def _park(self, entry: Entry) -> None:
        """Until the next decision."""
        pending, line = entry.pending, entry.line
        self.book.hold(pending.key, entry.code, entry.message)
        pending.tried = ()
        if line.is_strict:
            line.blocked_by = pending
            if entry.assignment.mode == Mode.PREEMPT:
                self._claimants.append((pending, line))
        elif entry.is_lasting:
            line.parked_shapes[pending.shape(self._system.flavors)] = (entry.code, entry.message)

    def _hold_the_rest(self) -> None:
        for line in self._lines.values():
            head = line.blocked_by
            while (pending := line.pop_any()) is not None:
                if head is not None:
                    why = f"waits behind {head.key}, the head of ClusterQueue {line.node.name} (StrictFIFO)"
                    self.book.hold(pending.key, BEHIND_HEAD, why)
                else:
                    self.book.hold(pending.key, QUOTA_INSUFFICIENT, "not looked at: too many rounds")
