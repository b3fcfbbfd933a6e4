"""What was worked out for workloads and pods in earlier decisions, kept as long as the objects are the very same.

Part of the engine's memo, handed on with the overlay; `admission`, `site` and `timeplan` ask here first. The store
gives a new object for every workload of which anything changed, so that being the same object means being
unchanged. An empty one gives the same plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from windlass.cluster.node_state import Ints
from windlass.cluster.pod_table import PodRows
from windlass.cluster.shape import Shape
from windlass.cluster.snapshot import Snapshot
from windlass.model.configuration import ResourceRules
from windlass.model.pod import Pod
from windlass.model.workload import Workload
from windlass.placement.topology.tree import DomainTree
from windlass.queueing.quota_cache import QuotaTreeCache
from windlass.queueing.quota_node import Usage

T = TypeVar("T")
_SPARE = 1024
"""Entries of workloads that are gone are dropped once there are so many more of them than of others."""


class WorkloadCache(Generic[T]):
    """One value a workload, by the very object."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[Workload, T]] = {}
        """Identity → the object, which so can't be another one, and its value."""

    def get_or_make(self, workload: Workload, make: Callable[[Workload], T]) -> T:
        known = self.entries.get(id(workload))
        if known is None:
            known = self.entries[id(workload)] = (workload, make(workload))
        return known[1]


class DecisionCache:
    def __init__(self) -> None:
        self._basis: tuple[object, ...] = ()
        self._rows = PodIndex()
        self._rules = ResourceRules()
        self.counted = QuotaTreeCache()
        self._forget()

    def _forget(self) -> None:
        self.counted.pending_by_id = {}
        self.pieces: WorkloadCache[tuple[Workload, ...]] = WorkloadCache()
        """Workload → the pieces that are decided for themselves."""
        self.workload_pods: WorkloadCache[Any] = WorkloadCache()
        """Piece → where its pods are, for those that have some (`site.Seats`)."""
        self.quota_requests: dict[int, tuple[Pod, dict[str, int]]] = {}
        """Identity of a template → the template, and what of it counts against quota."""
        self.resource_names: dict[int, tuple[Pod, tuple[str, ...]]] = {}
        """The same, and the names of all that it asks for."""
        self.domain_trees: dict[tuple[str, str], DomainTree] = {}
        """Topology and flavor → the domains of its nodes."""
        self.flavored_pods: dict[tuple[int, tuple[str, ...]], tuple[Pod, Pod, Shape]] = {}
        """Identity of a template and flavors → the template, and the pod and shape that they make of it."""
        self.usage: WorkloadCache[Usage] = WorkloadCache()
        """Piece → the quota that it holds."""

    def start_decision(self, snapshot: Snapshot) -> None:
        """A decision on this snapshot begins."""
        basis = (snapshot.nodes, snapshot.queue_system, snapshot.pods.objects)
        same = len(basis) == len(self._basis) and all(map(_is, basis, self._basis))
        most = 2 * len(snapshot.workloads) + _SPARE
        kept: tuple[Sized, ...] = (
            self.pieces.entries,
            self.workload_pods.entries,
            self.flavored_pods,
            self.resource_names,
        )
        if not same or max(map(len, kept)) > most:
            self._basis = basis
            self._forget()

    def quota_requests_under(self, rules: ResourceRules) -> dict[int, tuple[Pod, dict[str, int]]]:
        """`requests`, of these very rules."""
        if rules != self._rules:
            self._rules, self.quota_requests, self.counted.pending_by_id = rules, {}, {}
        return self.quota_requests

    def pod_rows(self, pods: PodRows) -> dict[str, int]:
        """Pod key → row of these pods. Not to be written to, and good for this decision only."""
        return self._rows.update(pods)


def _is(one: object, other: object) -> bool:
    return one is other


class PodIndex:
    """Pod key → row; follows a table that grows, and in which rows die."""

    def __init__(self) -> None:
        self._objects: object = None
        self._alive: Ints = np.zeros(0, dtype=np.int64)
        self._row_of: dict[str, int] = {}

    def update(self, pods: PodRows) -> dict[str, int]:
        known, alive = len(self._alive), pods.alive
        follows = pods.objects is self._objects and len(alive) >= known
        if not follows or bool((alive[:known] > self._alive).any()):
            self._row_of, known = {}, 0
        else:
            for row in np.flatnonzero(alive[:known] < self._alive).tolist():
                key = pods.keys[row]
                if self._row_of.get(key) == row:
                    del self._row_of[key]
        for row in (known + np.flatnonzero(alive[known:])).tolist():
            self._row_of[pods.keys[row]] = row
        self._objects, self._alive = pods.objects, alive.copy()
        return self._row_of
