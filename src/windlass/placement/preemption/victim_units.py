"""Who may have to go by priority: running pods in the units in which they go, with what that would lose.

Read from a snapshot by `context`; `ground` spreads the units over nodes. A unit is a lone pod, a gang with all its
members, or one member above a gang's minimum. What is leaving already costs nothing and is told to nobody again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from windlass.cluster.pod_table import UNREADABLE
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.workloads.pod_admission import start_time
from windlass.cluster.workloads.workload_attributes import declared_restart_cost, is_evictable
from windlass.model.kueue.workloads import LAST_CHECKPOINT
from windlass.model.pod import Pod
from windlass.model.times import parse_timestamp
from windlass.model.workload import Admission, PodSet, Workload
from windlass.placement.defrag.movable import held_gpu_milli
from windlass.placement.workload_pieces import is_above_minimum, split_workload, workload_key
from windlass.queueing.config import QueueConfig

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""The annotation by which a kubelet marks a static pod."""
_PARTS = 1_000_000

Loss = tuple[int, int]
"""Milli-GPU seconds; and, for what has no GPUs, millionths of its dominant resource times seconds."""


class VictimUnit(msgspec.Struct, frozen=True, eq=False):
    number: int
    key: str
    """Of the piece that goes; `whole` is the workload that it belongs to."""
    rows: tuple[int, ...]
    """Its pods on nodes, as rows of the snapshot."""
    pods: tuple[str, ...]
    """The same by name, with those that don't stay when it goes."""
    priority: int
    loss: Loss
    started_at: int
    uid: str
    is_terminating: bool = False
    dependents: tuple[str, ...] = ()
    """Pieces that go with it: the extra members of a gang that loses its minimum."""
    workload: Workload | None = None
    """As the site knows it; None where the cluster has no workloads but pods."""
    is_queued: bool = False
    """It holds quota of a queue: whoever is in a queue, too, may have its place by the rules of queues alone."""

    @property
    def workload_key(self) -> str:
        return workload_key(self.key)

    @property
    def eviction_order(self) -> tuple[object, ...]:
        """In this order they would go."""
        return (
            not self.is_terminating,
            self.priority,
            *self.loss,
            len(self.pods),
            -self.started_at,
            self.uid,
            self.key,
        )


def find_victim_units(
    snapshot: Snapshot, row_of: Mapping[str, int], priority: int, config: QueueConfig, now: int
) -> list[VictimUnit]:
    """All that may go for somebody of that priority, those first that would go first."""
    finder = _Finder(snapshot, row_of, priority, config, now)
    found = finder.of_workloads() if snapshot.workloads else finder.of_pods()
    ordered = sorted(found, key=lambda unit: unit.eviction_order)
    return [msgspec.structs.replace(unit, number=number) for number, unit in enumerate(ordered)]


class _Finder:
    def __init__(
        self, snapshot: Snapshot, row_of: Mapping[str, int], below: int, config: QueueConfig, now: int
    ) -> None:
        self._snapshot, self._pods, self._row_of = snapshot, snapshot.pods, row_of
        self._below, self._config, self._now = below, config, now
        self._bound = np.flatnonzero((snapshot.pods.alive == 1) & (snapshot.pods.node >= 0)).tolist()
        self._totals = snapshot.node_state.allocatable.sum(axis=0).tolist()

    def of_pods(self) -> Iterator[VictimUnit]:
        """Where nothing says that any pods belong together."""
        for row in self._bound:
            if self._pods.priority[row] < self._below:
                yield from self._unit(self._objects([row])[0].key, [row])

    def of_workloads(self) -> Iterator[VictimUnit]:
        known: set[int] = set()
        for workload in self._snapshot.workloads:
            if workload.priority >= self._below or workload.admission is None:
                continue
            rows = self._rows_of(workload)
            known.update(rows)
            # Where members are evicted one by one, as far as its minimum goes they still stand or fall together.
            if workload.kind == "Pod":
                yield from self._unit(workload.key, rows, workload)
            elif workload.all_or_nothing or (workload.min_pods or 0) > 1:
                yield from self._pieces(workload)
            else:
                for row in rows:
                    yield from self._stray(row, workload)
        for row in self._bound:
            if self._pods.objects[row].metadata.deletion_timestamp and row not in known:
                yield from self._stray(row, None)

    def _pieces(self, workload: Workload) -> Iterator[VictimUnit]:
        pieces = [one for one in split_workload(workload) if one.admission is not None]
        extras = [one for one in pieces if is_above_minimum(one.key)]
        for piece in pieces:
            drags = extras if piece.key == workload.key else []
            yield from self._unit(piece.key, self._rows_of(piece), piece, drags)

    def _rows_of(self, workload: Workload) -> list[int]:
        """Its pods that are on nodes."""
        keys = (key for one in workload.pod_sets for key in one.pod_keys)
        rows = [self._row_of[key] for key in keys if key in self._row_of]
        return [row for row in rows if self._pods.node[row] >= 0]

    def _stray(self, row: int, workload: Workload | None) -> Iterator[VictimUnit]:
        """A pod that goes alone, though it is no workload of its own; the site has to be told of it."""
        pod = self._pods.objects[row]
        made = Workload(
            key=pod.key,
            kind="Pod",
            pod_sets=(PodSet("main", 1, pod, pod_keys=(pod.key,)),),
            uid=pod.metadata.uid,
            priority=max(pod.spec.priority, workload.priority if workload is not None else pod.spec.priority),
            admission=Admission(""),
            evicting=bool(pod.metadata.deletion_timestamp),
            started_at=start_time(pod),
            checkpoint_at=workload.checkpoint_at if workload is not None else 0,
            restart_seconds=workload.restart_seconds
            if workload is not None
            else declared_restart_cost([pod.metadata]),
            evictable=workload is None or workload.evictable,
        )
        for unit in self._unit(made.key, [row], made):
            queued = workload is not None and bool(workload.queue_name)
            yield msgspec.structs.replace(unit, is_queued=queued)

    def _unit(
        self,
        key: str,
        rows: Sequence[int],
        workload: Workload | None = None,
        drags: Sequence[Workload] = (),
    ) -> Iterator[VictimUnit]:
        """The unit, if it may go."""
        objects = self._objects(rows)
        priority = max((pod.spec.priority for pod in objects), default=0)
        if workload is not None:
            priority = max(priority, workload.priority)
        leaving = all(pod.metadata.deletion_timestamp for pod in objects)
        since = workload.started_at if workload is not None else 0
        since = since or max((start_time(pod) for pod in objects), default=0)
        if not rows or priority >= self._below or any(not _may_go(pod) for pod in objects):
            return
        if not leaving and not (self._is_evictable(workload, objects) and self._is_old_enough(since)):
            return
        if any(int(self._pods.shape[row]) == UNREADABLE for row in rows):
            return
        own = [pod.key for pod in objects]
        dragged = [name for one in drags for part in one.pod_sets for name in part.pod_keys]
        if not leaving and self._snapshot.refusals.forbid_eviction((*own, *dragged)):
            return
        uid = workload.uid if workload is not None else objects[0].metadata.uid
        lost = [*rows, *(row for one in drags for row in self._rows_of(one))]
        loss = (0, 0) if leaving else self._loss(lost, workload)
        yield VictimUnit(
            0,
            key,
            tuple(rows),
            tuple(dict.fromkeys([*own, *dragged])),
            priority,
            loss,
            since,
            uid or key,
            leaving,
            tuple(one.key for one in drags),
            workload,
            workload is not None and bool(workload.queue_name),
        )

    def _objects(self, rows: Sequence[int]) -> list[Pod]:
        return [self._pods.objects[row] for row in rows]

    @staticmethod
    def _is_evictable(workload: Workload | None, pods: Sequence[Pod]) -> bool:
        return workload.evictable if workload is not None else is_evictable(pods[0].metadata, pods)

    def _is_old_enough(self, since: int) -> bool:
        least = self._config.min_run_seconds
        return not least or self._now - since >= least

    def _loss(self, rows: Sequence[int], workload: Workload | None) -> Loss:
        """Work since the last checkpoint or the start, plus the restart."""
        gpus, shares = 0, 0
        for row in rows:
            seconds = self._seconds(self._pods.objects[row], workload)
            shape = self._snapshot.shapes[int(self._pods.shape[row])]
            held = held_gpu_milli(shape, self._pods.grants[row])
            gpus += held * seconds
            if not held:
                shares += self._largest_share(shape.requests) * seconds
        return (gpus, 0) if gpus else (0, shares)

    def _seconds(self, pod: Pod, workload: Workload | None) -> int:
        checkpoint = workload.checkpoint_at if workload is not None else 0
        checkpoint = checkpoint or parse_timestamp(pod.metadata.annotations.get(LAST_CHECKPOINT, ""))
        since = max(checkpoint, start_time(pod))
        queue = (
            workload.admission.cluster_queue
            if workload is not None and workload.admission is not None
            else ""
        )
        declared = workload.restart_seconds if workload is not None else declared_restart_cost([pod.metadata])
        return self._config.seconds_lost(self._now - since, declared, queue)

    def _largest_share(self, requests: Iterable[tuple[str, int]]) -> int:
        columns = self._snapshot.resources
        totals = ((amount, self._totals[columns.column(name)]) for name, amount in requests)
        return max((amount * _PARTS // total for amount, total in totals if total > 0), default=0)


def _may_go(pod: Pod) -> bool:
    """A kubelet starts its static pods again at once, and a DaemonSet's pods come back to the same node."""
    if MIRROR_ANNOTATION in pod.metadata.annotations:
        return False
    return not any(one.controller and one.kind == "DaemonSet" for one in pod.metadata.owner_references)
