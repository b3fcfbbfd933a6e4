"""Why a workload that others depend on does not work: a DaemonSet of the GPU stack, a webhook, a reservation pod.

`gpu_stack` asks it about components of a node, `resource_claims` about drivers, `refusal` about objects that a message
names. Its pods may be refused, unplaceable, without an image, killed or failing, as those of any other workload.
"""

from __future__ import annotations

import re

from windlass.diagnose import log_patterns
from windlass.diagnose.contradictions import current_logs, is_ready
from windlass.diagnose.evidence import ClusterObject, Evidence, LogLines
from windlass.diagnose.finding import Finding
from windlass.diagnose.log_patterns import LONG_LINE, PatternMatch, match_finding
from windlass.diagnose.pod_status import is_failing, memory_findings, pull_findings
from windlass.diagnose.reports import Report, event_reports, status_reports
from windlass.diagnose.scheduler_condition import codes_of_message
from windlass.diagnose.subject import Subject, is_waiting, node_of
from windlass.diagnose.unstructured import find_condition, nested, nested_int, nested_string

OWNERS = ("DaemonSet", "Deployment", "StatefulSet", "ReplicaSet")
SERVICE = re.compile(r"https?://([\w-]+)\.([\w-]+)\.svc|service \"?([\w-]+)\"?")


def workload_fault(evidence: Evidence, owner: ClusterObject, now: int, node: str = "") -> Finding | None:
    """Why it has no working pod (on the node); None if nothing says why, or if it works."""
    family = [owner, *(child for child in evidence.children(owner) if child.kind in OWNERS)]
    pods = [pod for item in family for pod in evidence.children(item) if pod.kind == "Pod"]
    placed = [pod for pod in pods if not node or (node_of(pod) or _target_node(pod)) in (node, "")]
    if any(is_ready(pod) for pod in placed):
        return None
    for pod in placed:
        found = pod_fault(evidence, pod, now)
        if found is not None:
            return found
    return None if placed else creation_refusal(evidence, family)


def _target_node(pod: ClusterObject) -> str:
    """The node that a DaemonSet's pod is made for; empty for other pods."""
    required = nested(pod.data, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return nested_string(required, "nodeSelectorTerms", 0, "matchFields", 0, "values", 0)


def creation_refusal(evidence: Evidence, owners: list[ClusterObject]) -> Finding | None:
    """The API server's refusal of the pods of a workload."""
    for owner in owners:
        for report in (*event_reports(evidence, owner), *status_reports(owner)):
            found = classified(report)
            if found is not None:
                return found
    return None


def classified(report: Report) -> Finding | None:
    """What a controller's message shows; None if it shows no cause that is known."""
    for seen in log_patterns.find_matches([LogLines(report.speaker, [report.text])], log_patterns.API):
        remedy = WEBHOOK_REMEDY if UNREACHABLE_WEBHOOK.search(seen.line) else ""
        return Finding(seen.code, _essence(seen), (report.quote,), remedy=remedy)
    return None


UNREACHABLE_WEBHOOK = re.compile(r"failed (calling|to call) webhook", re.I)
WEBHOOK_REMEDY = "repair what serves the webhook; until it answers, nothing of that kind can be created"


def _essence(match: PatternMatch) -> str:
    """The message from the words on that say what is wrong; empty if it has none of them."""
    found = ESSENCE.search(match.line)
    return match.line[found.start() :].strip()[:LONG_LINE] if found else ""


ESSENCE = re.compile(
    r"exceeded quota:|insufficient quota|admission webhook|violates Pod|failed calling webhook|queue \w+ quota", re.I
)


def pod_fault(evidence: Evidence, pod: ClusterObject, now: int) -> Finding | None:
    """Why a pod that others depend on does not work, in its own and its kubelet's words."""
    if is_ready(pod):
        return None
    if is_waiting(pod):
        message = nested_string(find_condition(pod.data, "PodScheduled"), "message")
        codes = codes_of_message(message)
        return Finding(codes[0], f"{pod.title} finds no node: {message}") if len(codes) == 1 else None
    failures = [*pull_findings(evidence, pod, now), *memory_findings(pod)]
    if failures:
        found = failures[0]
        return Finding(found.code, f"{pod.title} does not work: {found.message}", found.evidence, found.contributing)
    if not is_failing(pod):
        return None
    logs = current_logs(evidence, pod)
    for source in (log_patterns.STACK, log_patterns.CONTAINER):
        for seen in log_patterns.find_matches(logs, source):
            found = match_finding(seen)
            return Finding(found.code, f"{pod.title} fails: {found.message}", found.evidence)
    return None


# Objects that a message names


def named_fault(evidence: Evidence, subject: Subject, report: Report, now: int) -> Finding | None:
    """The fault of another object that the message about the subject names: what it waits for, or calls."""
    family = {id(item) for item in (*subject.related, *subject.pods)}
    words = set(re.findall(r"[a-z0-9][a-z0-9.-]{5,}[a-z0-9]", report.text))
    for pod in evidence.of_kind("Pod"):
        if pod.name in words and id(pod) not in family:
            found = pod_fault(evidence, pod, now)
            if found is not None:
                return found
    for name, namespace, bare in SERVICE.findall(report.text):
        for owner in _behind_service(evidence, name or bare, namespace):
            found = workload_fault(evidence, owner, now)
            if found is not None:
                return found
    return None


def _behind_service(evidence: Evidence, service: str, namespace: str) -> list[ClusterObject]:
    """Deployments without a ready pod in the service's namespace: those that the service selects, if it is known."""
    known = [item for item in evidence.of_kind("Service") if item.name == service]
    where = namespace or (known[0].namespace if len(known) == 1 else "")
    found = []
    for item in evidence.of_kind("Deployment"):
        if where and item.namespace == where and not nested_int(item.data, "status", "readyReplicas"):
            found.append(item)
    return found
