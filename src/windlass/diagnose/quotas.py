"""Quotas: a ResourceQuota that is used up or has a key without effect, and the quota of a scheduler's queue.

Called by `why` for owners without pods, by `root_causes` for the pod's namespace, by `check`, and by `refusal`, which
asks what a scheduler (KAI, Volcano, YuniKorn) means by quota: "over quota" of a queue is no ResourceQuota.
"""

from __future__ import annotations

import re

from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.explanations import USERS
from windlass.diagnose.finding import Finding
from windlass.diagnose.log_patterns import LONG_LINE
from windlass.diagnose.reports import Report
from windlass.diagnose.subject import Subject, pod_group_of, template_pods
from windlass.diagnose.unstructured import nested_map, nested_string
from windlass.model.errors import InputError
from windlass.model.pod import Pod
from windlass.model.queue_names import KAI_PREFIX, VOLCANO_PREFIX, named_queue
from windlass.model.requests import format_amount, is_extended_resource, parse_amount, pod_requests


def quota_finding(evidence: Evidence, subject: Subject) -> Finding | None:
    """A quota of the namespace that one of the subject's pods would exceed."""
    pods, _ = template_pods(subject.item)
    for pod in pods:
        requests = pod_requests(pod)
        for quota in evidence.of_kind("ResourceQuota"):
            if quota.namespace != subject.item.namespace:
                continue
            hard, used = (nested_map(quota.data, "spec", "hard"), nested_map(quota.data, "status", "used"))
            for key, limit in hard.items():
                name = key.removeprefix("requests.").removeprefix("limits.")
                asked = _limits(pod).get(name) if key.startswith("limits.") else requests.get(name)
                if asked is None or is_ineffective_key(key):
                    continue
                over = _over(name, asked, limit, used.get(key, 0))
                if over:
                    return Finding(
                        "RESOURCE_QUOTA_EXCEEDED",
                        f"ResourceQuota {quota.name} of the namespace would be exceeded: {over}",
                    )
    return None


def _limits(pod: Pod) -> dict[str, int]:
    """The limits of the pod's containers, summed."""
    total: dict[str, int] = {}
    for container in pod.spec.containers:
        for name, amount in container.resources.limits.items():
            total[name] = total.get(name, 0) + parse_amount(name, str(amount))
    return total


def _over(name: str, requested: int, limit: object, used: object) -> str:
    try:
        top, taken = parse_amount(name, str(limit)), parse_amount(name, str(used))
    except InputError:
        return ""
    if taken + requested <= top:
        return ""
    amounts = [format_amount(name, amount) for amount in (requested, taken, top)]
    return f"{amounts[0]} {name} requested, {amounts[1]} of {amounts[2]} used"


OTHER_KEYS = re.compile(r"^count/|\.(storageclass\.storage|deviceclass\.resource)\.k8s\.io/")
"""Keys with a slash that are no resource of a pod: numbers of objects, storage of a class, devices of a class."""


def is_ineffective_key(key: str) -> bool:
    """Kubernetes enforces quotas of extended resources only on `requests.<resource>`."""
    bare = key.removeprefix("limits.")
    return is_extended_resource(bare) and not key.startswith("requests.") and not OTHER_KEYS.search(key)


def namespace_key_finding(evidence: Evidence, pod: Pod) -> Finding | None:
    """A quota of the pod's namespace with a key that has no effect."""
    for quota in evidence.of_kind("ResourceQuota"):
        if quota.namespace == (pod.metadata.namespace or "default"):
            found = ineffective_key_finding(quota)
            if found is not None:
                return found
    return None


def ineffective_key_finding(quota: ClusterObject) -> Finding | None:
    """`limits.nvidia.com/gpu` and a bare `nvidia.com/gpu` limit nothing."""
    for key in nested_map(quota.data, "spec", "hard"):
        if is_ineffective_key(key):
            return Finding("QUOTA_KEY_INVALID", f"key {key} of ResourceQuota {quota.name} has no effect")
    return None


# Quota of a queue


QUOTA_WORDS = re.compile(
    r"\bover[- ]?quota\b|\bquota\b.{0,60}\b(exceed|reach|insufficient|used up|not enough|overused)"
    r"|\b(exceed\w*|insufficient|not enough|no more)\b.{0,40}\bquota\b",
    re.I,
)
API_SERVER_WORDS = re.compile(r"exceeded quota: |failed quota: |insufficient quota to match|status unknown for quota")
"""The API server's own words for a ResourceQuota."""


def quota_report_finding(evidence: Evidence, subject: Subject, report: Report) -> Finding | None:
    """Whose quota a message is about: that of the queue which the work names, else a ResourceQuota that is used up."""
    if (unstated := UNSTATED.search(report.text)) is not None:
        return _unstated(report, unstated["quota"], unstated["rest"])
    if not QUOTA_WORDS.search(report.text) or API_SERVER_WORDS.search(report.text):
        return None
    queue = _queue_name(evidence, subject, report.text)
    if not queue:
        return quota_finding(evidence, subject)
    if (ahead := _groups_ahead(evidence, subject, queue)) and not _is_bounded(evidence, queue):
        return _behind(report, queue, ahead)
    text = report.text if len(report.text) <= LONG_LINE else report.text[:LONG_LINE].rpartition(". ")[0]
    remedy = "free some of the queue's quota, ask for less, or have it raised"
    if "preemptible" in report.text.lower():
        remedy = "free some of the queue's quota, have it raised, or use a preemptible priority class to go over it"
    proof = (report.quote, *_numbers(evidence, queue))
    message = f"the quota of queue {queue} is used up or too small: {text.removesuffix('.') or report.text}"
    return Finding("KUEUE_QUOTA_INSUFFICIENT", message, proof, remedy=remedy)


UNSTATED = re.compile(r"failed quota: (?P<quota>\S+): must specify (?P<rest>.+)")
STATED = re.compile(r"([\w./-]+)(?: for: ([\w.,-]+))?")


def _unstated(report: Report, quota: str, rest: str) -> Finding:
    """Nothing is used up: a quota on a resource takes only pods of which every container states that resource."""
    parts = [STATED.match(part.strip()) for part in re.split(r"; ?|,(?=[\w./-]+(?:,|$))", rest)]
    names = [part[1] for part in parts if part is not None]
    containers = dict.fromkeys(name for part in parts if part is not None and part[2] for name in part[2].split(","))
    who = f"container {', '.join(containers)} states none" if containers else "a container of the pod states none"
    message = (
        f"ResourceQuota {quota} is on {' and '.join(names)}, and {who}: such a pod is refused, however much is free"
    )
    remedy = "state them in resources.requests and resources.limits of the template, or have a LimitRange set defaults"
    return Finding("RESOURCE_QUOTA_EXCEEDED", message, (report.quote,), remedy=remedy, changed_by=USERS)


def _queue_name(evidence: Evidence, subject: Subject, text: str) -> str:
    """The queue that the work, its PodGroup or the message names; empty if none does."""
    for item in (*subject.pods, *subject.related):
        if named := named_queue(item.labels, item.annotations):
            return named.removeprefix(KAI_PREFIX).removeprefix(VOLCANO_PREFIX)
        found = pod_group_of(evidence, item) if item.kind == "Pod" else item if _has_queue(item) else None
        if found is not None and (named := nested_string(found.data, "spec", "queue")):
            return named
    words = re.split(r"[^\w.-]+", text)
    return next((queue.name for queue in evidence.of_kind("Queue") if queue.name in words), "")


def _groups_ahead(evidence: Evidence, subject: Subject, queue: str) -> list[ClusterObject]:
    """PodGroups that Volcano has let into the queue and that have no nodes yet: what they ask for counts as used."""
    own = {id(item) for item in (*subject.related, *(pod_group_of(evidence, pod) for pod in subject.pods))}
    groups = (item for item in evidence.of_kind("PodGroup") if nested_string(item.data, "spec", "queue") == queue)
    return [item for item in groups if id(item) not in own and nested_string(item.data, "status", "phase") == "Inqueue"]


def _is_bounded(evidence: Evidence, queue: str) -> bool:
    """Whether the queue's object sets a bound of its own; without one, it may have all that the nodes have."""
    specs = [nested_map(item.data, "spec") for item in evidence.of_kind("Queue") if item.name == queue]
    return not specs or any(
        nested_map(spec, field) for spec in specs for field in ("capability", "deserved", "resources")
    )


def _behind(report: Report, queue: str, ahead: list[ClusterObject]) -> Finding:
    named = ", ".join(f"{item.title} ({_asked(item)})" for item in ahead[:3])
    message = (
        f"queue {queue} has no bound of its own, but what was let into it before counts as used although it waits for "
        f"nodes: {named}"
    )
    remedy = f"run `windlass why` on {ahead[0].title}; delete it if it can never start"
    return Finding("QUEUE_BEHIND_HEAD", message, (report.quote,), remedy=remedy)


def _asked(group: ClusterObject) -> str:
    asked = nested_map(group.data, "spec", "minResources")
    devices = {name: amount for name, amount in asked.items() if is_extended_resource(name)}
    return ", ".join(f"{amount} {name}" for name, amount in (devices or asked).items()) or "no resources stated"


def closed_queue_finding(evidence: Evidence, subject: Subject) -> Finding | None:
    """The queue that the work names for Volcano is closed, or does not exist."""
    name = next((found for item in (*subject.related, *subject.pods) if (found := _volcano_queue(evidence, item))), "")
    queue = next((item for item in evidence.of_kind("Queue") if item.name == name), None)
    if not name or (queue is None and "Queue" not in evidence.complete_kinds):
        return None
    if queue is None:
        return Finding("KUEUE_QUEUE_MISSING", f"it names queue {name}, which does not exist")
    state = nested_string(queue.data, "status", "state")
    if state not in ("Closed", "Closing"):
        return None
    remedy = f"have it opened (vcctl queue operate -a open -n {name}), or use another queue"
    return Finding("KUEUE_QUEUE_MISSING", f"its queue {name} is {state.lower()}: it takes no new work", remedy=remedy)


def _volcano_queue(evidence: Evidence, item: ClusterObject) -> str:
    group = pod_group_of(evidence, item) if item.kind == "Pod" else item
    known = (VOLCANO_BATCH_GROUP, VOLCANO_GROUP)
    return nested_string(group.data, "spec", "queue") if group is not None and group.api_group in known else ""


VOLCANO_GROUP = "scheduling.volcano.sh"


def _has_queue(item: ClusterObject) -> bool:
    """Whether `spec.queue` is a queue of its scheduler: of a PodGroup, and of Volcano's Job."""
    return item.kind == "PodGroup" or item.api_group == VOLCANO_BATCH_GROUP


VOLCANO_BATCH_GROUP = "batch.volcano.sh"


def _numbers(evidence: Evidence, name: str) -> tuple[str, ...]:
    """What the queue's object grants, and what is allocated of it; empty if it is not known."""
    queue = next((item for item in evidence.of_kind("Queue") if item.name == name), None)
    if queue is None:
        return ()
    spec, status = nested_map(queue.data, "spec"), nested_map(queue.data, "status")
    grants = [
        f"{field} {resource} {row[field]}"
        for resource, row in nested_map(spec, "resources").items()
        for field in ("quota", "limit")
        if isinstance(row, dict) and row.get(field, -1) != -1
    ]
    grants += _amounts(spec, "deserved") + _amounts(spec, "capability")
    used = _amounts(status, "allocated") + _amounts(status, "allocatedNonPreemptible")
    return (f"Queue {name}: {', '.join([*grants, *used])}",) if grants or used else ()


def _amounts(data: dict[str, object], field: str) -> list[str]:
    return [f"{field} {resource} {amount}" for resource, amount in nested_map(data, field).items()]
