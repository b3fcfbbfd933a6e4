"""Where the pods of every workload are on the overlay: running, placed in this decision, or removed.

`placement.workload_placer` changes it and rolls it back; `timeplan`, `preemption` and `explain` read it. The pods of a
running workload are looked up on first use, since most are never asked about. An admitted workload whose pods don't
exist yet (its topology assignment says where they will be) is assumed on the overlay at once.
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
    running_rows: list[int]
    """Rows of the snapshot's pods that have a node."""
    placed: list[PodPlacement]
    """Pods that were placed in this decision."""
    pod_set_names: tuple[str, ...] = ()
    """Names of the pod sets, by the number in `placed`."""
    pod_set_by_row: dict[int, str] = {}
    """Row of a pod → its pod set."""


class _StepKind(Enum):
    PLACED = "placed"
    REMOVED = "removed"
    RESTORED = "restored"


class _UndoEntry(NamedTuple):
    """The state of one workload before a step."""

    kind: _StepKind
    overlay: int
    """Checkpoint of the overlay."""
    key: str
    pods: WorkloadPods | None
    removed_nodes: set[int] | None


class PlacedWorkloads(Mapping[str, WorkloadPods]):
    """Workload → where its pods are, with an undo log."""

    def __init__(
        self,
        overlay: Overlay,
        builder: PodSetBuilder,
        running: Iterable[Workload],
        removed_nodes: Mapping[str, set[int]],
    ) -> None:
        """`removed_nodes`: workloads that were removed from the overlay before this → the nodes that they were on."""
        self._overlay, self._builder = overlay, builder
        self._row_of = overlay.pod_rows()
        self._pods: dict[str, WorkloadPods] = {}
        self._not_loaded: dict[str, Workload] = {}
        """Running workloads whose pods were not looked up yet."""
        self._removed_nodes: dict[str, set[int]] = dict(removed_nodes)
        """Removed workload → the nodes that it was on."""
        self._restorable: dict[str, tuple[WorkloadPods, set[int] | None]] = {}
        """Removed workload → its pods, and its entry in `_removed_nodes` before the removal."""
        self._undo: list[_UndoEntry] = []
        self.track_running(running)

    def __contains__(self, key: object) -> bool:
        return key in self._pods or key in self._not_loaded

    def __getitem__(self, key: str) -> WorkloadPods:
        found = self._pods.get(key)
        if found is None:
            workload = self._not_loaded.pop(key)
            found = self._pods[key] = self._overlay.cache.workload_pods.get_or_make(workload, self._load_running)
        return found

    def __iter__(self) -> Iterator[str]:
        yield from self._pods
        yield from self._not_loaded

    def __len__(self) -> int:
        return len(self._pods) + len(self._not_loaded)

    def get_or_empty(self, key: str) -> WorkloadPods:
        return self[key] if key in self else WorkloadPods([], [])

    def pod_row(self, pod: str) -> int | None:
        """Row of the snapshot's pods."""
        return self._row_of.get(pod)

    def victims_by_node(self) -> dict[int, tuple[str, ...]]:
        """Node → running workloads that were removed from it: its capacity is free only once they have terminated."""
        found: dict[int, list[str]] = {}
        for key in sorted(self._removed_nodes):
            for node in self._removed_nodes[key]:
                found.setdefault(node, []).append(key)
        return {node: tuple(keys) for node, keys in found.items()}

    def removed_from(self, nodes: set[int]) -> tuple[str, ...]:
        """Workloads that were removed from any of these nodes."""
        return tuple(sorted(key for key, was_on in self._removed_nodes.items() if was_on & nodes))

    # Changing and undoing

    def checkpoint(self) -> int:
        return len(self._undo)

    def rollback(self, to: int) -> None:
        if len(self._undo) <= to:
            return
        # The overlay in one step: it cancels out pods that were removed and restored in between.
        self._overlay.rollback(self._undo[to].overlay)
        while len(self._undo) > to:
            kind, _, key, pods_before, nodes_before = self._undo.pop()
            pods = self._pods.pop(key, None)
            nodes = self._removed_nodes.pop(key, None)
            if kind is _StepKind.REMOVED:
                self._restorable.pop(key, None)
            elif kind is _StepKind.RESTORED and pods is not None:
                self._restorable[key] = (pods, nodes)
            if pods_before is not None:
                self._pods[key] = pods_before
            if nodes_before is not None:
                self._removed_nodes[key] = nodes_before

    def begin_placing(self, key: str) -> None:
        """Pods are about to be placed for it; `cancel_placing` if that fails."""
        self._record(_StepKind.PLACED, key)

    def _record(self, kind: _StepKind, key: str) -> None:
        before = self._overlay.checkpoint()
        self._undo.append(_UndoEntry(kind, before, key, self.get(key), self._removed_nodes.get(key)))

    def cancel_placing(self) -> None:
        self._undo.pop()

    def add_placed(self, key: str, places: Iterable[PodPlacement], sets: tuple[str, ...]) -> None:
        pods = self.get_or_empty(key)
        # A new object: that of a running workload is cached and shared with later decisions.
        self._pods[key] = WorkloadPods(pods.running_rows, [*pods.placed, *places], sets, pods.pod_set_by_row)

    def remove(self, workload: Workload) -> None:
        self._record(_StepKind.REMOVED, workload.key)
        pods = self._pods.pop(workload.key, WorkloadPods([], []))
        self._restorable[workload.key] = (pods, self._removed_nodes.get(workload.key))
        # Nothing waits for a pod that does not end, since its capacity stays in use.
        ending = [row for row in pods.running_rows if row not in self._overlay.stuck_rows]
        nodes = {int(self._overlay.snapshot.pods.node[row]) for row in ending}
        for row in pods.running_rows:
            self._overlay.remove_running(row)
        for placement in pods.placed:
            self._overlay.forget(placement.assumed)
            nodes.add(placement.assumed.node)
        # A workload that was only placed in this decision frees its nodes at once: it has no pods to wait for.
        nodes |= self._removed_nodes.get(workload.key, set())
        self._removed_nodes[workload.key] = nodes if workload.admission is not None else set()

    def restore(self, workload: Workload) -> None:
        """Undo `remove`, whatever was done since."""
        self._record(_StepKind.RESTORED, workload.key)
        pods, nodes_before = self._restorable.pop(workload.key)
        for row in pods.running_rows:
            self._overlay.restore_running(row)
        for placement in pods.placed:
            self._overlay.assume_again(placement.assumed)
        self._pods[workload.key] = pods
        self._removed_nodes.pop(workload.key, None)
        if nodes_before is not None:
            self._removed_nodes[workload.key] = nodes_before

    # Running workloads

    def track_running(self, running: Iterable[Workload]) -> None:
        """Add running workloads; those that are known already are skipped."""
        # Hot: called with every running workload, of which most are known. Hence the local names.
        not_loaded, pods, removed = self._not_loaded, self._pods, self._removed_nodes
        for workload in running:
            key = workload.key
            if key in not_loaded or key in pods or key in removed:
                continue
            if workload.kind == "Pod" or self._has_pods(workload):
                not_loaded[key] = workload
            else:
                pods[key] = self._assume_assignment(workload)

    def _has_pods(self, workload: Workload) -> bool:
        rows = self._row_of
        for pod_set in workload.pod_sets:
            for name in pod_set.pod_keys:
                if name in rows:
                    return True
        return False

    def _load_running(self, workload: Workload) -> WorkloadPods:
        nodes = self._overlay.snapshot.pods.node
        rows = {
            self._row_of[name]: pod_set.name
            for pod_set in workload.pod_sets
            for name in pod_set.pod_keys
            if name in self._row_of
        }
        return WorkloadPods([row for row in rows if nodes[row] >= 0], [], pod_set_by_row=rows)

    def _assume_assignment(self, workload: Workload) -> WorkloadPods:
        """Assume the pods of a topology assignment that don't exist yet."""
        pods = WorkloadPods([], [])
        if workload.admission is not None and not workload.unreadable:
            assignments = workload.admission.assignments
            pods.pod_set_names = tuple(assignment.name for assignment in assignments)
            pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
            for i, assignment in enumerate(assignments):
                if assignment.name in pod_sets:
                    pods.placed += self._assume_pod_set(i, pod_sets[assignment.name], assignment)
        return pods

    def _assume_pod_set(self, number: int, pod_set: PodSet, assignment: PodSetAssignment) -> list[PodPlacement]:
        """By node where the assignment names nodes, else by domain."""
        nodes = self._overlay.snapshot.nodes
        pod, shape = self._builder.with_flavors(pod_set.template, [])
        row = self._overlay.table.row(shape, self._overlay.snapshot)
        assigned = [
            nodes.index[name] for name, count in assignment.nodes.items() for _ in range(count) if name in nodes.index
        ]
        placements = []
        for member, node in enumerate(assigned):
            placements.append(PodPlacement(number, member, self._overlay.assume_unchecked(pod, row, node)))
        # Kueue may name only the levels above the node; then the place inside the domain is our guess.
        for values, count in assignment.domains if not assignment.nodes else ():
            domain = nodes.matching_labels(dict(zip(assignment.levels, values, strict=False)))
            for _ in range(count):
                assumed = self._assume_in_domain(pod_set, row, np.flatnonzero(domain).tolist())
                if assumed is not None:
                    placements.append(PodPlacement(number, len(placements), assumed))
        return placements

    def _assume_in_domain(self, pod_set: PodSet, row: int, nodes: list[int]) -> AssumedPod | None:
        """On the best node of the domain that fits; on the first one where none does, since it is admitted there."""
        slot, cells = self._overlay.refresh(row), self._overlay.table.cells
        score = cells.score[slot]
        fitting = [node for node in nodes if cells.why[slot, node] == 0]
        # The lowest row on ties, as everywhere.
        best = max(fitting, key=lambda node: (score[node], -node)) if fitting else next(iter(nodes), None)
        return None if best is None else self._overlay.assume_unchecked(pod_set.template, row, best)
