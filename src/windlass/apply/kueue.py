"""Kueue's objects as Windlass writes them: Workloads of Jobs and the like, what they hold, what their conditions say.

Used by `apply.admission`; everything here is data in, data out. Names, reasons and fields are Kueue's interface
(Apache-2.0), so that whoever knows Kueue finds what he looks for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from windlass.model.decision import Admit
from windlass.model.kueue import WorkloadObject
from windlass.model.kueue.workload_wire import Condition
from windlass.model.owners import Owner
from windlass.model.quota import format_quota, quota_requests
from windlass.model.times import format_timestamp
from windlass.model.topology import HOSTNAME
from windlass.model.unstructured import Unstructured
from windlass.model.workload import Workload
from windlass.placement.stop_conditions import DURATION_EXCEEDED, GANG_BELOW_MINIMUM
from windlass.queueing.outcome import CLUSTER_QUEUE_STOPPED, DEACTIVATED, LOCAL_QUEUE_STOPPED


class WorkloadQueue(msgspec.Struct, frozen=True):
    """Where a Workload waits, and in which version its kind is there."""

    name: str
    priority: int
    version: str


NON_PREEMPTION_MESSAGES = {
    DURATION_EXCEEDED: "Its declared time was over",
    GANG_BELOW_MINIMUM: "Too few of its pods were left",
    CLUSTER_QUEUE_STOPPED: "The ClusterQueue is stopped",
    LOCAL_QUEUE_STOPPED: "The LocalQueue is stopped",
    DEACTIVATED: "The workload is deactivated",
}
"""Reasons to stop a workload that nobody else profits from, in words: it was not preempted then."""
LONGEST_NAME = 63
MANAGED_BY = {"app.kubernetes.io/managed-by": "windlass"}


def workload_name(kind: str, name: str, uid: str) -> str:
    """Of the Workload that stands for an owner: the same on every replica, and another for a new owner of the name."""
    digest = hashlib.sha1(f"{kind}/{name}/{uid}".encode(), usedforsecurity=False).hexdigest()[:5]
    stem = f"{kind.lower()}-{name}"
    return f"{stem[: LONGEST_NAME - 6].rstrip('-.')}-{digest}"


def build_workload(
    raw: Unstructured, owner: Owner, templates: Mapping[str, Unstructured], queue: WorkloadQueue
) -> Unstructured:
    """The Workload of an owner as the API server has it; `templates` are those of its pod sets."""
    meta = raw["metadata"]
    sets = []
    for one in owner.pod_sets:
        made: Unstructured = {"name": one.name, "count": one.count, "template": templates[one.name]}
        sets.append(made if one.min_count in (None, one.count) else {**made, "minCount": one.min_count})
    reference = {
        "apiVersion": raw["apiVersion"],
        "kind": owner.kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    spec = {"podSets": sets, "queueName": queue.name, "priority": queue.priority, "active": True}
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


def is_written_by_windlass(wire: WorkloadObject) -> bool:
    return MANAGED_BY.items() <= wire.metadata.labels.items()


def matches_owner(wire: WorkloadObject, owner: Owner, queue: str) -> bool:
    """Whether the Workload still says what the owner does: people change what waits."""
    said = [
        (one.name, one.count, one.min_count or one.count, one.template.spec) for one in wire.spec.pod_sets
    ]
    meant = [(one.name, one.count, one.min_count or one.count, one.template.spec) for one in owner.pod_sets]
    return said == meant and wire.spec.queue_name == queue


def admission_status(
    wire: WorkloadObject,
    admit: Admit,
    workload: Workload,
    hostnames: Mapping[str, str],
    version: str,
    now: int,
) -> Unstructured:
    """The status of a Workload that has got its quota and its place."""
    pods = {one.name: one.template for one in workload.pod_sets}
    assignments = []
    for one in admit.pod_sets:
        asked = quota_requests(pods[one.name])
        assignment: Unstructured = {"name": one.name, "count": one.count, "flavors": dict(one.flavors)}
        usage = {name: format_quota(name, asked.get(name, 0) * one.count) for name in one.flavors}
        assignment["resourceUsage"] = usage
        if one.nodes:
            assignment["topologyAssignment"] = _hosts(one.nodes, hostnames, version)
        assignments.append(assignment)
    admitted = f"The workload is admitted in ClusterQueue {admit.queue}"
    changes = [
        _condition(
            "QuotaReserved", "True", "QuotaReserved", f"Quota reserved in ClusterQueue {admit.queue}", now
        ),
        _condition("Admitted", "True", "Admitted", admitted, now),
    ]
    gone = ("Evicted", "Preempted", "Requeued")
    return {
        "admission": {"clusterQueue": admit.queue, "podSetAssignments": assignments},
        "conditions": _merged((one for one in wire.status.conditions if one.type not in gone), changes),
    }


def eviction_status(wire: WorkloadObject, reason: str, now: int) -> Unstructured:
    """The status of a Workload that had to go: unless somebody has deactivated it, it queues again where it was."""
    why = reason if reason in NON_PREEMPTION_MESSAGES else "Preempted"
    message = NON_PREEMPTION_MESSAGES.get(reason, f"Preempted to accommodate a workload: {reason}")
    changes = [
        _condition("QuotaReserved", "False", "Pending", message, now),
        _condition("Admitted", "False", "NoReservation", "The workload has no reservation", now),
        _condition("Evicted", "True", why, message, now),
    ]
    if reason != DEACTIVATED:
        changes.append(_condition("Requeued", "True", why, "It waits in its queue again", now))
    if why == "Preempted":
        changes.append(_condition("Preempted", "True", reason, message, now))
    counts = {one.reason: one.count for one in wire.status.scheduling_stats.evictions}
    counts[why] = counts.get(why, 0) + 1
    return {
        "admission": None,
        "conditions": _merged(wire.status.conditions, changes),
        "schedulingStats": {"evictions": [{"reason": one, "count": count} for one, count in counts.items()]},
    }


def pending_status(wire: WorkloadObject, reason: str, message: str, now: int) -> Unstructured:
    change = _condition("QuotaReserved", "False", reason, message, now)
    return {"conditions": _merged(wire.status.conditions, [change])}


def finished_status(wire: WorkloadObject, reason: str, now: int) -> Unstructured:
    change = _condition("Finished", "True", reason, "It has ended", now)
    return {"conditions": _merged(wire.status.conditions, [change])}


def has_condition(wire: WorkloadObject, kind: str, status: str, reason: str, message: str) -> bool:
    """Whether the Workload's condition is that already."""
    return any(
        (one.type, one.status, one.reason, one.message) == (kind, status, reason, message)
        for one in wire.status.conditions
    )


def _hosts(nodes: Mapping[str, int], hostnames: Mapping[str, str], version: str) -> Unstructured:
    names = [hostnames.get(node, node) for node in nodes]
    if version == "v1beta1":
        domains = [
            {"values": [name], "count": count} for name, count in zip(names, nodes.values(), strict=True)
        ]
        return {"levels": [HOSTNAME], "domains": domains}
    slice_ = {
        "domainCount": len(names),
        "valuesPerLevel": [{"individual": {"roots": names}}],
        "podCounts": {"individual": list(nodes.values())},
    }
    return {"levels": [HOSTNAME], "slices": [slice_]}


def _condition(kind: str, status: str, reason: str, message: str, now: int) -> Condition:
    return Condition(
        type=kind, status=status, reason=reason, message=message, last_transition_time=format_timestamp(now)
    )


def _merged(known: Iterable[Condition], changes: Iterable[Condition]) -> list[Unstructured]:
    """The conditions with the changes; one that keeps its status keeps the time since when it has it."""
    merged = {one.type: one for one in known}
    for change in changes:
        old = merged.get(change.type)
        since = old.last_transition_time if old is not None and old.status == change.status else ""
        merged[change.type] = change if not since else _since(change, since)
    return [
        {
            "type": one.type,
            "status": one.status,
            "reason": one.reason or "Unknown",
            "message": one.message,
            "lastTransitionTime": one.last_transition_time,
        }
        for one in merged.values()
    ]


def _since(condition: Condition, time: str) -> Condition:
    return Condition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        last_transition_time=time,
    )
