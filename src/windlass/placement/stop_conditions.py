"""When what runs has to stop, for nobody's sake: a gang that stays incomplete, a declared run time that is over.

`placement.decisions` asks after everything else has been decided, so that a gang which was completed just now goes on.
A gang below its minimum may wait for its grace, counted from the loss: from the moment when the newest member that
waits was made in the place of a lost one. Where a member is missing and a controller is about to make it again, the
grace has not begun; where nobody will, the gang can't ever be complete and is stopped at once.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from windlass.cluster.pod_table import PENDING
from windlass.cluster.snapshot import Snapshot
from windlass.model.times import parse_timestamp
from windlass.model.workload import Workload
from windlass.placement.timeplan.run_limits import PlannedStartSettings, run_limit_of

GANG_BELOW_MINIMUM = "GangBelowMinimum"
DURATION_EXCEEDED = "DurationExceeded"


class StopConditions:
    def __init__(
        self, snapshot: Snapshot, pod_row: Mapping[str, int], now: int, grace: int, time: PlannedStartSettings
    ) -> None:
        self._pods, self._pod_row = snapshot.pods, pod_row
        self._now, self._grace, self._time = now, grace, time

    def workloads_to_stop(
        self,
        workloads: Mapping[str, Workload],
        single_pods: Iterable[Workload],
        changing: Container[str] = (),
        late: Container[str] = (),
    ) -> Iterator[tuple[Workload, str]]:
        """What has to stop, and why. `whole` are decided on; `others` are lone pods that run; `busy` just get members;
        of `late` some pods have no node."""
        timed = [one for one in single_pods if one.max_run_seconds is not None]
        for workload in (*workloads.values(), *timed):
            is_plain_pod = workload.kind == "Pod" and workload.max_run_seconds is None
            if is_plain_pod or workload.admission is None or workload.key in changing:
                continue
            reason = self.duration_exceeded_reason(workload)
            if not reason and workload.key in workloads:
                reason = self.below_minimum_reason(workload, workload.key in late)
            if reason:
                yield workload, reason

    def duration_exceeded_reason(self, workload: Workload) -> str:
        """The reason why its time is over; empty while it isn't.

        Only a declared duration: what has a deadline is stopped by whoever enforces that, and a limit that comes from
        the history of its queue is nobody's promise.
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
        """The reason why it is stopped whole; empty where it is complete, or may still wait.

        `is_late`: some pods of what it holds quota for have no node.
        """
        if workload.admission is None or workload.evicting or not workload.evictable:
            return ""
        if workload.kind == "Pod" or (workload.min_pods is None and not workload.all_or_nothing):
            return ""
        held = sum(part.count for part in workload.admission.assignments)
        # What a Workload holds it holds for all its pods; of everything else, for those that run.
        if not is_late if workload.kind == "Workload" else held >= min_running_pods(workload):
            return ""
        rows = [self._pod_row[key] for key in _pods_of(workload) if key in self._pod_row]
        running = sum(1 for row in rows if self._pods.node[row] >= 0)
        waiting = [row for row in rows if self._pods.node[row] == PENDING]
        if running >= min_running_pods(workload) or not rows:
            return ""  # complete, or just admitted: its pods are still to be made
        if not waiting:
            return "" if self._is_made_again(workload, rows) else GANG_BELOW_MINIMUM
        since = max(workload.started_at, *(int(self._pods.created[row]) for row in waiting))
        return GANG_BELOW_MINIMUM if self._now - since > self._grace else ""

    def _is_made_again(self, workload: Workload, rows: list[int]) -> bool:
        """Whether something makes the pods of the workload."""
        if workload.kind not in ("Pod", "PodGroup"):
            return True
        return any(
            one.controller for row in rows for one in self._pods.objects[row].metadata.owner_references
        )


def min_running_pods(workload: Workload) -> int:
    """With so many pods it can go on: its minimum, or what it was admitted with."""
    if workload.min_pods is not None:
        return workload.min_pods
    held: dict[str, int] = {}
    for part in workload.admission.assignments if workload.admission is not None else ():
        held[part.name] = held.get(part.name, 0) + part.count
    least = 0
    for one in workload.pod_sets:
        most = min(one.count, held.get(one.name, one.count)) if workload.kind == "Workload" else one.count
        least += most if one.min_count is None else min(most, one.min_count)
    return least


def _pods_of(workload: Workload) -> Iterator[str]:
    return (key for one in workload.pod_sets for key in one.pod_keys)
