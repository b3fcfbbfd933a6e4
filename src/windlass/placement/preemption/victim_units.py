"""Groups running pods into units that are evicted whole, with what evicting them loses.

`context` finds the units of a snapshot; `freed_resources` computes what they free on each node. A unit is a single pod,
a gang with all its members, or one member above a gang's minimum. Units that are terminating already cost nothing and
need no Evict decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from windlass.cluster.pod_table import UNREADABLE
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.workloads.pod_admission import start_time
from windlass.cluster.workloads.workload_attributes import declared_restart_cost, is_asked, is_evictable
from windlass.model.names.kubernetes import MIRROR_ANNOTATION
from windlass.model.names.windlass import LAST_CHECKPOINT_ANNOTATION
from windlass.model.pod import Pod
from windlass.model.times import parse_timestamp
from windlass.model.workload import Admission, PodSet, Workload
from windlass.placement.defrag.movable import held_gpu_milli
from windlass.placement.workload_pieces import is_above_minimum, split_workload, workload_key
from windlass.queueing.config import QueueConfig

_MILLION = 1_000_000

Loss = tuple[int, int]
"""Milli-GPU-seconds; and, without GPUs, millionths of the cluster's total of the dominant resource × seconds."""


class VictimUnit(msgspec.Struct, frozen=True, eq=False):
    number: int
    key: str
    """Key of the piece that is evicted; `workload_key` is the workload that it belongs to."""
    rows: tuple[int, ...]
    """Its pods that are on nodes, as rows of the snapshot."""
    pods: tuple[str, ...]
    """Keys of its pods, and of the pods of its dependents."""
    priority: int
    loss: Loss
    started_at: int
    uid: str
    is_terminating: bool = False
    dependents: tuple[str, ...] = ()
    """Pieces that are evicted with it: members above the minimum of a gang that loses its minimum."""
    workload: Workload | None = None
    """As the placer knows it; None where the snapshot has no workloads, only pods."""
    is_queued: bool = False
    """Whether it uses quota of a queue: queued workloads may evict it only by the preemption rules of queues."""

    @property
    def workload_key(self) -> str:
        return workload_key(self.key)

    @property
    def eviction_order(self) -> tuple[object, ...]:
        """The sort key: the first in this order is evicted first."""
        cost = (self.priority, *self.loss, len(self.pods))
        return (not self.is_terminating, *cost, -self.started_at, self.uid, self.key)


def find_victim_units(
    snapshot: Snapshot,
    row_of: Mapping[str, int],
    priority: int,
    config: QueueConfig,
    now: int,
    *,
    ignores_annotations: bool = False,
) -> list[VictimUnit]:
    """All units that may be evicted for a preemptor of this priority, in eviction order."""
    finder = _Finder(snapshot, row_of, priority, config, now)
    finder.ignores_annotations = ignores_annotations
    found = finder.of_workloads() if snapshot.workloads else finder.of_pods()
    ordered = sorted(found, key=lambda unit: unit.eviction_order)
    return [msgspec.structs.replace(unit, number=number) for number, unit in enumerate(ordered)]


def own_losses(units: Sequence[VictimUnit]) -> dict[str, int]:
    """Unit → milli-GPU-seconds that its own pods lose, without those of its dependents among these units."""
    lost = {unit.key: unit.loss[0] for unit in units}
    return {unit.key: unit.loss[0] - sum(lost[key] for key in unit.dependents if key in lost) for unit in units}


class _Finder:
    def __init__(
        self,
        snapshot: Snapshot,
        row_of: Mapping[str, int],
        preemptor_priority: int,
        config: QueueConfig,
        now: int,
    ) -> None:
        self._snapshot, self._pods, self._row_of = snapshot, snapshot.pods, row_of
        self._preemptor_priority, self._config, self._now = preemptor_priority, config, now
        self._bound = np.flatnonzero((snapshot.pods.alive == 1) & (snapshot.pods.node >= 0)).tolist()
        self.ignores_annotations = False
        self._totals = snapshot.node_state.allocatable.sum(axis=0).tolist()

    def of_pods(self) -> Iterator[VictimUnit]:
        """For a snapshot without workloads: every pod is a unit."""
        for row in self._bound:
            if self._pods.priority[row] < self._preemptor_priority:
                yield from self._unit(self._objects([row])[0].key, [row])

    def of_workloads(self) -> Iterator[VictimUnit]:
        known: set[int] = set()
        for workload in self._snapshot.workloads:
            if workload.priority >= self._preemptor_priority or workload.admission is None:
                continue
            rows = self._rows_of(workload)
            known.update(rows)
            # A workload with a minimum is evicted whole below it; one without is evicted pod by pod.
            if workload.kind == "Pod":
                yield from self._unit(workload.key, rows, workload)
            elif workload.all_or_nothing or (workload.min_pods or 0) > 1:
                yield from self._pieces(workload)
            else:
                for row in rows:
                    yield from self._pod_of_workload(row, workload)
        # Terminating pods outside of these workloads: their room costs nothing.
        for row in self._bound:
            if self._pods.objects[row].metadata.deletion_timestamp and row not in known:
                yield from self._pod_of_workload(row, None)

    def _pieces(self, workload: Workload) -> Iterator[VictimUnit]:
        pieces = [piece for piece in split_workload(workload) if piece.admission is not None]
        extras = [piece for piece in pieces if is_above_minimum(piece.key)]
        for piece in pieces:
            dependents = extras if piece.key == workload.key else []
            yield from self._unit(piece.key, self._rows_of(piece), piece, dependents)

    def _rows_of(self, workload: Workload) -> list[int]:
        """Rows of its pods that are on nodes."""
        keys = (key for pod_set in workload.pod_sets for key in pod_set.pod_keys)
        rows = [self._row_of[key] for key in keys if key in self._row_of]
        return [row for row in rows if self._pods.node[row] >= 0]

    def _pod_of_workload(self, row: int, workload: Workload | None) -> Iterator[VictimUnit]:
        """A pod that is evicted on its own, as a workload that the placer can remove."""
        pod = self._pods.objects[row]
        single = Workload(
            key=pod.key,
            kind="Pod",
            pod_sets=(PodSet("main", 1, pod, pod_keys=(pod.key,)),),
            uid=pod.metadata.uid,
            priority=max(pod.spec.priority, workload.priority if workload is not None else pod.spec.priority),
            admission=Admission(""),
            evicting=bool(pod.metadata.deletion_timestamp),
            started_at=start_time(pod),
            checkpoint_at=workload.checkpoint_at if workload is not None else 0,
            restart_seconds=workload.restart_seconds if workload is not None else declared_restart_cost([pod.metadata]),
            ask_terms=workload.ask_terms if workload is not None else None,
            is_asked=is_asked([pod.metadata]),
            evictable=workload is None or workload.evictable,
        )
        for unit in self._unit(single.key, [row], single):
            queued = workload is not None and bool(workload.queue_name)
            yield msgspec.structs.replace(unit, is_queued=queued)

    def _unit(
        self,
        key: str,
        rows: Sequence[int],
        workload: Workload | None = None,
        dependents: Sequence[Workload] = (),
    ) -> Iterator[VictimUnit]:
        """The unit, if it may be evicted. Pods that should have ended and have not are no part of it: evicting them
        frees nothing."""
        rows = [row for row in rows if not self._pods.objects[row].is_stuck(self._now)]
        objects = self._objects(rows)
        if not rows or any(not _may_be_evicted(pod) for pod in objects):
            return
        # The highest of its pods: no preemptor may evict one that outranks it, not even within a gang.
        priority = max(pod.spec.priority for pod in objects)
        if workload is not None:
            priority = max(priority, workload.priority)
        if priority >= self._preemptor_priority:
            return
        started_at = workload.started_at if workload is not None else 0
        started_at = started_at or max(start_time(pod) for pod in objects)
        pods = [pod.key for pod in objects]
        pod_sets = (pod_set for dependent in dependents for pod_set in dependent.pod_sets)
        dependent_pods = [name for pod_set in pod_sets for name in pod_set.pod_keys]
        is_terminating = all(pod.metadata.deletion_timestamp for pod in objects)
        if not is_terminating:
            if not (self._is_evictable(workload, objects) and self._is_old_enough(started_at)):
                return
            if self._snapshot.refusals.forbid_eviction((*pods, *dependent_pods)):
                return
        if any(int(self._pods.shape[row]) == UNREADABLE for row in rows):
            return
        uid = workload.uid if workload is not None else objects[0].metadata.uid
        lost_rows = [*rows, *(row for dependent in dependents for row in self._rows_of(dependent))]
        loss = (0, 0) if is_terminating else self._loss(lost_rows, workload)
        yield VictimUnit(
            0,
            key,
            tuple(rows),
            tuple(dict.fromkeys([*pods, *dependent_pods])),
            priority,
            loss,
            started_at,
            uid or key,
            is_terminating,
            tuple(dependent.key for dependent in dependents),
            workload,
            workload is not None and bool(workload.queue_name),
        )

    def _objects(self, rows: Sequence[int]) -> list[Pod]:
        return [self._pods.objects[row] for row in rows]

    def _is_evictable(self, workload: Workload | None, pods: Sequence[Pod]) -> bool:
        if self.ignores_annotations:
            return True
        return workload.evictable if workload is not None else is_evictable(pod.metadata for pod in pods)

    def _is_old_enough(self, started_at: int) -> bool:
        minimum = self._config.min_run_seconds
        return not minimum or self._now - started_at >= minimum

    def _loss(self, rows: Sequence[int], workload: Workload | None) -> Loss:
        """Work lost since the last checkpoint or the start, plus the restart."""
        gpus, shares = 0, 0
        for row in rows:
            seconds = self._seconds(self._pods.objects[row], workload)
            shape = self._snapshot.shapes[int(self._pods.shape[row])]
            gpu_milli = held_gpu_milli(shape, self._pods.grants[row])
            gpus += gpu_milli * seconds
            if not gpu_milli:
                shares += self._largest_share(shape.requests) * seconds
        # One number or the other: GPU time and shares of CPU have no common unit.
        return (gpus, 0) if gpus else (0, shares)

    def _seconds(self, pod: Pod, workload: Workload | None) -> int:
        checkpoint = workload.checkpoint_at if workload is not None else 0
        checkpoint = checkpoint or parse_timestamp(pod.metadata.annotations.get(LAST_CHECKPOINT_ANNOTATION, ""))
        since = max(checkpoint, start_time(pod))
        admission = workload.admission if workload is not None else None
        queue = admission.cluster_queue if admission is not None else ""
        declared = workload.restart_seconds if workload is not None else declared_restart_cost([pod.metadata])
        # What is asked stays the victim, whatever becomes cheaper meanwhile: an ask costs a checkpoint.
        elapsed = 0 if workload is not None and workload.is_asked else self._now - since
        return self._config.seconds_lost(elapsed, declared, queue)

    def _largest_share(self, requests: Iterable[tuple[str, int]]) -> int:
        columns = self._snapshot.resources
        totals = ((amount, self._totals[columns.column(name)]) for name, amount in requests)
        return max((amount * _MILLION // total for amount, total in totals if total > 0), default=0)


def _may_be_evicted(pod: Pod) -> bool:
    """Whether evicting the pod frees anything: mirror pods and pods of a DaemonSet come back to the same node."""
    if MIRROR_ANNOTATION in pod.metadata.annotations:
        return False
    return not any(owner.controller and owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)
