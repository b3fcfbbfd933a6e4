"""Builds Kueue's objects as Windlass writes them: Workloads, their admission and their conditions.

Used by `apply.admission`, `apply.owner_workloads` and `apply.evictor`; pure functions. Names, reasons and fields are
Kueue's interface (Apache-2.0), so that tools and people that know Kueue find what they expect.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from windlass.cluster.workloads.workload_attributes import execution_limit
from windlass.model.configuration import Settings
from windlass.model.decision import Admit
from windlass.model.kueue import WorkloadObject
from windlass.model.kueue.workload_wire import Condition
from windlass.model.kueue.workloads import PODS_READY, WAIT_FOR_RECOVERY, WAIT_FOR_START
from windlass.model.names.kubernetes import APP_MANAGED_BY_LABEL
from windlass.model.owners import Owner
from windlass.model.quota import format_quota, quota_requests
from windlass.model.times import format_timestamp, parse_timestamp
from windlass.model.unstructured import Unstructured
from windlass.model.workload import Workload
from windlass.placement.stop_conditions import DURATION_EXCEEDED, GANG_BELOW_MINIMUM
from windlass.queueing.outcome import (
    CLUSTER_QUEUE_STOPPED,
    DEACTIVATED,
    DEACTIVATING_REASONS,
    LEAVE_NOTICE,
    LOCAL_QUEUE_STOPPED,
    MAXIMUM_EXECUTION_TIME_EXCEEDED,
    NO_MATCHING_WORKLOAD,
    PODS_READY_TIMEOUT,
    REQUEUING_LIMIT_EXCEEDED,
)


class WorkloadQueue(msgspec.Struct, frozen=True):
    """LocalQueue and priority of a Workload, and the API version in which the server has its kind."""

    name: str
    priority: int
    version: str
    missing_class: str = ""
    """The WorkloadPriorityClass that its owner names and that doesn't exist: its value counts once it does."""


NODE_MAINTENANCE = "NodeMaintenance"
"""The operator's reason: a change or a repair of the node."""
NON_PREEMPTION_MESSAGES = {
    NODE_MAINTENANCE: "Evicted so that its node can be worked on",
    LEAVE_NOTICE: "It had to leave its node",
    DURATION_EXCEEDED: "The workload exceeded its declared duration",
    PODS_READY_TIMEOUT: "Exceeded the PodsReady timeout",
    MAXIMUM_EXECUTION_TIME_EXCEEDED: "The workload is deactivated due to exceeding the maximum execution time",
    REQUEUING_LIMIT_EXCEEDED: "The workload is deactivated due to exceeding the maximum number of re-queuing retries",
    GANG_BELOW_MINIMUM: "Fewer pods than the minimum of the gang were left",
    CLUSTER_QUEUE_STOPPED: "The ClusterQueue is stopped",
    LOCAL_QUEUE_STOPPED: "The LocalQueue is stopped",
    DEACTIVATED: "The workload is deactivated",
    NO_MATCHING_WORKLOAD: "The owner now has more pods than were admitted: it is queued again with its new size",
}
"""Eviction reasons other than preemption → message."""
MAX_NAME_LENGTH = 63
MANAGED_BY = {APP_MANAGED_BY_LABEL: "windlass"}


def workload_name(kind: str, name: str, uid: str) -> str:
    """Name of an owner's Workload: the same on every replica, and a different one for a new owner of the same name."""
    digest = hashlib.sha1(f"{kind}/{name}/{uid}".encode(), usedforsecurity=False).hexdigest()[:5]
    stem = f"{kind.lower()}-{name}"
    return f"{stem[: MAX_NAME_LENGTH - 6].rstrip('-.')}-{digest}"


def build_workload(
    raw: Unstructured, owner: Owner, templates: Mapping[str, Unstructured], queue: WorkloadQueue
) -> Unstructured:
    """The Workload of an owner, given the owner's object `raw` and the pod templates by pod set."""
    meta = raw["metadata"]
    pod_sets: list[Unstructured] = []
    limit = execution_limit(owner.metadata)
    for pod_set in owner.pod_sets:
        # A SparkApplication has no pod templates; what the model made of its sizes is one.
        template = templates.get(pod_set.name) or msgspec.to_builtins(pod_set.template)
        pod_sets.append({"name": pod_set.name, "count": pod_set.count, "template": template})
        if pod_set.min_count not in (None, pod_set.count):
            pod_sets[-1]["minCount"] = pod_set.min_count
    reference = {
        "apiVersion": raw["apiVersion"],
        "kind": owner.kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    spec: Unstructured = {"podSets": pod_sets, "queueName": queue.name, "active": True, **_priority(queue)}
    if limit is not None:
        spec["maximumExecutionTimeSeconds"] = limit
    return {
        "apiVersion": f"kueue.x-k8s.io/{queue.version}",
        "kind": "Workload",
        "metadata": {
            "name": workload_name(owner.kind, meta["name"], meta["uid"]),
            "namespace": meta["namespace"],
            "labels": {**MANAGED_BY, "kueue.x-k8s.io/job-uid": meta["uid"]},
            "ownerReferences": [reference],
        },
        "spec": spec,
    }


def _priority(queue: WorkloadQueue) -> Unstructured:
    """The priority, or the class from which it will be read."""
    name = queue.missing_class
    if not name:
        return {"priority": queue.priority}
    if queue.version == "v1beta1":
        return {"priorityClassName": name, "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"}
    return {"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}}


def is_written_by_windlass(wire: WorkloadObject) -> bool:
    return MANAGED_BY.items() <= wire.metadata.labels.items()


def matches_owner(wire: WorkloadObject, owner: Owner, queue: str) -> bool:
    """Whether the Workload still agrees with its owner, which users may change while it is pending."""
    actual = [
        (pod_set.name, pod_set.count, pod_set.min_count or pod_set.count, pod_set.template.spec)
        for pod_set in wire.spec.pod_sets
    ]
    expected = [
        (pod_set.name, pod_set.count, pod_set.min_count or pod_set.count, pod_set.template.spec)
        for pod_set in owner.pod_sets
    ]
    return actual == expected and wire.spec.queue_name == queue


def admission_status(
    wire: WorkloadObject,
    admit: Admit,
    workload: Workload,
    topologies: Mapping[str, Unstructured],
    now: int,
) -> Unstructured:
    """The status of an admitted Workload; `topologies`: pod set → its topology assignment."""
    templates = {pod_set.name: pod_set.template for pod_set in workload.pod_sets}
    assignments = []
    for pod_set in admit.pod_sets:
        requests, count = quota_requests(templates[pod_set.name]), pod_set.count
        assignment: Unstructured = {"name": pod_set.name, "count": count, "flavors": dict(pod_set.flavors)}
        assignment["resourceUsage"] = {
            resource: format_quota(resource, requests.get(resource, 0) * count) for resource in pod_set.flavors
        }
        if pod_set.name in topologies:
            assignment["topologyAssignment"] = topologies[pod_set.name]
        assignments.append(assignment)
    reserved = f"Quota reserved in ClusterQueue {admit.queue}"
    admitted = f"The workload is admitted in ClusterQueue {admit.queue}"
    changes = [
        _condition("QuotaReserved", "True", "QuotaReserved", reserved, now),
        _condition("Admitted", "True", "Admitted", admitted, now),
    ]
    cleared = ("Evicted", "Preempted", "Requeued", "PodsReady")
    kept = (condition for condition in wire.status.conditions if condition.type not in cleared)
    return {
        "admission": {"clusterQueue": admit.queue, "podSetAssignments": assignments},
        "conditions": _merge_conditions(kept, changes),
    }


def eviction_message(reason: str, detail: str) -> str:
    """Empty for a preemption."""
    message = NON_PREEMPTION_MESSAGES.get(reason, "")
    return f"{message}: {detail}" if message and detail else message


def eviction_status(
    wire: WorkloadObject, reason: str, now: int, detail: str = "", settings: Settings | None = None
) -> Unstructured:
    """The status of an evicted Workload; unless it was deactivated, it keeps its place in the queue."""
    why = reason if reason in NON_PREEMPTION_MESSAGES else "Preempted"
    message = eviction_message(reason, detail) or f"Preempted to accommodate a workload: {reason}"
    if reason in DEACTIVATING_REASONS:
        why = f"{DEACTIVATED}DueTo{reason}"
    changes = [
        _condition("QuotaReserved", "False", "Pending", message, now),
        _condition("Admitted", "False", "NoReservation", "The workload has no reservation", now),
        _condition("Evicted", "True", why, message, now),
    ]
    if reason == PODS_READY_TIMEOUT:
        changes.append(_condition("Requeued", "False", why, message, now))
    elif reason != DEACTIVATED and reason not in DEACTIVATING_REASONS:
        changes.append(_condition("Requeued", "True", why, "The workload is queued again", now))
    if why == "Preempted":
        changes.append(_condition("Preempted", "True", reason, message, now))
    status = {
        "admission": None,
        "conditions": _merge_conditions(wire.status.conditions, changes),
        "schedulingStats": {"evictions": _eviction_counts(wire, reason, why)},
        **_execution_time(wire, reason, now),
    }
    if reason == PODS_READY_TIMEOUT:
        status["requeueState"] = _requeue_state(wire, settings or Settings(), now)
    elif reason in DEACTIVATING_REASONS:
        status["requeueState"] = None
    if wire.status.preemption_gates:
        closed = {"position": "Closed", "lastTransitionTime": format_timestamp(now)}
        status["preemptionGates"] = [{"name": gate.name, **closed} for gate in wire.status.preemption_gates]
    if wire.status.reclaimable_pods:
        # The Workload follows its owner again while it waits, and so asks only for the pods that are left.
        status["reclaimablePods"] = []
    return status


def _eviction_counts(wire: WorkloadObject, reason: str, why: str) -> list[Unstructured]:
    """With one more of this kind. Kueue's CRD asks for a cause in every row, and an empty one will do."""
    known = wire.status.scheduling_stats.evictions
    counts = {(eviction.reason, eviction.underlying_cause): eviction.count for eviction in known}
    counted = (DEACTIVATED, reason) if reason in DEACTIVATING_REASONS else (why, "")
    counts[counted] = counts.get(counted, 0) + 1
    return [{"reason": reason, "underlyingCause": cause, "count": count} for (reason, cause), count in counts.items()]


def _execution_time(wire: WorkloadObject, reason: str, now: int) -> Unstructured:
    """What it has used of its maximum execution time, which its next run goes on with."""
    admitted = wire.condition("Admitted")
    if wire.spec.maximum_execution_time_seconds is None or admitted is None:
        return {}
    # v1beta1 spells it so.
    is_old = wire.api_version.endswith("/v1beta1")
    field = "accumulatedPastExexcutionTimeSeconds" if is_old else "accumulatedPastExecutionTimeSeconds"
    if reason in DEACTIVATING_REASONS:
        return {field: None}  # activated again, it has all of it
    status = wire.status
    spent = status.accumulated_past_execution_time_seconds or status.accumulated_past_exexcution_time_seconds or 0
    return {field: spent + max(0, now - parse_timestamp(admitted.last_transition_time))}


def _requeue_state(wire: WorkloadObject, settings: Settings, now: int) -> Unstructured:
    """Twice as long each time, up to the longest. Without Kueue's jitter: Windlass decides on all of them at once."""
    known = wire.status.requeue_state
    count = 1 + (known.count if known is not None else 0)
    wait = min(settings.requeue_base_seconds << min(count - 1, 32), settings.requeue_max_seconds)
    return {"count": count, "requeueAt": format_timestamp(now + wait)}


def waits_to_be_requeued(wire: WorkloadObject) -> bool:
    """Whether it waits for a time: its requeueAt, or, as in Kueue, none at all after these two reasons."""
    reasons = (PODS_READY_TIMEOUT, "AdmissionCheck")
    return any(
        condition.type == "Requeued"
        and condition.status == "False"
        and (wire.status.requeue_state is not None or condition.reason in reasons)
        for condition in wire.status.conditions
    )


def backoff_finished_status(wire: WorkloadObject, now: int) -> Unstructured:
    change = _condition("Requeued", "True", "BackoffFinished", "The workload backoff was finished", now)
    known = wire.status.requeue_state
    state = {"count": known.count if known is not None else 0, "requeueAt": None}
    return {"conditions": _merge_conditions(wire.status.conditions, [change]), "requeueState": state}


def pods_ready_status(wire: WorkloadObject, is_ready: bool, now: int) -> Unstructured | None:
    """Kueue's condition PodsReady; None if it says that already."""
    known = next((condition for condition in wire.status.conditions if condition.type == PODS_READY), None)
    was_ready = known is not None and known.status == "True"
    if is_ready:
        change = _condition(
            PODS_READY, "True", "Started", "All pods reached readiness and the workload is running", now
        )
    elif was_ready:
        change = _condition(PODS_READY, "False", WAIT_FOR_RECOVERY, "A pod is no longer ready", now)
    else:
        change = _condition(PODS_READY, "False", WAIT_FOR_START, "Not all pods are ready or succeeded", now)
    if known is not None and known.status == change.status:
        return None
    return {"conditions": _merge_conditions(wire.status.conditions, [change])}


def pending_status(wire: WorkloadObject, reason: str, message: str, now: int) -> Unstructured:
    change = _condition("QuotaReserved", "False", reason, message, now)
    return {"conditions": _merge_conditions(wire.status.conditions, [change])}


def finished_status(wire: WorkloadObject, reason: str, now: int) -> Unstructured:
    change = _condition("Finished", "True", reason, f"The owner has ended: {reason}", now)
    return {"conditions": _merge_conditions(wire.status.conditions, [change])}


def has_condition(wire: WorkloadObject, kind: str, status: str, reason: str, message: str) -> bool:
    wanted = (kind, status, reason, message)
    return any(
        (condition.type, condition.status, condition.reason, condition.message) == wanted
        for condition in wire.status.conditions
    )


def _condition(kind: str, status: str, reason: str, message: str, now: int) -> Condition:
    return Condition(
        type=kind, status=status, reason=reason, message=message, last_transition_time=format_timestamp(now)
    )


def _merge_conditions(known: Iterable[Condition], changes: Iterable[Condition]) -> list[Unstructured]:
    """Conditions with the changes applied; lastTransitionTime changes only together with the status."""
    merged = {condition.type: condition for condition in known}
    for change in changes:
        old = merged.get(change.type)
        since = old.last_transition_time if old is not None and old.status == change.status else ""
        merged[change.type] = msgspec.structs.replace(change, last_transition_time=since or change.last_transition_time)
    return [
        {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason or "Unknown",
            "message": condition.message,
            "lastTransitionTime": condition.last_transition_time,
        }
        for condition in merged.values()
    ]
