"""Where everybody's pods are on the overlay: who runs, who was placed in this decision, who was taken off.

`placement.workload_placer` books through it and undoes with it; `timeplan` and `admission` read it. What a running
workload's pods are is looked up when somebody asks, since most of those that run are never asked about. One that has
no pods yet (its topology assignment says where they will be) is seated at once like one that has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

import msgspec
import numpy as np

from windlass.model.workload import PodSet, PodSetAssignment, Workload
from windlass.placement.gang import PodPlacement
from windlass.placement.overlay import AssumedPod, Overlay
from windlass.placement.pod_set_builder import PodSetBuilder


class WorkloadPods(msgspec.Struct):
    """Where a workload's pods are on the overlay."""

    running_rows: list[int]
    """Rows of the snapshot's pods."""
    placed: list[PodPlacement]
    """What was placed in this decision."""
    pod_set_names: tuple[str, ...] = ()
    """Names of the pod sets whose numbers stand in `placed`."""
    pod_set_by_row: dict[int, str] = {}
    """Row of a pod → its pod set."""


class _Kind(Enum):
    PLACED = "placed"
    REMOVED = "removed"
    RETURNED = "returned"


class _Undo(NamedTuple):
    """How things were before a step."""

    kind: _Kind
    overlay: int
    key: str
    seats: WorkloadPods | None
    gone: set[int] | None


class PlacedWorkloads(Mapping[str, WorkloadPods]):
    """Workload → its seats, with an undo log."""

    def __init__(
        self,
        overlay: Overlay,
        builder: PodSetBuilder,
        running: Iterable[Workload],
        removed_nodes: Mapping[str, set[int]],
    ) -> None:
        """`gone`: workloads that were taken off the overlay before → the nodes that they were on."""
        self._overlay, self._members = overlay, builder
        self._row_of = overlay.pod_rows()
        self._seats: dict[str, WorkloadPods] = {}
        self._unread: dict[str, Workload] = {}
        """Those that run, and have not been asked about yet."""
        self._gone: dict[str, set[int]] = dict(removed_nodes)
        """Removed workload → the nodes that it was on."""
        self._away: dict[str, tuple[WorkloadPods, set[int] | None]] = {}
        """Who may come back → their seats, and what stood in `_gone` before."""
        self._undo: list[_Undo] = []
        self.track_running(running)

    # Looking

    def __contains__(self, key: object) -> bool:
        return key in self._seats or key in self._unread

    def __getitem__(self, key: str) -> WorkloadPods:
        found = self._seats.get(key)
        if found is None:
            workload = self._unread.pop(key)
            found = self._seats[key] = self._overlay.cache.workload_pods.get_or_make(
                workload, self._of_running
            )
        return found

    def __iter__(self) -> Iterator[str]:
        yield from self._seats
        yield from self._unread

    def __len__(self) -> int:
        return len(self._seats) + len(self._unread)

    def get_or_empty(self, key: str) -> WorkloadPods:
        """Empty ones for whom nobody knows."""
        return self[key] if key in self else WorkloadPods([], [])

    def pod_row(self, pod: str) -> int | None:
        """Row of the snapshot's pods."""
        return self._row_of.get(pod)

    @property
    def follows_removal(self) -> bool:
        """The last thing done here was to take somebody off: what is placed next is what others go for."""
        for last in reversed(self._undo):
            if last.key in self._gone:
                return True
            if last.kind is _Kind.PLACED:
                return False
        return False

    def victims_by_node(self) -> dict[int, tuple[str, ...]]:
        """Node → running workloads that were taken off it, so that their room is free only once they are gone."""
        found: dict[int, list[str]] = {}
        for key in sorted(self._gone):
            for node in self._gone[key]:
                found.setdefault(node, []).append(key)
        return {node: tuple(keys) for node, keys in found.items()}

    def removed_from(self, nodes: set[int]) -> tuple[str, ...]:
        """Who was taken off any of these nodes."""
        return tuple(sorted(key for key, there in self._gone.items() if there & nodes))

    # Changing and undoing

    def checkpoint(self) -> int:
        return len(self._undo)

    def rollback(self, to: int) -> None:
        if len(self._undo) <= to:
            return
        self._overlay.rollback(self._undo[to].overlay)
        while len(self._undo) > to:
            kind, _, key, seats, nodes = self._undo.pop()
            known = self._seats.pop(key, None)
            before = self._gone.pop(key, None)
            if kind is _Kind.REMOVED:
                self._away.pop(key, None)
            elif kind is _Kind.RETURNED and known is not None:
                self._away[key] = (known, before)
            if seats is not None:
                self._seats[key] = seats
            if nodes is not None:
                self._gone[key] = nodes

    def begin_placing(self, key: str) -> None:
        """Something is about to be placed for it; `forget_last` if nothing comes of it."""
        self._remember(_Kind.PLACED, key)

    def _remember(self, kind: _Kind, key: str) -> None:
        before = self._overlay.checkpoint()
        self._undo.append(_Undo(kind, before, key, self.get(key), self._gone.get(key)))

    def cancel_placing(self) -> None:
        self._undo.pop()

    def add_placed(self, key: str, places: Iterable[PodPlacement], sets: tuple[str, ...]) -> None:
        there = self.get_or_empty(key)
        self._seats[key] = WorkloadPods(
            there.running_rows, [*there.placed, *places], sets, there.pod_set_by_row
        )

    def remove(self, workload: Workload) -> None:
        self._remember(_Kind.REMOVED, workload.key)
        seats = self._seats.pop(workload.key, WorkloadPods([], []))
        self._away[workload.key] = (seats, self._gone.get(workload.key))
        nodes = {int(self._overlay.snapshot.pods.node[row]) for row in seats.running_rows}
        for row in seats.running_rows:
            self._overlay.remove_running(row)
        for place in seats.placed:
            self._overlay.forget(place.assumed)
            nodes.add(place.assumed.node)
        # What was only just placed here is taken back at once: nobody waits for it.
        nodes |= self._gone.get(workload.key, set())
        self._gone[workload.key] = nodes if workload.admission is not None else set()

    def restore(self, workload: Workload) -> None:
        """Somebody who was removed, whatever was done since."""
        self._remember(_Kind.RETURNED, workload.key)
        seats, before = self._away.pop(workload.key)
        for row in seats.running_rows:
            self._overlay.restore_running(row)
        for place in seats.placed:
            self._overlay.assume_again(place.assumed)
        self._seats[workload.key] = seats
        self._gone.pop(workload.key, None)
        if before is not None:
            self._gone[workload.key] = before

    # Those that run

    def track_running(self, running: Iterable[Workload]) -> None:
        """Know where these workloads' pods are. Most are known, and a call for each would cost more than a look."""
        unread, seats, gone = self._unread, self._seats, self._gone
        for workload in running:
            key = workload.key
            if key in unread or key in seats or key in gone:
                continue
            if workload.kind == "Pod" or self._has_pods(workload):
                unread[key] = workload
            else:
                seats[key] = self._of_assignment(workload)

    def _has_pods(self, workload: Workload) -> bool:
        rows = self._row_of
        for pod_set in workload.pod_sets:
            for name in pod_set.pod_keys:
                if name in rows:
                    return True
        return False

    def _of_running(self, workload: Workload) -> WorkloadPods:
        nodes = self._overlay.snapshot.pods.node
        rows = {
            self._row_of[name]: pod_set.name
            for pod_set in workload.pod_sets
            for name in pod_set.pod_keys
            if name in self._row_of
        }
        return WorkloadPods([row for row in rows if nodes[row] >= 0], [], pod_set_by_row=rows)

    def _of_assignment(self, workload: Workload) -> WorkloadPods:
        """Books what has a place and no pod yet."""
        seats = WorkloadPods([], [])
        if workload.admission is not None and not workload.unreadable:
            seats.pod_set_names = tuple(one.name for one in workload.admission.assignments)
            sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
            for i, assignment in enumerate(workload.admission.assignments):
                if assignment.name in sets:
                    seats.placed += self._seat(i, sets[assignment.name], assignment)
        return seats

    def _seat(self, part: int, pod_set: PodSet, assignment: PodSetAssignment) -> list[PodPlacement]:
        facts = self._overlay.snapshot.nodes
        pod, shape = self._members.with_flavors(pod_set.template, [])
        row = self._overlay.table.row(shape, self._overlay.snapshot)
        wanted = [
            facts.index[name]
            for name, count in assignment.nodes.items()
            for _ in range(count)
            if name in facts.index
        ]
        places = []
        for member, node in enumerate(wanted):
            places.append(PodPlacement(part, member, self._overlay.assume_unchecked(pod, row, node)))
        for values, count in assignment.domains if not assignment.nodes else ():
            there = facts.matching_labels(dict(zip(assignment.levels, values, strict=False)))
            for _ in range(count):
                placing = self._seat_in(pod_set, row, np.flatnonzero(there).tolist())
                if placing is not None:
                    places.append(PodPlacement(part, len(places), placing))
        return places

    def _seat_in(self, pod_set: PodSet, row: int, nodes: list[int]) -> AssumedPod | None:
        """In a domain, a pod sits on the first node that has room for it, or on the first at all."""
        self._overlay.refresh(row)
        score = self._overlay.table.cells.score[row]
        fitting = [node for node in nodes if self._overlay.table.cells.why[row, node] == 0]
        best = max(fitting, key=lambda node: (score[node], -node)) if fitting else next(iter(nodes), None)
        return None if best is None else self._overlay.assume_unchecked(pod_set.template, row, best)
