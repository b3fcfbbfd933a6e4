"""A node of the quota tree, and the workloads that hold quota in it.

`tree` builds the nodes; `flavors` asks what is available, `preemption` takes workloads off and puts them back. A node
keeps what its lending limit withholds from its parent (`local`), and only usage beyond that shows in the parent, so
adding and removing usage are exact inverses in any order and no copy is ever needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from windlass.model.queue import ClusterQueue, QuotaCell
from windlass.model.workload import Workload

Cell = tuple[str, str]
"""(flavor, resource)."""
Usage = dict[Cell, int]

_NO_QUOTA = QuotaCell(0)


class QuotaNode:
    """A ClusterQueue or a Cohort."""

    __slots__ = (
        "cohorts",
        "height",
        "idle",
        "lendable",
        "local",
        "name",
        "parent",
        "potential",
        "queue",
        "queues",
        "quotas",
        "running",
        "shapes",
        "subtree",
        "usage",
        "weight_milli",
    )

    def __init__(self, name: str, quotas: dict[Cell, QuotaCell], weight_milli: int) -> None:
        self.name = name
        self.quotas = quotas
        self.weight_milli = weight_milli
        self.queue: ClusterQueue | None = None
        self.parent: QuotaNode | None = None
        self.cohorts: list[QuotaNode] = []
        self.queues: list[QuotaNode] = []
        self.idle: list[QuotaNode] = []
        """Inactive queues: what they have and use counts, but they are neither compared nor preempted."""
        self.height = 0
        self.subtree: Usage = {}
        self.local: Usage = {}
        self.usage: Usage = {}
        self.potential: Usage = {}
        self.lendable: dict[str, int] = {}
        self.running: dict[str, Running] = {}
        self.shapes: dict[tuple[object, ...], int] = {}
        """What is asked of a queue → a number for it."""

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

    def quota(self, cell: Cell) -> QuotaCell:
        return self.quotas.get(cell, _NO_QUOTA)

    def local_available(self, cell: Cell) -> int:
        """Room that the parent doesn't see."""
        return max(0, self.local.get(cell, 0) - self.usage.get(cell, 0))

    def headroom(self, cell: Cell) -> int:
        """What could be added now; negative where quota was taken away from what runs."""
        used = self.usage.get(cell, 0)
        subtree = self.subtree.get(cell, 0)
        if self.parent is None:
            return subtree - used
        local = self.local.get(cell, 0)
        room = self.parent.headroom(cell)
        limit = self.quota(cell).borrowing_limit
        if limit is not None:
            room = min(room, subtree - local - max(0, used - local) + limit)
        return max(0, local - used) + room

    def available(self, cell: Cell) -> int:
        return max(0, self.headroom(cell))

    def fits(self, usage: Usage) -> bool:
        return all(amount <= self.available(cell) for cell, amount in usage.items())

    def borrows_with(self, cell: Cell, extra: int) -> bool:
        return self.subtree.get(cell, 0) < self.usage.get(cell, 0) + extra

    def within_nominal(self, cells: frozenset[Cell]) -> bool:
        return all(self.subtree.get(cell, 0) >= self.usage.get(cell, 0) for cell in cells)

    def maximum(self, cell: Cell) -> int:
        """The largest request that an empty tree could admit here."""
        known = self.potential.get(cell)
        if known is not None:
            return known
        most = self.subtree.get(cell, 0)
        if self.parent is not None:
            limit = self.quota(cell).borrowing_limit
            below = self.local.get(cell, 0) + self.parent.maximum(cell)
            most = below if limit is None else min(most + limit, below)
        self.potential[cell] = most
        return most

    def add(self, usage: Mapping[Cell, int]) -> None:
        for cell, amount in usage.items():
            self._add(cell, amount)

    def remove(self, usage: Mapping[Cell, int]) -> None:
        for cell, amount in usage.items():
            self._remove(cell, amount)

    def _add(self, cell: Cell, amount: int) -> None:
        room = self.local_available(cell)
        self.usage[cell] = self.usage.get(cell, 0) + amount
        if self.parent is not None and amount > room:
            self.parent._add(cell, amount - room)

    def _remove(self, cell: Cell, amount: int) -> None:
        used = self.usage.get(cell, 0)
        shown_above = used - self.local.get(cell, 0)
        self.usage[cell] = used - amount
        if self.parent is not None and shown_above > 0:
            self.parent._remove(cell, min(amount, shown_above))


class Losses(Protocol):
    def of(self, running: Running) -> tuple[int, int]:
        """What evicting it now would lose."""


class Running:
    """A workload that holds quota, as preemption sees it. There are many, and most are never asked about."""

    __slots__ = ("fresh", "key", "losses", "node", "place", "priority", "reserved_at", "usage", "workload")

    def __init__(self, workload: Workload, node: QuotaNode, usage: Usage, reserved_at: int) -> None:
        self.workload = workload
        self.key = workload.key
        self.node = node
        self.usage = usage
        self.priority = workload.priority
        self.reserved_at = reserved_at
        self.fresh = False
        """Admitted in this very decision: taking it back costs nothing."""
        self.losses: Losses | None = None
        """Who knows what evicting it would lose; None: nothing."""
        self.place: frozenset[str] | None = None
        """Nodes that it was given in this very decision."""

    @property
    def nodes(self) -> frozenset[str]:
        """Where its pods are, as far as is known."""
        admission = self.workload.admission
        if self.place is not None or admission is None:
            return self.place or frozenset()
        return frozenset(name for part in admission.assignments for name in part.nodes)

    @property
    def pods(self) -> int:
        """Those that exist, of what runs."""
        return 0 if self.fresh else sum(len(pod_set.pods) for pod_set in self.workload.pod_sets)

    @property
    def queued_at(self) -> int:
        return queue_time(self.workload)

    @property
    def uid(self) -> str:
        return self.workload.uid or self.key

    @property
    def local_queue(self) -> str:
        return local_queue_key(self.workload)

    @property
    def loss(self) -> tuple[int, int]:
        return self.losses.of(self) if self.losses is not None else (0, 0)

    @property
    def is_evicting(self) -> bool:
        return self.workload.evicted

    def join(self) -> None:
        self.node.running[self.key] = self
        self.node.add(self.usage)

    def leave(self) -> None:
        del self.node.running[self.key]
        self.node.remove(self.usage)


def queue_time(workload: Workload) -> int:
    """Since when it waits, for order among equals."""
    return workload.queued_at or workload.created


def local_queue_key(workload: Workload) -> str:
    return f"{workload.namespace}/{workload.queue}"
