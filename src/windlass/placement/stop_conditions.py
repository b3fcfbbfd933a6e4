"""When running workloads have to stop without a preemptor: a gang stays below its minimum, a run time is over, or the
owner runs more pods than were admitted.

`placement.decisions` asks after everything else has been decided, so that a gang which this decision completes keeps
running. A gang below its minimum gets a grace period, which starts when the newest of its waiting pods was created in
place of a lost one. Where a pod is missing and a controller will create it, the grace period has not begun; where no
controller will, the gang can never be complete and is stopped at once. A Kueue Workload is stopped, as by Kueue, when
its maximum execution time is over, and where the configuration says how soon its pods have to be ready.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

import msgspec

from windlass.cluster.pod_table import PENDING
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.workloads.owner_sizes import held_counts
from windlass.model.times import parse_timestamp
from windlass.model.workload import Workload
from windlass.placement.timeplan.run_limits import PlannedStartSettings, run_limit_of
from windlass.queueing.outcome import (
    MAXIMUM_EXECUTION_TIME_EXCEEDED,
    NO_MATCHING_WORKLOAD,
    PODS_READY_TIMEOUT,
    REQUEUING_LIMIT_EXCEEDED,
)

GANG_BELOW_MINIMUM = "GangBelowMinimum"
DURATION_EXCEEDED = "DurationExceeded"


class Readiness(msgspec.Struct, frozen=True):
    """Kueue's `waitForPodsReady`, as far as decisions depend on it."""

    seconds: int
    recovery_seconds: int | None = None
    requeue_limit: int | None = None


class StopConditions:
    def __init__(
        self,
        snapshot: Snapshot,
        pod_row: Mapping[str, int],
        now: int,
        grace: int,
        time: PlannedStartSettings,
        readiness: Readiness | None = None,
    ) -> None:
        self._readiness = readiness
        self._pods, self._pod_row, self._refusals = snapshot.pods, pod_row, snapshot.refusals
        self._now, self._grace, self._time = now, grace, time

    def workloads_to_stop(
        self,
        workloads: Mapping[str, Workload],
        single_pods: Iterable[Workload],
        changing: Container[str] = (),
        late: Container[str] = (),
    ) -> Iterator[tuple[Workload, str]]:
        """The workloads to stop, each with the reason. Those in `changing` get pods in this decision and are skipped;
        those in `late` have pods without a node. What the API server has just refused is not tried again until
        the refusal ends."""
        limited = [pod for pod in single_pods if pod.max_run_seconds is not None]
        for workload in (*workloads.values(), *limited):
            is_plain_pod = workload.kind == "Pod" and workload.max_run_seconds is None
            if is_plain_pod or workload.admission is None or workload.key in changing:
                continue
            reason = self.kueue_reason(workload) or self.duration_exceeded_reason(workload) or outgrown_reason(workload)
            if not reason and workload.key in workloads:
                reason = self.below_minimum_reason(workload, workload.key in late)
            if reason and not self._refusals.forbid_eviction(_pods_of(workload)):
                yield workload, reason

    def kueue_reason(self, workload: Workload) -> str:
        """The reason if Kueue's limits are over: its maximum execution time, or the time for its pods to be ready."""
        if workload.kind != "Workload" or workload.evicting or not workload.started_at:
            return ""
        if workload.execution_seconds is not None and self._now >= workload.started_at + workload.execution_seconds:
            return MAXIMUM_EXECUTION_TIME_EXCEEDED
        readiness = self._readiness
        if readiness is None or not workload.unready_since:
            return ""
        seconds = readiness.recovery_seconds if workload.is_recovering else readiness.seconds
        if seconds is None or self._now < workload.unready_since + seconds:
            return ""
        is_last = readiness.requeue_limit is not None and workload.requeues >= readiness.requeue_limit
        return REQUEUING_LIMIT_EXCEEDED if is_last else PODS_READY_TIMEOUT

    def duration_exceeded_reason(self, workload: Workload) -> str:
        """The reason if its declared run time is over, else empty.

        A deadline (activeDeadlineSeconds) is enforced by its controller, and a limit from the history of the queue is
        only an estimate: neither stops a workload here.
        """
        declared = workload.max_run_seconds is not None and not workload.run_limit_enforced
        if not declared or workload.admission is None or workload.evicting:
            return ""
        rows = [self._pod_row[key] for key in _pods_of(workload) if key in self._pod_row]
        stamps = [parse_timestamp(self._pods.objects[row].status.start_time) for row in rows]
        started = min((stamp for stamp in stamps if stamp), default=0)
        limit = run_limit_of(workload, self._time)
        return DURATION_EXCEEDED if started and limit is not None and self._now >= started + limit else ""

    def below_minimum_reason(self, workload: Workload, is_late: bool) -> str:
        """The reason if the gang is incomplete beyond its grace period, else empty.

        `is_late`: some of the pods for which it holds quota have no node.
        """
        if workload.admission is None or workload.evicting or not workload.evictable:
            return ""
        if workload.kind == "Pod" or (workload.min_pods is None and not workload.all_or_nothing):
            return ""
        held = sum(assignment.count for assignment in workload.admission.assignments)
        # The admission of a Workload object covers all its pods; that of other kinds only those that run.
        if not is_late if workload.kind == "Workload" else held >= min_running_pods(workload):
            return ""
        rows = [self._pod_row[key] for key in _pods_of(workload) if key in self._pod_row]
        running = sum(1 for row in rows if self._pods.node[row] >= 0)
        waiting = [row for row in rows if self._pods.node[row] == PENDING]
        if running >= min_running_pods(workload) or not rows:
            return ""  # complete, or just admitted: its pods are not created yet
        if not waiting:
            return "" if self._has_controller(workload, rows) else GANG_BELOW_MINIMUM
        since = max(workload.started_at, *(int(self._pods.created[row]) for row in waiting))
        return GANG_BELOW_MINIMUM if self._now - since > self._grace else ""

    def _has_controller(self, workload: Workload, rows: list[int]) -> bool:
        """Whether a controller creates lost pods of the workload again."""
        if workload.kind not in ("Pod", "PodGroup"):
            return True
        return any(owner.controller for row in rows for owner in self._pods.objects[row].metadata.owner_references)


def outgrown_reason(workload: Workload) -> str:
    """The reason if its owner runs more pods than it was admitted with and it is not elastic: as in Kueue, the owner is
    suspended, and queued again with its new size."""
    if workload.admission is None or workload.evicting or workload.is_elastic:
        return ""
    is_outgrown = any(size.wanted > size.now.held for size in workload.owner_sizes)
    return NO_MATCHING_WORKLOAD if is_outgrown else ""


def min_running_pods(workload: Workload) -> int:
    """The fewest running pods with which it may go on: its minimum, or what it was admitted with."""
    if workload.min_pods is not None:
        return workload.min_pods
    held = held_counts(workload.admission) if workload.admission is not None else {}
    fewest = 0
    for pod_set in workload.pod_sets:
        count = pod_set.count
        if workload.kind == "Workload":
            count = min(count, held.get(pod_set.name, count))
        fewest += count if pod_set.min_count is None else min(count, pod_set.min_count)
    return fewest


def _pods_of(workload: Workload) -> Iterator[str]:
    return (key for pod_set in workload.pod_sets for key in pod_set.pod_keys)
