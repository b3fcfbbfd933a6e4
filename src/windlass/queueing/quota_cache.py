"""The quota tree with the usage of all admitted workloads, kept from one decision to the next.

`admit` asks for it at the start and leaves it changed; the next call restores it and updates only workloads that came,
changed or ended since. `placement.decision_cache` owns it: a new cache gives the same tree.
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
"""A node of the tree, its usage, and its admitted workloads."""


class QuotaTreeCache:
    def __init__(self) -> None:
        self._system: QueueSystem | None = None
        self._tree = QuotaTree(QueueSystem())
        self._costs = EvictionCosts(QueueConfig(), 0)
        self._admitted: dict[str, AdmittedWorkload] = {}
        self._saved: list[Saved] = []
        self.pending_by_id: dict[int, PendingWorkload] = {}
        """id of a workload that waits in a queue of this tree → the same with its requests and flavor refusals."""

    def prune(self, waiting: int) -> None:
        """Drops everything once most entries are of workloads that don't wait any more."""
        if len(self.pending_by_id) > 2 * waiting + 1024:
            self.pending_by_id = {}

    def tree_with_usage(
        self, system: QueueSystem, config: QueueConfig, now: int, running: Iterable[Workload]
    ) -> QuotaTree:
        """The tree with the usage of exactly these workloads. The caller may change it until the next call."""
        if system is not self._system:
            self._system, self._tree, self._admitted, self.pending_by_id = system, QuotaTree(system), {}, {}
        else:
            for node, usage, members in self._saved:
                node.usage, node.admitted = usage, members
        self._costs.reset(config, now)
        self._update_usage(running)
        # The caller changes the tree; copying these maps is cheaper than building it again.
        self._saved = [(node, dict(node.usage), dict(node.admitted)) for node in self._tree.nodes()]
        return self._tree

    def _update_usage(self, running: Iterable[Workload]) -> None:
        admitted_by_key, queues = self._admitted, self._tree.queues
        present = 0
        changed: dict[QuotaNode, Usage] = {}
        """Queue → usage to add, applied once per queue at the end."""
        workloads = list(running)
        for workload in workloads:
            admitted = admitted_by_key.get(workload.key)
            # By identity: the store makes a new object for every workload that has changed.
            if admitted is not None and admitted.workload is workload:
                present += 1
                continue
            if admitted is not None:
                self._remove(admitted, changed)
            node = queues.get(workload.admission.cluster_queue) if workload.admission is not None else None
            if node is not None:
                admitted_by_key[workload.key] = admitted = make_admitted_workload(workload, node, self._costs)
                node.admitted[workload.key] = admitted
                added = changed.setdefault(node, {})
                for cell, amount in admitted.usage.items():
                    added[cell] = added.get(cell, 0) + amount
                present += 1
        # Only then has any of them ended; comparing the keys takes time.
        if present != len(admitted_by_key):
            for key in admitted_by_key.keys() - {workload.key for workload in workloads}:
                self._remove(admitted_by_key[key], changed)
        for node, added in changed.items():
            node.add_usage(added)
            # By key, so that candidates don't depend on when a workload came into the cache.
            node.admitted = {key: node.admitted[key] for key in sorted(node.admitted)}

    def _remove(self, running: AdmittedWorkload, changed: dict[QuotaNode, Usage]) -> None:
        running.remove_from_tree()
        changed.setdefault(running.node, {})
        del self._admitted[running.key]
