"""The quota tree with all that runs counted on it, kept from one decision to the next.

`admit` asks for it at the start and leaves it changed; the next time it is put back as it was counted, and only
workloads that came, changed or ended since are counted anew. It belongs to the engine's memo: a new
one gives the same tree.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.model.queue import QueueSystem
from windlass.model.workload import Workload
from windlass.queueing.admitted_workload import EvictionCosts, make_admitted_workload
from windlass.queueing.config import QueueConfig
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.quota_node import AdmittedWorkload, QuotaNode, Usage
from windlass.queueing.quota_tree import QuotaTree

Saved = tuple[QuotaNode, Usage, dict[str, AdmittedWorkload]]
"""A node of the tree, what is used there, and who uses it."""


class QuotaTreeCache:
    def __init__(self) -> None:
        self._system: QueueSystem | None = None
        self._tree = QuotaTree(QueueSystem())
        self._losses = EvictionCosts(QueueConfig(), 0)
        self._running: dict[str, AdmittedWorkload] = {}
        self._saved: list[Saved] = []
        self.pending_by_id: dict[int, PendingWorkload] = {}
        """Identity of a workload that waits in a queue of this tree → what is known of it."""

    def prune(self, waiting: int) -> None:
        """Those that wait no more are dropped once there are many of them."""
        if len(self.pending_by_id) > 2 * waiting + 1024:
            self.pending_by_id = {}

    def tree_with_usage(
        self, system: QueueSystem, config: QueueConfig, now: int, running: Iterable[Workload]
    ) -> QuotaTree:
        """The tree on which exactly these are counted. It is the caller's until the next call."""
        if system is not self._system:
            self._system, self._tree, self._running, self.pending_by_id = system, QuotaTree(system), {}, {}
        else:
            for node, usage, members in self._saved:
                node.usage, node.admitted = usage, members
        self._losses.reset(config, now)
        self._count(running)
        self._saved = [(node, dict(node.usage), dict(node.admitted)) for node in self._tree.nodes()]
        return self._tree

    def _count(self, running: Iterable[Workload]) -> None:
        known, queues = self._running, self._tree.queues
        counted = 0
        changed: dict[QuotaNode, Usage] = {}
        """Queue → what is added to its usage, all at once."""
        here = list(running)
        for workload in here:
            one = known.get(workload.key)
            if one is not None and one.workload is workload:
                counted += 1
                continue
            if one is not None:
                self._leave(one, changed)
            node = queues.get(workload.admission.cluster_queue) if workload.admission is not None else None
            if node is not None:
                known[workload.key] = made = make_admitted_workload(workload, node, self._losses)
                node.admitted[workload.key] = made
                added = changed.setdefault(node, {})
                for cell, amount in made.usage.items():
                    added[cell] = added.get(cell, 0) + amount
                counted += 1
        if counted != len(known):
            for key in known.keys() - {workload.key for workload in here}:
                self._leave(known[key], changed)
        for node, added in changed.items():
            node.add_usage(added)
            node.admitted = {key: node.admitted[key] for key in sorted(node.admitted)}

    def _leave(self, running: AdmittedWorkload, changed: dict[QuotaNode, Usage]) -> None:
        running.remove_from_tree()
        changed.setdefault(running.node, {})
        del self._running[running.key]
