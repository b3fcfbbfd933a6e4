"""The quota tree: ClusterQueues as leaves, Cohorts above them.

Built from a `QueueSystem` by `quota_cache`, which adds the usage of admitted workloads. As in Kueue, a cohort exists as
soon as an object names it, and all queues below a cycle of cohorts are inactive.
"""

from __future__ import annotations

from windlass.model.queue import ClusterQueue, Cohort, FlavorResourceQuota, QueueSystem, ResourceGroup
from windlass.queueing.quota_node import FlavorResource, QuotaNode


class QuotaTree:
    """All queues by name, the inactive ones with their reason."""

    def __init__(self, system: QueueSystem) -> None:
        self.queues: dict[str, QuotaNode] = {}
        self.inactive_reasons: dict[str, str] = {}
        self._cohorts: dict[str, QuotaNode] = {}
        self._cyclic: set[str] = set()
        self._system = system
        for name in sorted(system.cohorts):
            self._cohort(name)
        for name in sorted(system.queues):
            self._add_queue(system.queues[name])
        for cohort in self._cohorts.values():
            if cohort.parent is None:
                _accumulate(cohort)
        for node in self.queues.values():
            if node.parent is None:
                _accumulate(node)

    def nodes(self) -> list[QuotaNode]:
        return [*self._cohorts.values(), *self.queues.values()]

    def _cohort(self, name: str) -> QuotaNode:
        """The node of a cohort, made (with those above it) when it is first named."""
        known = self._cohorts.get(name)
        if known is not None:
            return known
        cohort = self._system.cohorts.get(name, Cohort(name))
        node = QuotaNode(name, quotas_of(cohort.resource_groups), cohort.fair_weight_milli)
        self._cohorts[name] = node
        # Left without a parent, so that walking up always ends.
        if self._in_cycle(name):
            self._cyclic.add(name)
        elif cohort.parent:
            node.parent = self._cohort(cohort.parent)
            node.parent.cohorts.append(node)
        return node

    def _in_cycle(self, name: str) -> bool:
        """Whether following the parents of this cohort leads into a cycle."""
        seen: set[str] = set()
        while name and name not in seen:
            seen.add(name)
            cohort = self._system.cohorts.get(name)
            name = cohort.parent if cohort is not None else ""
        return bool(name)

    def _add_queue(self, queue: ClusterQueue) -> None:
        node = QuotaNode(queue.name, quotas_of(queue.resource_groups), queue.fair_weight_milli)
        node.queue = queue
        self.queues[queue.name] = node
        if queue.cohort:
            node.parent = self._cohort(queue.cohort)
        reason = self._inactive_reason(queue)
        if reason:
            self.inactive_reasons[queue.name] = reason
        if node.parent is not None:
            (node.parent.inactive_queues if reason else node.parent.queues).append(node)

    def _inactive_reason(self, queue: ClusterQueue) -> str:
        if queue.stop_policy != "None":
            return "is stopped"
        if queue.inactive_reason:
            return f"is inactive: {queue.inactive_reason}"
        for group in queue.resource_groups:
            for quotas in group.flavors:
                if quotas.flavor not in self._system.flavors:
                    return f"is inactive: references missing ResourceFlavor {quotas.flavor}"
        if queue.cohort in self._cyclic:
            return f"is inactive: the parents of cohort {queue.cohort} form a cycle"
        return ""


def quotas_of(groups: tuple[ResourceGroup, ...]) -> dict[FlavorResource, FlavorResourceQuota]:
    return {
        (quotas.flavor, resource): cell
        for group in groups
        for quotas in group.flavors
        for resource, cell in quotas.quotas.items()
    }


def _accumulate(node: QuotaNode) -> None:
    """Fills `subtree_quota`, `local_quota` and `height` from the leaves to the root."""
    node.subtree_quota = {cell: quota.nominal for cell, quota in node.quotas.items()}
    # Inactive queues lend, too: as in Kueue, a stopped queue leaves its quota to the cohort.
    for child in (*node.cohorts, *node.queues, *node.inactive_queues):
        _accumulate(child)
        for cell, amount in child.subtree_quota.items():
            node.subtree_quota[cell] = node.subtree_quota.get(cell, 0) + amount - child.local_quota.get(cell, 0)
    for cell, quota in node.quotas.items():
        if quota.lending_limit is not None:
            node.local_quota[cell] = max(0, node.subtree_quota[cell] - quota.lending_limit)
    if node.queue is None:
        node.height = max([min(1, len(node.queues)), *(cohort.height + 1 for cohort in node.cohorts)])
