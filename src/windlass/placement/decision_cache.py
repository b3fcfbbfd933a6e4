"""Values computed for workloads and pods in earlier decisions, valid while the objects are the same.

The engine keeps it between decisions and hands it on with the overlay; `workload_pieces`, `workload_placer`,
`pod_set_builder` and `timeplan` read and fill it. The store makes a new object for every workload that changed, so
entries are looked up by identity: the same object is unchanged. An empty cache gives the same plans.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from windlass.cluster.node_state import Ints
from windlass.cluster.pod_table import PodRows
from windlass.cluster.shape import Shape
from windlass.cluster.snapshot import Snapshot
from windlass.model.configuration import ResourceRules
from windlass.model.pod import Pod
from windlass.model.requests import Amounts, pod_requests
from windlass.model.workload import Workload
from windlass.placement.topology.tree import DomainTree
from windlass.queueing.quota_cache import QuotaTreeCache
from windlass.queueing.quota_node import Usage

T = TypeVar("T")
_MAX_STALE_ENTRIES = 1024
"""Everything is dropped once there are this many entries more than two for every workload."""


class WorkloadCache(Generic[T]):
    """One value a workload, by identity of the object."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[Workload, T]] = {}
        """id() → the object, kept so that its id is not reused, and its value."""

    def get_or_make(self, workload: Workload, make: Callable[[Workload], T]) -> T:
        entry = self.entries.get(id(workload))
        if entry is None:
            entry = self.entries[id(workload)] = (workload, make(workload))
        return entry[1]


class DecisionCache:
    def __init__(self) -> None:
        self._valid_for: tuple[object, ...] = ()
        self._pod_index = PodIndex()
        self._rules = ResourceRules()
        self.counted = QuotaTreeCache()
        self._clear()

    def _clear(self) -> None:
        self.counted.pending_by_id = {}
        self.pieces: WorkloadCache[tuple[Workload, ...]] = WorkloadCache()
        """Workload → its pieces."""
        self.workload_pods: WorkloadCache[Any] = WorkloadCache()
        """Running piece → where its pods are (`placed_workloads.WorkloadPods`)."""
        self.quota_requests: dict[int, tuple[Pod, dict[str, int]]] = {}
        """id() of a template → the template, and what a pod of it counts against quota."""
        self.template_requests: dict[int, tuple[Pod, Amounts]] = {}
        """id() of a template → the template, and its effective request."""
        self.domain_trees: dict[tuple[str, str], DomainTree] = {}
        """Topology and flavor → the domains of its nodes."""
        self.flavored_pods: dict[tuple[int, tuple[str, ...]], tuple[Pod, Pod, Shape]] = {}
        """id() of a template, queue and flavors → the template, and the pod and shape with the flavors applied."""
        self.usage: WorkloadCache[Usage] = WorkloadCache()
        """Piece → its quota usage."""

    def start_decision(self, snapshot: Snapshot) -> None:
        """Drop everything that is not valid for this snapshot, or where too much is stale."""
        inputs = (snapshot.nodes, snapshot.queue_system, snapshot.pods.objects)
        same = len(inputs) == len(self._valid_for) and all(map(operator.is_, inputs, self._valid_for))
        most = 2 * len(snapshot.workloads) + _MAX_STALE_ENTRIES
        by_piece: tuple[Sized, ...] = (self.pieces.entries, self.workload_pods.entries)
        if not same or max(map(len, (*by_piece, self.flavored_pods, self.template_requests))) > most:
            self._valid_for = inputs
            self._clear()

    def requests_of(self, template: Pod) -> Amounts:
        """Its effective request, which quota, eligible flavors and shapes all ask for. Read-only."""
        entry = self.template_requests.get(id(template))
        if entry is None:
            entry = self.template_requests[id(template)] = (template, pod_requests(template))
        return entry[1]

    def quota_requests_under(self, rules: ResourceRules) -> dict[int, tuple[Pod, dict[str, int]]]:
        """`quota_requests`, cleared where they were computed under other rules."""
        # Pending workloads are counted with these requests, so that they are stale, too.
        if rules != self._rules:
            self._rules, self.quota_requests, self.counted.pending_by_id = rules, {}, {}
        return self.quota_requests

    def pod_rows(self, pods: PodRows) -> dict[str, int]:
        """Pod key → row of these pods. Read-only, and valid for this decision only."""
        return self._pod_index.update(pods)


class PodIndex:
    """Pod key → row, updated with a pod table that only grows and in which rows die."""

    def __init__(self) -> None:
        self._objects: object = None
        self._alive: Ints = np.zeros(0, dtype=np.int64)
        self._row_of: dict[str, int] = {}

    def update(self, pods: PodRows) -> dict[str, int]:
        known, alive = len(self._alive), pods.alive
        same_table = pods.objects is self._objects and len(alive) >= known
        # A row that lives again means that the table was rebuilt.
        if not same_table or bool((alive[:known] > self._alive).any()):
            self._row_of, known = {}, 0
        else:
            for row in np.flatnonzero(alive[:known] < self._alive).tolist():
                key = pods.keys[row]
                # Another row may have taken the key since: a pod that was created again.
                if self._row_of.get(key) == row:
                    del self._row_of[key]
        for row in (known + np.flatnonzero(alive[known:])).tolist():
            self._row_of[pods.keys[row]] = row
        # A copy: once no snapshot shares the array, the store writes into it.
        self._objects, self._alive = pods.objects, alive.copy()
        return self._row_of
