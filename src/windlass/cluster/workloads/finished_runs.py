"""Whether a workload that waited or ran until now has succeeded, and how long it ran.

`workload_index` calls it when nothing of a unit runs any more. Evicted, failed and deleted workloads don't count: the
Workload or its owner has to report success, or all pods have to have succeeded.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.cluster.workloads.grouping_inputs import GroupingInputs
from windlass.cluster.workloads.pod_admission import start_time
from windlass.cluster.workloads.units import UnitKey
from windlass.model.kueue import is_finished
from windlass.model.pod import Pod
from windlass.model.run_time_history import FinishedRun, run_shape
from windlass.model.times import parse_timestamp
from windlass.model.workload import Workload

FAILURE_REASONS = ("Failed", "OutOfSync")
"""Reasons with which Kueue finishes a Workload that has not succeeded."""


def finished_run(before: Workload, unit: UnitKey, pods: Sequence[Pod], inputs: GroupingInputs) -> FinishedRun | None:
    """The run of the workload `before`, of which `pods` are left; None where it doesn't count.

    A short run may have started and ended between two snapshots: then its objects have the start time.
    """
    if not before.queue_name or before.evicting or not before.active or not _has_succeeded(unit, pods, inputs):
        return None
    if before.admission is not None:
        started = before.started_at or before.admission.reserved_at
    elif unit.source == "workload":
        admitted = inputs.workloads[unit.key].condition("Admitted")
        started = parse_timestamp(admitted.last_transition_time) if admitted is not None else 0
    else:
        started = min((start_time(pod) for pod in pods if pod.is_bound), default=0)
    if not started:
        return None
    queue, seconds = f"{before.namespace}/{before.queue_name}", max(1, inputs.now - started)
    members = () if unit.source in ("workload", "owner") else pods
    return FinishedRun(queue, seconds, inputs.now, run_shape(before, members))


def _has_succeeded(unit: UnitKey, pods: Sequence[Pod], inputs: GroupingInputs) -> bool:
    if unit.source == "workload":
        workload_object = inputs.workloads.get(unit.key)
        if workload_object is None or not is_finished(workload_object):
            return False
        finished = workload_object.condition("Finished")
        return finished is not None and finished.reason not in FAILURE_REASONS
    if unit.source == "owner":
        owner = inputs.owners.get((unit.kind, unit.key))
        return owner is not None and owner.succeeded
    return bool(pods) and all(pod.status.phase == "Succeeded" for pod in pods)
