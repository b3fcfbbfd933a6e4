"""What was worked out for workloads and pods in earlier decisions, kept as long as the objects are the very same.

Part of the engine's memo, handed on with the overlay; `admission`, `site` and `timeplan` ask here first. The store
gives a new object for every workload of which anything changed, so that being the same object means being
unchanged. An empty one gives the same plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from windlass.cluster.pods import PodRows
from windlass.cluster.shape import Shape
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.state import Ints
from windlass.model.configuration import ResourceRules
from windlass.model.pod import Pod
from windlass.model.workload import Workload
from windlass.placement.topology.tree import DomainTree
from windlass.queueing.counted import Counted
from windlass.queueing.node import Usage

T = TypeVar("T")
_SPARE = 1024
"""Entries of workloads that are gone are dropped once there are so many more of them than of others."""


class ByWorkload(Generic[T]):
    """One value a workload, by the very object."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Workload, T]] = {}
        """Identity → the object, which so can't be another one, and its value."""

    def of(self, workload: Workload, make: Callable[[Workload], T]) -> T:
        known = self.known.get(id(workload))
        if known is None:
            known = self.known[id(workload)] = (workload, make(workload))
        return known[1]


class Recall:
    def __init__(self) -> None:
        self._basis: tuple[object, ...] = ()
        self._rows = PodIndex()
        self._rules = ResourceRules()
        self.counted = Counted()
        self._forget()

    def _forget(self) -> None:
        self.counted.waiting = {}
        self.pieces: ByWorkload[tuple[Workload, ...]] = ByWorkload()
        """Workload → the pieces that are decided for themselves."""
        self.seats: ByWorkload[Any] = ByWorkload()
        """Piece → where its pods are, for those that have some (`site.Seats`)."""
        self.requests: dict[int, tuple[Pod, dict[str, int]]] = {}
        """Identity of a template → the template, and what of it counts against quota."""
        self.asked: dict[int, tuple[Pod, tuple[str, ...]]] = {}
        """The same, and the names of all that it asks for."""
        self.trees: dict[tuple[str, str], DomainTree] = {}
        """Topology and flavor → the domains of its nodes."""
        self.flavored: dict[tuple[int, tuple[str, ...]], tuple[Pod, Pod, Shape]] = {}
        """Identity of a template and flavors → the template, and the pod and shape that they make of it."""
        self.usage: ByWorkload[Usage] = ByWorkload()
        """Piece → the quota that it holds."""

    def begin(self, snapshot: Snapshot) -> None:
        """A decision on this snapshot begins."""
        basis = (snapshot.facts, snapshot.system, snapshot.pods.objects)
        same = len(basis) == len(self._basis) and all(map(_is, basis, self._basis))
        most = 2 * len(snapshot.workloads) + _SPARE
        kept: tuple[Sized, ...] = (self.pieces.known, self.seats.known, self.flavored, self.asked)
        if not same or max(map(len, kept)) > most:
            self._basis = basis
            self._forget()

    def requests_by(self, rules: ResourceRules) -> dict[int, tuple[Pod, dict[str, int]]]:
        """`requests`, of these very rules."""
        if rules != self._rules:
            self._rules, self.requests, self.counted.waiting = rules, {}, {}
        return self.requests

    def pod_rows(self, pods: PodRows) -> dict[str, int]:
        """Pod key → row of these pods. Not to be written to, and good for this decision only."""
        return self._rows.of(pods)


def _is(one: object, other: object) -> bool:
    return one is other


class PodIndex:
    """Pod key → row; follows a table that grows, and in which rows die."""

    def __init__(self) -> None:
        self._objects: object = None
        self._alive: Ints = np.zeros(0, dtype=np.int64)
        self._row_of: dict[str, int] = {}

    def of(self, pods: PodRows) -> dict[str, int]:
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
