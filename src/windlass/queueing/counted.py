"""The quota tree with all that runs counted on it, kept from one decision to the next.

`admit` asks for it at the start and leaves it changed; the next time it is put back as it was counted, and only
workloads that came, changed or ended since are counted anew. It belongs to the engine's memo: a new
one gives the same tree.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.model.queue import QueueSystem
from windlass.model.workload import Workload
from windlass.queueing.config import QueueConfig
from windlass.queueing.node import QuotaNode, Running, Usage
from windlass.queueing.pending import Pending
from windlass.queueing.running import Losses, running_workload
from windlass.queueing.tree import QuotaTree

Saved = tuple[QuotaNode, Usage, dict[str, Running]]
"""A node of the tree, what is used there, and who uses it."""


class Counted:
    def __init__(self) -> None:
        self._system: QueueSystem | None = None
        self._tree = QuotaTree(QueueSystem())
        self._losses = Losses(QueueConfig(), 0)
        self._running: dict[str, Running] = {}
        self._saved: list[Saved] = []
        self.waiting: dict[int, Pending] = {}
        """Identity of a workload that waits in a queue of this tree → what is known of it."""

    def forget_gone(self, waiting: int) -> None:
        """Those that wait no more are dropped once there are many of them."""
        if len(self.waiting) > 2 * waiting + 1024:
            self.waiting = {}

    def tree(
        self, system: QueueSystem, config: QueueConfig, now: int, running: Iterable[Workload]
    ) -> QuotaTree:
        """The tree on which exactly these are counted. It is the caller's until the next call."""
        if system is not self._system:
            self._system, self._tree, self._running, self.waiting = system, QuotaTree(system), {}, {}
        else:
            for node, usage, members in self._saved:
                node.usage, node.running = usage, members
        self._losses.begin(config, now)
        self._count(running)
        self._saved = [(node, dict(node.usage), dict(node.running)) for node in self._tree.nodes()]
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
            node = queues.get(workload.admission.queue) if workload.admission is not None else None
            if node is not None:
                known[workload.key] = made = running_workload(workload, node, self._losses)
                node.running[workload.key] = made
                added = changed.setdefault(node, {})
                for cell, amount in made.usage.items():
                    added[cell] = added.get(cell, 0) + amount
                counted += 1
        if counted != len(known):
            for key in known.keys() - {workload.key for workload in here}:
                self._leave(known[key], changed)
        for node, added in changed.items():
            node.add(added)
            node.running = {key: node.running[key] for key in sorted(node.running)}

    def _leave(self, running: Running, changed: dict[QuotaNode, Usage]) -> None:
        running.leave()
        changed.setdefault(running.node, {})
        del self._running[running.key]
