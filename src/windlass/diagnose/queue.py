"""Work that waits in a queue: suspended jobs, gates, Kueue's workloads, queues and quotas.

Fed by `why` with the subject. A queue's own conditions say what its controller decided; where it has said nothing, the
engine's plan for the same objects does.
"""

from __future__ import annotations

import re

from windlass.diagnose import tree
from windlass.diagnose.evidence import Evidence, Item
from windlass.diagnose.finding import Finding
from windlass.diagnose.subject import Subject

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
MANY_EVICTIONS = 3
"""Evictions of one workload from which on it is a loop and not bad luck."""

MESSAGES = (
    (
        "KUEUE_TOPOLOGY_NOFIT",
        re.compile(
            r"topology .*(allows to fit only|doesn't allow to fit)|no topology domains at level"
            r"|topology.{0,40}not found",
            re.I,
        ),
    ),
    (
        "KUEUE_FLAVOR_MISMATCH",
        re.compile(
            r"untolerated taint|doesn't match (node affinity|with node affinity)|no matching flavor", re.I
        ),
    ),
    ("KUEUE_QUOTA_MISCONFIGURED", re.compile(r"resource \S+ unavailable in ClusterQueue", re.I)),
    (
        "KUEUE_QUOTA_INSUFFICIENT",
        re.compile(r"insufficient (unused )?quota|ExceedsMaxQuota|maximum capacity", re.I),
    ),
    (
        "KUEUE_QUEUE_MISSING",
        re.compile(
            r"(LocalQueue|ClusterQueue) \S* ?(doesn't exist|is inactive|not found|is stopped)"
            r"|doesn't exist or inactive|queue.{0,20}(inactive|stopped|doesn't exist)",
            re.I,
        ),
    ),
    (
        "QUEUE_BEHIND_HEAD",
        re.compile(r"behind|head of the queue|higher priority workloads? (are|is) pending", re.I),
    ),
    ("WAITING_FOR_PREEMPTION", re.compile(r"waiting for .{0,20}preempt|Pending the preemption of", re.I)),
    ("GPU_FULL", re.compile(r"\b(didn't|did not|doesn't) have enough resource", re.I)),
)
REASONS = {
    "NoMatchingFlavor": "KUEUE_FLAVOR_MISMATCH",
    "WaitingForQuota": "KUEUE_QUOTA_INSUFFICIENT",
    "ExceedsMaxQuota": "KUEUE_QUOTA_INSUFFICIENT",
    "TopologyPlacementFailed": "KUEUE_TOPOLOGY_NOFIT",
    "WaitingForPreemptedWorkloads": "WAITING_FOR_PREEMPTION",
    "Misconfigured": "KUEUE_QUEUE_MISSING",
    "Inadmissible": "KUEUE_QUEUE_MISSING",
    "Suspended": "KUEUE_QUEUE_MISSING",
}
"""Kueue's own reasons, where its message says no more."""


def queue_finding(evidence: Evidence, subject: Subject) -> Finding | None:
    """What holds it before any node is looked at; None where no queue and nobody's hand does."""
    loop = _loop(evidence, subject)
    if loop is not None:
        return loop
    workload = next((item for item in subject.family if item.kind == "Workload"), None)
    queue = _queue_name(subject, workload)
    if workload is not None and not _admitted(workload):
        found = _of_workload(workload)
        if found is not None:
            return found
    return None if queue else _suspended(subject)


def is_admitted(subject: Subject) -> bool:
    return any(_admitted(item) for item in subject.family if item.kind == "Workload")


def promised(evidence: Evidence, resource: str) -> int:
    """What all ClusterQueues and cohorts together may hand out of a resource."""
    total = 0
    for item in (*evidence.of_kind("ClusterQueue"), *evidence.of_kind("Cohort")):
        for group in tree.rows(item.data, "spec", "resourceGroups"):
            for flavor in tree.rows(group, "flavors"):
                rows = [row for row in tree.rows(flavor, "resources") if tree.text(row, "name") == resource]
                total += sum(tree.number(row, "nominalQuota") for row in rows)
    return total


def preempted_for(evidence: Evidence, subject: Subject) -> list[str]:
    """Workloads that had to go for the subject: by the identity that the eviction names; where it names nobody, any
    that were preempted while the subject, to which room was promised, waits."""
    uids = {item.uid for item in (*subject.family, *subject.pods) if item.uid}
    mine = {f"{item.namespace}/{item.name}" for item in (*subject.family, *subject.pods)}
    found: dict[str, None] = {}
    for item in evidence.of_kind("Workload"):
        evicted = tree.condition(item.data, "Evicted")
        gone = tree.text(evicted, "status") == "True" and tree.text(evicted, "reason") == "Preempted"
        if gone and _is_for(tree.text(evicted, "message"), uids):
            found[f"{item.namespace}/{item.name}"] = None
    for event in evidence.events:
        if event.reason in ("Preempted", "EvictedDueToPreempted") and _is_for(event.message, uids):
            found[f"{event.namespace or 'default'}/{event.name}"] = None
    return [name for name in found if name not in mine]


def _is_for(message: str, uids: set[str]) -> bool:
    """Kueue names the preemptor's UID since 0.8, kube-scheduler since 1.27; before, nobody is named."""
    named = re.search(r"(?:UID: |by pod )([\w-]{8,})", message)
    return named is None or not uids or named[1] in uids


def is_queued(subject: Subject) -> bool:
    workload = next((item for item in subject.family if item.kind == "Workload"), None)
    return bool(_queue_name(subject, workload)) and (workload is None or not _admitted(workload))


def _queue_name(subject: Subject, workload: Item | None) -> str:
    if workload is not None:
        named = tree.text(workload.data, "spec", "queueName")
        if named:
            return named
    for item in (subject.item, *subject.owners, *subject.pods[:1]):
        if item.labels.get(QUEUE_LABEL):
            return item.labels[QUEUE_LABEL]
    return ""


def _admitted(workload: Item) -> bool:
    admitted = tree.text(tree.condition(workload.data, "Admitted"), "status")
    return admitted == "True" or (not admitted and bool(tree.table(workload.data, "status", "admission")))


def _of_workload(workload: Item) -> Finding | None:
    reserved = tree.condition(workload.data, "QuotaReserved")
    message, reason = tree.text(reserved, "message"), tree.text(reserved, "reason")
    if tree.text(reserved, "status") == "False":
        for code, pattern in MESSAGES:
            if pattern.search(message):
                return Finding(code, message.rstrip("."), (f"{workload.title}: {message}",))
        if reason in REASONS:
            return Finding(REASONS[reason], message, (f"{workload.title}: {reason}: {message}",))
    evicted = tree.condition(workload.data, "Evicted")
    if tree.text(evicted, "status") == "True" and tree.text(evicted, "reason") == "Deactivated":
        return Finding(
            "KUEUE_QUEUE_MISSING", f"{workload.title} was deactivated: {tree.text(evicted, 'message')}"
        )
    checks = [
        row
        for row in tree.rows(workload.data, "status", "admissionChecks")
        if tree.text(row, "state") != "Ready"
    ]
    if checks:
        said = f"admission check {tree.text(checks[0], 'name')} is {tree.text(checks[0], 'state')}"
        return Finding("CLOUD_CAPACITY", f"{said}: {tree.text(checks[0], 'message')}")
    return None


def stopped(queue: Item) -> Finding | None:
    policy = tree.text(queue.data, "spec", "stopPolicy")
    if policy in ("Hold", "HoldAndDrain"):
        return Finding("KUEUE_QUEUE_MISSING", f"{queue.title} is stopped (stopPolicy {policy})")
    active = tree.condition(queue.data, "Active")
    if tree.text(active, "status") == "False":
        said = f"{queue.title} is inactive: {tree.text(active, 'message') or tree.text(active, 'reason')}"
        return Finding("KUEUE_QUEUE_MISSING", said)
    return None


def suspended_item(subject: Subject) -> Item | None:
    """The object that its owner has suspended, of the subject and those above it."""
    places = (("spec", "suspend"), ("spec", "runPolicy", "suspend"))
    for item in (subject.item, *subject.owners):
        if any(tree.flag(item.data, *place) for place in places):
            return item
    return None


def _suspended(subject: Subject) -> Finding | None:
    item = suspended_item(subject)
    if item is None or subject.pods:
        return None
    return Finding("JOB_SUSPENDED", f"{item.title} is suspended, and no queue holds it")


def _loop(evidence: Evidence, subject: Subject) -> Finding | None:
    """Workloads that are evicted again and again, the subject or those that it competes with."""
    counts = evictions(evidence)
    repeated = {name: count for name, count in counts.items() if count >= MANY_EVICTIONS}
    if not repeated:
        return None
    mine = {f"{item.namespace}/{item.name}" for item in (subject.item, *subject.family, *subject.pods)}
    waiting = not subject.pods or bool(subject.pending)
    if not mine & set(repeated) and not (waiting and _in_a_queue(subject)):
        return None
    listed = ", ".join(
        f"{name} {count} times" for name, count in sorted(repeated.items(), key=lambda one: -one[1])[:4]
    )
    return Finding("PREEMPTION_LOOP", f"workloads evict one another without end: {listed}")


def _in_a_queue(subject: Subject) -> bool:
    return any(
        item.kind == "Workload" or QUEUE_LABEL in item.labels for item in (*subject.family, *subject.pods)
    )


def evictions(evidence: Evidence) -> dict[str, int]:
    """`namespace/name` → how often it is known to have been preempted."""
    counts: dict[str, int] = {}
    for event in evidence.events:
        if (
            event.reason in ("Preempted", "EvictedDueToPreempted", "Evicted")
            and "reempt" in event.message + event.reason
        ):
            key = f"{event.namespace or 'default'}/{event.name}"
            counts[key] = counts.get(key, 0) + event.count
    for item in evidence.of_kind("Workload"):
        stats = tree.rows(item.data, "status", "schedulingStats", "evictions")
        total = sum(tree.number(row, "count") for row in stats if tree.text(row, "reason") == "Preempted")
        key = f"{item.namespace}/{item.name}"
        counts[key] = max(counts.get(key, 0), total)
    return {key: count for key, count in counts.items() if count}
