"""Whether a workload that waited or ran until now has come to a good end, and how long it ran.

Asked by `book` when a unit has nothing left that runs. Evicted, failed and deleted work has not: there has to be an
object that says so, the Workload, its owner, or pods that have all succeeded.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.cluster.workloads.grouping_inputs import GroupingInputs
from windlass.cluster.workloads.pod_admission import start_time as start_of
from windlass.cluster.workloads.units import UnitKey
from windlass.model.kueue import is_finished
from windlass.model.pod import Pod
from windlass.model.run_time_history import FinishedRun
from windlass.model.times import parse_timestamp
from windlass.model.workload import Workload

FAILURE_REASONS = ("Failed", "OutOfSync")
"""Reasons with which Kueue finishes a Workload that came to no good end."""


def finished_run(
    before: Workload, unit: UnitKey, pods: Sequence[Pod], inputs: GroupingInputs
) -> FinishedRun | None:
    """The run of a workload as it stood before, of which these pods are left; None where it is not to be counted.

    What was short may have begun and ended since anybody looked: then its objects say when it began.
    """
    if (
        not before.queue_name
        or before.evicting
        or not before.active
        or not _has_succeeded(unit, pods, inputs)
    ):
        return None
    if before.admission is not None:
        started = before.started_at or before.admission.reserved_at
    elif unit.source == "workload":
        admitted = inputs.workloads[unit.key].condition("Admitted")
        started = parse_timestamp(admitted.last_transition_time) if admitted is not None else 0
    else:
        started = min((start_of(pod) for pod in pods if pod.is_bound), default=0)
    if not started:
        return None
    return FinishedRun(f"{before.namespace}/{before.queue_name}", max(1, inputs.now - started), inputs.now)


def _has_succeeded(unit: UnitKey, pods: Sequence[Pod], inputs: GroupingInputs) -> bool:
    if unit.source == "workload":
        wire = inputs.workloads.get(unit.key)
        finished = wire.condition("Finished") if wire is not None and is_finished(wire) else None
        return finished is not None and finished.reason not in FAILURE_REASONS
    if unit.source == "owner":
        owner = inputs.owners.get((unit.kind, unit.key))
        return owner is not None and owner.succeeded
    return bool(pods) and all(pod.status.phase == "Succeeded" for pod in pods)
