"""A node of the quota tree, and the workloads that hold quota in it.

`quota_tree` builds the nodes; `flavor_assigner` asks what is available; preemption removes workloads and puts them
back. A node keeps what its lending limit withholds from its parent (`local_quota`), and only usage beyond that counts
in the parent. So adding and removing usage are exact inverses in any order, and no copy of the tree is ever needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from windlass.model.queue import ClusterQueue, FlavorResourceQuota
from windlass.model.workload import Workload

FlavorResource = tuple[str, str]
"""(flavor, resource); a "cell" of quota."""
Usage = dict[FlavorResource, int]

_NO_QUOTA = FlavorResourceQuota(0)


class QuotaNode:
    """A ClusterQueue or a Cohort."""

    __slots__ = (
        "admitted",
        "cohorts",
        "height",
        "inactive_queues",
        "lendable",
        "local_quota",
        "name",
        "parent",
        "potential_available_cache",
        "queue",
        "queues",
        "quotas",
        "request_shapes",
        "subtree_quota",
        "usage",
        "weight_milli",
    )

    def __init__(self, name: str, quotas: dict[FlavorResource, FlavorResourceQuota], weight_milli: int) -> None:
        self.name = name
        self.quotas = quotas
        self.weight_milli = weight_milli
        self.queue: ClusterQueue | None = None
        self.parent: QuotaNode | None = None
        self.cohorts: list[QuotaNode] = []
        self.queues: list[QuotaNode] = []
        self.inactive_queues: list[QuotaNode] = []
        """Their quota and usage count, but they are neither compared nor preempted."""
        self.height = 0
        self.subtree_quota: Usage = {}
        self.local_quota: Usage = {}
        self.usage: Usage = {}
        self.potential_available_cache: Usage = {}
        self.lendable: dict[str, int] = {}
        self.admitted: dict[str, AdmittedWorkload] = {}
        self.request_shapes: dict[tuple[object, ...], int] = {}
        """Description of a pending workload → its shape number (`PendingWorkload.shape`)."""

    @property
    def spec(self) -> ClusterQueue:
        assert self.queue is not None, "only leaves of the tree are queues"
        return self.queue

    @property
    def root(self) -> QuotaNode:
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def ancestors(self) -> Iterator[QuotaNode]:
        """From the parent to the root."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def subtree_queues(self) -> Iterator[QuotaNode]:
        yield from self.queues
        for cohort in self.cohorts:
            yield from cohort.subtree_queues()

    @property
    def path(self) -> str:
        """`/cohort/…/queue`, as messages name it."""
        return "/" + "/".join([*reversed([node.name for node in self.ancestors()]), self.name])

    def quota(self, cell: FlavorResource) -> FlavorResourceQuota:
        return self.quotas.get(cell, _NO_QUOTA)

    def unborrowed(self, cell: FlavorResource) -> int:
        """What is left of its own quota for work that may not borrow, whatever other work of the queue uses of it."""
        admitted = self.admitted.values()
        used = sum(running.usage.get(cell, 0) for running in admitted if not running.workload.may_borrow)
        return self.quota(cell).nominal - used

    def local_available(self, cell: FlavorResource) -> int:
        """Unused quota that is withheld from the parent."""
        return max(0, self.local_quota.get(cell, 0) - self.usage.get(cell, 0))

    def headroom(self, cell: FlavorResource) -> int:
        """What could be added now; negative where quota was reduced below usage."""
        used = self.usage.get(cell, 0)
        subtree = self.subtree_quota.get(cell, 0)
        if self.parent is None:
            return subtree - used
        local_quota = self.local_quota.get(cell, 0)
        above = self.parent.headroom(cell)
        limit = self.quota(cell).borrowing_limit
        if limit is not None:
            # The limit counts from the quota that is shared; what lies in the withheld part is not borrowed.
            above = min(above, subtree - local_quota - max(0, used - local_quota) + limit)
        return max(0, local_quota - used) + above

    def available(self, cell: FlavorResource) -> int:
        return max(0, self.headroom(cell))

    def fits(self, usage: Usage) -> bool:
        return all(amount <= self.available(cell) for cell, amount in usage.items())

    def borrows_with(self, cell: FlavorResource, extra: int) -> bool:
        return self.subtree_quota.get(cell, 0) < self.usage.get(cell, 0) + extra

    def within_nominal(self, cells: frozenset[FlavorResource]) -> bool:
        return all(self.subtree_quota.get(cell, 0) >= self.usage.get(cell, 0) for cell in cells)

    def potential_available(self, cell: FlavorResource) -> int:
        """The largest request that an empty tree could admit here."""
        known = self.potential_available_cache.get(cell)
        if known is not None:
            return known
        largest = self.subtree_quota.get(cell, 0)
        if self.parent is not None:
            limit = self.quota(cell).borrowing_limit
            below = self.local_quota.get(cell, 0) + self.parent.potential_available(cell)
            largest = below if limit is None else min(largest + limit, below)
        # Depends on quota alone, and the tree is built anew when that changes.
        self.potential_available_cache[cell] = largest
        return largest

    def add_usage(self, usage: Mapping[FlavorResource, int]) -> None:
        for cell, amount in usage.items():
            self._add(cell, amount)

    def remove_usage(self, usage: Mapping[FlavorResource, int]) -> None:
        for cell, amount in usage.items():
            self._remove(cell, amount)

    def _add(self, cell: FlavorResource, amount: int) -> None:
        local = self.local_available(cell)
        self.usage[cell] = self.usage.get(cell, 0) + amount
        if self.parent is not None and amount > local:
            self.parent._add(cell, amount - local)

    def _remove(self, cell: FlavorResource, amount: int) -> None:
        used = self.usage.get(cell, 0)
        # What shows in the parent goes first; so this undoes `_add`, in whatever order usage came and goes.
        shown_above = used - self.local_quota.get(cell, 0)
        self.usage[cell] = used - amount
        if self.parent is not None and shown_above > 0:
            self.parent._remove(cell, min(amount, shown_above))


class EvictionCostSource(Protocol):
    def of(self, running: AdmittedWorkload) -> tuple[int, int]:
        """Cost of evicting it now, as `admitted_workload` computes it."""


class AdmittedWorkload:
    """A workload that holds quota, as preemption sees it. There are many, so most properties are computed on demand."""

    __slots__ = (
        "assumed_nodes",
        "eviction_costs",
        "is_assumed",
        "key",
        "node",
        "priority",
        "reserved_at",
        "usage",
        "workload",
    )

    def __init__(self, workload: Workload, node: QuotaNode, usage: Usage, reserved_at: int) -> None:
        self.workload = workload
        self.key = workload.key
        self.node = node
        self.usage = usage
        self.priority = workload.priority
        self.reserved_at = reserved_at
        self.is_assumed = False
        """Admitted in this decision: withdrawing it costs nothing."""
        self.eviction_costs: EvictionCostSource | None = None
        """Computes its eviction cost; None: it costs nothing."""
        self.assumed_nodes: frozenset[str] | None = None
        """Nodes that it got in this decision."""

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes of its pods, as far as known."""
        admission = self.workload.admission
        if self.assumed_nodes is not None or admission is None:
            return self.assumed_nodes or frozenset()
        return frozenset(name for part in admission.assignments for name in part.nodes)

    @property
    def pod_count(self) -> int:
        """Pods that exist; 0 for an admission of this decision."""
        if self.is_assumed:
            return 0
        count = 0
        for pod_set in self.workload.pod_sets:  # a loop: this is asked of every candidate, several times
            count += len(pod_set.pod_keys)
        return count

    @property
    def queued_at(self) -> int:
        return queue_order_timestamp(self.workload)

    @property
    def uid(self) -> str:
        return self.workload.uid or self.key

    @property
    def local_queue(self) -> str:
        return local_queue_key(self.workload)

    @property
    def eviction_cost(self) -> tuple[int, int]:
        return self.eviction_costs.of(self) if self.eviction_costs is not None else (0, 0)

    @property
    def is_evicting(self) -> bool:
        return self.workload.evicting

    def add_to_tree(self) -> None:
        self.node.admitted[self.key] = self
        self.node.add_usage(self.usage)

    def remove_from_tree(self) -> None:
        del self.node.admitted[self.key]
        self.node.remove_usage(self.usage)


def queue_order_timestamp(workload: Workload) -> int:
    """Since when it waits: its last requeue, else its creation."""
    return workload.queued_at or workload.created


def local_queue_key(workload: Workload) -> str:
    return f"{workload.namespace}/{workload.queue_name}"
