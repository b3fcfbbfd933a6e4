"""Work held by a queue: conditions of Kueue's Workloads, stopped queues, suspended jobs, preemption loops.

Called by `why`. Conditions say what the queue's controller decided; where there are none, `why` uses the engine's plan.
"""

from __future__ import annotations

import re

import msgspec

from windlass.apply.messages import code_of_message
from windlass.diagnose.autoscaler import capacity_code
from windlass.diagnose.causes import CAUSES
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding, MissingEvidence
from windlass.diagnose.reports import event_reports, status_reports
from windlass.diagnose.subject import Subject
from windlass.diagnose.suspended import suspension_finding
from windlass.diagnose.unstructured import (
    find_condition,
    nested_int,
    nested_map,
    nested_maps,
    nested_string,
)
from windlass.model.message_code import CODE_AT_END
from windlass.model.names.kueue import QUEUE_NAME_LABEL

MANY_EVICTIONS = 3
"""From this number of evictions of one workload on, it counts as a preemption loop."""

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
        re.compile(r"untolerated taint|doesn't match (node affinity|with node affinity)|no matching flavor", re.I),
    ),
    (
        "KUEUE_QUOTA_MISCONFIGURED",
        re.compile(r"resource \S+ unavailable in ClusterQueue|is not mapped\b|not covered by", re.I),
    ),
    (
        "KUEUE_QUOTA_INSUFFICIENT",
        re.compile(r"insufficient (unused )?quota|ExceedsMaxQuota|maximum capacity|(borrowing|lending) limit", re.I),
    ),
    ("POLICY_DENIED", re.compile(r"didn't satisfy LimitRange", re.I)),
    (
        "INVALID_OBJECT",
        re.compile(r"resources? validation failed|requests? (must not|can't) exceed (its|their) limits", re.I),
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
"""Kueue's condition reasons, for messages that no pattern matches."""


def queue_finding(evidence: Evidence, subject: Subject) -> Finding | None:
    """What holds it before scheduling: a loop, its Workload's conditions or spec.suspend; else None."""
    loop = _loop(evidence, subject)
    if loop is not None:
        return loop
    workload = next((item for item in subject.related if item.kind == "Workload"), None)
    queue = _queue_name(subject, workload)
    if workload is not None and not _admitted(workload):
        found = _of_workload(evidence, workload)
        if found is not None:
            return found
    is_decided = workload is not None and _admitted(workload)
    return suspension_finding(evidence, subject, is_decided) if is_decided or not queue else None


def is_said_by_windlass(subject: Subject, finding: Finding) -> bool:
    """Whether the finding only repeats the condition in which Windlass tells the owner why the work waits.

    Such a condition is as old as the decision before, names nobody else's work and has no numbers. That victims are
    about to go is what it alone says.
    """
    if finding.code == "WAITING_FOR_PREEMPTION":
        return False
    workloads = [item for item in subject.related if item.kind == "Workload"][:1]
    said = [nested_string(find_condition(item.data, "QuotaReserved"), "message") for item in workloads]
    return any(code_of_message(text) == finding.code and _own_words(text) == finding.headline for text in said)


def _own_words(message: str) -> str:
    """A message of Windlass without its code and, where it counts no nodes, without the words about nodes."""
    return CODE_AT_END.sub("", NODES_AVAILABLE.sub("", message)).rstrip(".")


NODES_AVAILABLE = re.compile(r"^0/\d+ nodes are available: (?!\d)")


def preempted_for(evidence: Evidence, subject: Subject) -> tuple[str, ...]:
    """For whom it was evicted last, as its Workload says; empty if it was not preempted."""
    workloads = [item for item in subject.related if item.kind == "Workload"]
    evicted = [(item, find_condition(item.data, "Evicted")) for item in workloads]
    return tuple(
        f"{item.title}: {_with_preemptor(evidence, nested_string(condition, 'message'))}"
        for item, condition in evicted
        if nested_string(condition, "status") == "True" and nested_string(condition, "reason") == "Preempted"
    )


def _with_preemptor(evidence: Evidence, message: str) -> str:
    """The message with the name of the workload whose UID it has."""
    named = PREEMPTOR_UID.search(message)
    known = evidence.of_kind("Workload") if named is not None else ()
    return next((f"{message}: {item.title}" for item in known if named is not None and item.uid == named[1]), message)


def is_admitted(subject: Subject) -> bool:
    return any(_admitted(item) for item in subject.related if item.kind == "Workload")


def total_nominal_quota(evidence: Evidence, resource: str) -> int:
    """Nominal quota of the resource, summed over all ClusterQueues and cohorts."""
    total = 0
    for item in (*evidence.of_kind("ClusterQueue"), *evidence.of_kind("Cohort")):
        for group in nested_maps(item.data, "spec", "resourceGroups"):
            for flavor in nested_maps(group, "flavors"):
                rows = [row for row in nested_maps(flavor, "resources") if nested_string(row, "name") == resource]
                total += sum(nested_int(row, "nominalQuota") for row in rows)
    return total


def victims_of(evidence: Evidence, subject: Subject) -> list[str]:
    """Workloads preempted for the subject, by the UID in the eviction's message; without a UID, every preempted one."""
    uids = {item.uid for item in (*subject.related, *subject.pods) if item.uid}
    own = {f"{item.namespace}/{item.name}" for item in (*subject.related, *subject.pods)}
    found: dict[str, None] = {}
    for item in evidence.of_kind("Workload"):
        evicted = find_condition(item.data, "Evicted")
        gone = nested_string(evicted, "status") == "True" and nested_string(evicted, "reason") == "Preempted"
        if gone and _is_for(nested_string(evicted, "message"), uids):
            found[f"{item.namespace}/{item.name}"] = None
    for event in evidence.events:
        if event.reason in ("Preempted", "EvictedDueToPreempted") and _is_for(event.message, uids):
            found[f"{event.namespace or 'default'}/{event.name}"] = None
    return [name for name in found if name not in own]


def _is_for(message: str, uids: set[str]) -> bool:
    """Kueue names the preemptor's UID since 0.8, kube-scheduler since 1.27; older releases name none."""
    named = PREEMPTOR_UID.search(message)
    return named is None or not uids or named[1] in uids


PREEMPTOR_UID = re.compile(r"(?:UID: |by pod )([\w-]{8,})")


def is_queued(subject: Subject) -> bool:
    workload = next((item for item in subject.related if item.kind == "Workload"), None)
    return bool(_queue_name(subject, workload)) and (workload is None or not _admitted(workload))


def _queue_name(subject: Subject, workload: ClusterObject | None) -> str:
    if workload is not None:
        named = nested_string(workload.data, "spec", "queueName")
        if named:
            return named
    for item in (subject.item, *subject.owners, *subject.pods[:1]):
        if item.labels.get(QUEUE_NAME_LABEL):
            return item.labels[QUEUE_NAME_LABEL]
    return ""


def _admitted(workload: ClusterObject) -> bool:
    """Whether all of it is admitted: of an elastic Job that was made larger, further pods may wait for quota."""
    admitted = nested_string(find_condition(workload.data, "Admitted"), "status")
    checks = nested_maps(workload.data, "status", "admissionChecks")
    is_checked = all(nested_string(check, "state") == "Ready" for check in checks)
    has_quota = is_checked and bool(nested_map(workload.data, "status", "admission"))
    is_admitted = admitted == "True" or (not admitted and has_quota)
    return is_admitted and not _asks_for_more(workload)


def _asks_for_more(workload: ClusterObject) -> bool:
    """Whether a pod set was admitted with fewer pods than it asks for, without partial admission."""
    parts = nested_maps(workload.data, "status", "admission", "podSetAssignments")
    admitted = {nested_string(part, "name"): nested_int(part, "count") for part in parts if "count" in part}
    reclaimable = nested_maps(workload.data, "status", "reclaimablePods")
    ended = {nested_string(part, "name"): nested_int(part, "count") for part in reclaimable}
    for pod_set in nested_maps(workload.data, "spec", "podSets"):
        name, count = nested_string(pod_set, "name"), nested_int(pod_set, "count")
        if "minCount" not in pod_set and count - ended.get(name, 0) > admitted.get(name, count):
            return True
    return False


def _of_workload(evidence: Evidence, workload: ClusterObject) -> Finding | None:
    reserved = find_condition(workload.data, "QuotaReserved")
    message, reason = (nested_string(reserved, "message"), nested_string(reserved, "reason"))
    if nested_string(reserved, "status") == "False":
        ours = code_of_message(message)  # Windlass says the cause; only Kueue's messages have to be read
        if ours in CAUSES:
            return Finding(ours, _own_words(message), (f"{workload.title}: {message}",))
        for code, pattern in MESSAGES:
            if pattern.search(message):
                return Finding(code, message.rstrip("."), (f"{workload.title}: {message}",))
        said = f"{workload.title}: {reason}: {message}"
        if reason in REASONS and (
            REASONS[reason] != "KUEUE_QUEUE_MISSING" or not message or "queue" in message.lower()
        ):
            return Finding(REASONS[reason], message, (said,))
        if message and "deactivated" not in message:
            command = f"kubectl describe workload -n {workload.namespace} {workload.name}"
            missing = MissingEvidence("what its queue's controller says", command)
            return Finding(
                "UNKNOWN", f"its queue does not admit it: {message.rstrip('.')}", (said,), missing=(missing,)
            )
    evicted = find_condition(workload.data, "Evicted")
    if nested_string(evicted, "status") == "True" and nested_string(evicted, "reason") == "Deactivated":
        message = f"{workload.title} was deactivated: {nested_string(evicted, 'message')}"
        return Finding("JOB_SUSPENDED", message, remedy="set spec.active of the Workload to true")
    checks = nested_maps(workload.data, "status", "admissionChecks")
    return next((_of_check(evidence, workload, row) for row in checks if nested_string(row, "state") != "Ready"), None)


def _of_check(evidence: Evidence, workload: ClusterObject, check: dict[str, object]) -> Finding:
    """An admission check that is not ready: what it and the request that it has made for nodes say."""
    name, state, said = (nested_string(check, field) for field in ("name", "state", "message"))
    requests = [child for child in evidence.children(workload) if child.kind == "ProvisioningRequest"]
    reports = [report for item in requests for report in (*status_reports(item), *event_reports(evidence, item))]
    headline, proof = f"admission check {name} is {state}: {said}", tuple(report.quote for report in reports[:1])
    code = next((code for text in (said, *(report.text for report in reports)) if (code := capacity_code(text))), "")
    known = evidence.get("AdmissionCheck", "", name)
    maker = nested_string(known.data, "spec", "controllerName") if known is not None else "provisioning"
    if not code and "provisioning" not in maker:
        missing = MissingEvidence(f"the log of {maker}", f"kubectl describe admissioncheck {name}")
        return Finding("UNKNOWN", f"{headline} (by {maker})", proof, missing=(missing,))
    return Finding(code or "CLOUD_CAPACITY", headline, proof)


def stopped_queue_finding(queue: ClusterObject) -> Finding | None:
    policy = nested_string(queue.data, "spec", "stopPolicy")
    if policy in ("Hold", "HoldAndDrain"):
        remedy = "have its stopPolicy set to None, or use another queue"
        return Finding("KUEUE_QUEUE_MISSING", f"{queue.title} is stopped (stopPolicy {policy})", remedy=remedy)
    active = find_condition(queue.data, "Active")
    if nested_string(active, "status") == "False":
        message = nested_string(active, "message") or nested_string(active, "reason")
        remedy = "create or correct the objects that it refers to"
        return Finding("KUEUE_QUEUE_MISSING", f"{queue.title} is inactive: {message.rstrip('.')}", remedy=remedy)
    return None


def local_queue_finding(evidence: Evidence, queue: ClusterObject) -> Finding | None:
    """What is wrong with a LocalQueue, or with the ClusterQueue behind it."""
    name = nested_string(queue.data, "spec", "clusterQueue")
    behind = evidence.get("ClusterQueue", "", name)
    if behind is None and name and "ClusterQueue" in evidence.complete_kinds:
        message = f"{queue.title} belongs to ClusterQueue {name}, which does not exist"
        return Finding("KUEUE_QUEUE_MISSING", message)
    return stopped_queue_finding(queue) or (stopped_queue_finding(behind) if behind is not None else None)


def waiting_in(evidence: Evidence, queue: ClusterObject) -> int:
    """Workloads of the queue that are neither admitted nor finished."""
    local = {
        (item.namespace, item.name)
        for item in evidence.of_kind("LocalQueue")
        if nested_string(item.data, "spec", "clusterQueue") == queue.name
    }
    own = {(queue.namespace, queue.name)} if queue.kind == "LocalQueue" else local
    workloads = [
        item
        for item in evidence.of_kind("Workload")
        if (item.namespace, nested_string(item.data, "spec", "queueName")) in own
    ]
    ended = [item for item in workloads if nested_string(find_condition(item.data, "Finished"), "status") == "True"]
    return sum(not _admitted(item) for item in workloads if item not in ended)


def with_queue_reason(evidence: Evidence, finding: Finding) -> Finding:
    """The finding about an inactive queue, with what the queue itself says about that."""
    if finding.code != "KUEUE_QUEUE_MISSING":
        return finding
    for item in evidence.of_kind("ClusterQueue"):
        if re.search(rf"\bClusterQueue \"?{re.escape(item.name)}\b", finding.message):
            own = stopped_queue_finding(item)
            return (
                finding if own is None else msgspec.structs.replace(finding, headline=own.headline, remedy=own.remedy)
            )
    return finding


def with_ready_timeouts(evidence: Evidence, subject: Subject, finding: Finding) -> Finding:
    """A start that is slow, with the number of times that its queue has evicted the work for that."""
    times = max((_ready_timeouts(evidence, item) for item in subject.related if item.kind == "Workload"), default=0)
    if finding.code != "IMAGE_PULL_SLOW" or not times:
        return finding
    slow = finding.message
    message = f"{slow}; waitForPodsReady has evicted it {times} time{'' if times == 1 else 's'} before"
    remedy = "pre-pull the image, or raise waitForPodsReady.timeout: each eviction may begin the pull anew"
    return Finding("IMAGE_PULL_SLOW", message, finding.evidence, finding.contributing, remedy)


def _ready_timeouts(evidence: Evidence, workload: ClusterObject) -> int:
    events = [event for event in evidence.events_of(workload) if "PodsReadyTimeout" in event.reason]
    stats = nested_maps(workload.data, "status", "schedulingStats", "evictions")
    counted = sum(nested_int(row, "count") for row in stats if nested_string(row, "reason") == "PodsReadyTimeout")
    known = max(sum(event.count for event in events), counted)
    return max(known, nested_int(workload.data, "status", "requeueState", "count")) if known else 0


def _loop(evidence: Evidence, subject: Subject) -> Finding | None:
    """Workloads that are evicted again and again: the subject, or others while the subject waits in a queue."""
    counts = eviction_counts(evidence)
    repeated = {name: count for name, count in counts.items() if count >= MANY_EVICTIONS}
    if not repeated:
        return None
    own = {f"{item.namespace}/{item.name}" for item in (subject.item, *subject.related, *subject.pods)}
    waiting = not subject.pods or bool(subject.pending)
    if not own & set(repeated) and not (waiting and _in_a_queue(subject)):
        return None
    listed = ", ".join(
        f"{name} {count} times" for name, count in sorted(repeated.items(), key=lambda item: -item[1])[:4]
    )
    return Finding("PREEMPTION_LOOP", f"workloads preempt one another again and again: {listed}")


def _in_a_queue(subject: Subject) -> bool:
    return any(item.kind == "Workload" or QUEUE_NAME_LABEL in item.labels for item in (*subject.related, *subject.pods))


def eviction_counts(evidence: Evidence) -> dict[str, int]:
    """`namespace/name` → number of preemptions, from events and Workload status."""
    counts: dict[str, int] = {}
    for event in evidence.events:
        if (
            event.reason in ("Preempted", "EvictedDueToPreempted", "Evicted")
            and "reempt" in event.message + event.reason
        ):
            key = f"{event.namespace or 'default'}/{event.name}"
            counts[key] = counts.get(key, 0) + event.count
    for item in evidence.of_kind("Workload"):
        stats = nested_maps(item.data, "status", "schedulingStats", "evictions")
        total = sum(nested_int(row, "count") for row in stats if nested_string(row, "reason") == "Preempted")
        key = f"{item.namespace}/{item.name}"
        counts[key] = max(counts.get(key, 0), total)
    return {key: count for key, count in counts.items() if count}
