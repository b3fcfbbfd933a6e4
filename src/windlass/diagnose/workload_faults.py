"""Why a workload that others depend on does not work: a DaemonSet of the GPU stack, a webhook, a reservation pod.

`gpu_stack` asks it about components of a node, `resource_claims` about drivers, `refusal` about objects that a message
names. Its pods may be refused, unplaceable, without an image, killed or failing, as those of any other workload.
"""

from __future__ import annotations

import re

import msgspec

from windlass.diagnose import log_patterns
from windlass.diagnose.contradictions import current_logs, is_ready
from windlass.diagnose.evidence import ClusterObject, Evidence, LogLines
from windlass.diagnose.finding import Finding, MissingEvidence
from windlass.diagnose.log_patterns import LONG_LINE, PatternMatch, match_finding
from windlass.diagnose.nodes import is_gpu_name
from windlass.diagnose.pod_status import is_failing, memory_findings, pull_findings
from windlass.diagnose.reports import COMPLAINS, Report, event_reports, status_reports
from windlass.diagnose.scheduler_condition import codes_of_message
from windlass.diagnose.stack_components import FAILURE_CODES, component_of, container_failure
from windlass.diagnose.subject import Subject, is_waiting, node_of, owners_of
from windlass.diagnose.unstructured import find_condition, nested, nested_int, nested_map, nested_string

OWNERS = ("DaemonSet", "Deployment", "StatefulSet", "ReplicaSet")
SERVICE = re.compile(r"(?<![\w.-])([a-z0-9][\w-]*)\.([a-z0-9][\w-]*)\.svc\b|service \"?([\w-]+)\"?")


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
        remedy = next((remedy for words, remedy in REMEDIES if words.search(seen.line)), "")
        return Finding(seen.code, _essence(seen), (report.quote,), remedy=remedy)
    return None


REMEDIES = (
    (
        re.compile(r"failed (calling|to call) webhook", re.I),
        "repair what serves the webhook; until it answers, nothing of that kind can be created",
    ),
    (
        re.compile(r"violates PodSecurity", re.I),
        "change what the message names in the pod's template, or, if it has to be so, have the namespace labelled "
        "pod-security.kubernetes.io/enforce=privileged",
    ),
    (re.compile(r"error looking up|no PriorityClass", re.I), "create what the message names, or correct the name"),
    (re.compile(r"is being terminated", re.I), "wait until the namespace is gone, and create it and its objects again"),
)
"""Words of a refusal → what to do about it, where that is not what the code says."""


def _essence(match: PatternMatch) -> str:
    """The message from the words on that say what is wrong; empty if it has none of them."""
    found = ESSENCE.search(match.line)
    return match.line[found.start() :].strip()[:LONG_LINE] if found else ""


ESSENCE = re.compile(
    r"exceeded quota:|insufficient quota|admission webhook|violates Pod|failed calling webhook|queue \w+ quota"
    r"|error looking up|no PriorityClass|unable to create new content",
    re.I,
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


def discovery_faults(evidence: Evidence, now: int, node: str = "") -> list[Finding]:
    """Why what makes a node a GPU node for others does not work: discovery labels it, the operator acts on labels.

    Where their pods are refused, unplaceable or failing, nothing that they would make is there: labels, DaemonSets,
    devices.
    """
    for component in DISCOVERY:
        for owner in (item for kind in OWNERS[:3] for item in evidence.of_kind(kind)):
            if component_of(owner) != component:
                continue
            fault = workload_fault(evidence, owner, now, node if owner.kind == "DaemonSet" else "")
            if fault is not None and fault.code not in FAILURE_CODES.values():
                message = f"{owner.title}, on which labels and devices of GPU nodes depend, has no working pod"
                codes = ("GFD_LABELS_MISSING", "DEVICE_PLUGIN_ABSENT", "DRIVER_MISSING")
                return [msgspec.structs.replace(fault, headline=f"{message}: {fault.message}", explains=codes)]
    return []


def unworking_discovery(evidence: Evidence) -> ClusterObject | None:
    """A workload of discovery or of the operator that wants pods and has no ready one, for whatever reason."""
    for owner in (item for kind in OWNERS[:3] for item in evidence.of_kind(kind)):
        status = nested_map(owner.data, "status")
        wanted = nested_int(status, "desiredNumberScheduled") or nested_int(owner.data, "spec", "replicas")
        ready = nested_int(status, "numberReady") or nested_int(status, "readyReplicas")
        if wanted and not ready and component_of(owner) in DISCOVERY:
            return owner
    return None


DISCOVERY = ("node feature discovery", "operator", "feature discovery")
"""Components on which labels, DaemonSets and devices of GPU nodes depend, the first of the chain first."""


def plugin_faults(evidence: Evidence, resource: str, now: int) -> list[Finding]:
    """Why the plugin of a resource that no node advertises does not work, where a DaemonSet is named for its vendor.

    GPU nodes are examined layer by layer (`gpu_stack`); of other devices (RDMA, FPGAs) nothing more is known.
    """
    vendor = resource.partition("/")[0].split(".")[0]
    for owner in evidence.of_kind("DaemonSet"):
        if is_gpu_name(resource) or vendor not in owner.name:
            continue
        fault = workload_fault(evidence, owner, now)
        crash = _crash(evidence, owner) if fault is None else None
        if crash is not None:
            fault = msgspec.structs.replace(crash, code="DEVICE_PLUGIN_FAILING")
        if fault is not None:
            message = f"{owner.title}, which should advertise {resource}, has no working pod: {fault.message}"
            return [msgspec.structs.replace(fault, headline=message, explains=("RESOURCE_NAME_MISMATCH",))]
    return []


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
        # A namespace that serves a webhook has few workloads: where the Service is not known, any of them may be it.
        for owner in _behind_service(evidence, name or bare, namespace) or _down_in(evidence, namespace):
            found = workload_fault(evidence, owner, now)
            if found is not None:
                return found
    return None


def _behind_service(evidence: Evidence, service: str, namespace: str) -> list[ClusterObject]:
    """Workloads without a ready pod that serve it: those that it selects, or that have its name."""
    known = [item for item in evidence.of_kind("Service") if item.name == service]
    where = namespace or (known[0].namespace if len(known) == 1 else "")
    return [item for item in _down_in(evidence, where) if _serves(item, service, known)]


def _down_in(evidence: Evidence, namespace: str) -> list[ClusterObject]:
    """Workloads of the namespace without a ready pod."""
    owners = (item for kind in ("Deployment", "StatefulSet") for item in evidence.of_kind(kind))
    here = [item for item in owners if item.namespace == namespace]
    return [item for item in here if not nested_int(item.data, "status", "readyReplicas")]


def _serves(item: ClusterObject, service: str, known: list[ClusterObject]) -> bool:
    labels = nested_map(item.data, "spec", "template", "metadata", "labels")
    selectors = [nested_map(found.data, "spec", "selector") for found in known if found.namespace == item.namespace]
    return item.name == service or any(selector and selector.items() <= labels.items() for selector in selectors)


# What a program depends on


def dependency_fault(evidence: Evidence, pod: ClusterObject, now: int) -> Finding | None:
    """The failing workload behind the service, or the name resolution, that the pod's last complaints are about."""
    for log in current_logs(evidence, pod):
        for line in [line for line in log.lines if COMPLAINS.search(line)][-MANY_COMPLAINTS:]:
            for owner in _dependencies(evidence, pod, line):
                fault = workload_fault(evidence, owner, now) or _crash(evidence, owner)
                if fault is not None and owner not in owners_of(evidence, pod):
                    message = f"it depends on {owner.title}, which does not work: {fault.message}"
                    quote = f"{log.origin}: {line.strip()[:LONG_LINE]}"
                    return msgspec.structs.replace(fault, headline=message, evidence=(quote, *fault.evidence))
    return None


def _dependencies(evidence: Evidence, pod: ClusterObject, line: str) -> list[ClusterObject]:
    """Workloads without a ready pod that the line is about."""
    if RESOLUTION.search(line):
        return [item for item in _down_in(evidence, "kube-system") if DNS.search(item.name)]
    found = []
    for name, namespace, _ in SERVICE.findall(line):
        found += _behind_service(evidence, name, namespace) if name else []
    hosts = set(HOST_AND_PORT.findall(line))
    for service in evidence.of_kind("Service"):
        if service.namespace == pod.namespace and service.name in hosts:
            found += _behind_service(evidence, service.name, service.namespace)
    return found


def _crash(evidence: Evidence, owner: ClusterObject) -> Finding | None:
    """A pod of it that fails for a reason that is not known."""
    family = [owner, *(child for child in evidence.children(owner) if child.kind in OWNERS)]
    for pod in (child for item in family for child in evidence.children(item) if child.kind == "Pod"):
        if failure := container_failure(pod):
            missing = MissingEvidence("its log", f"kubectl logs -n {pod.namespace} {pod.name} --all-containers")
            return Finding("APP_ERROR", f"{pod.title}: {failure}", missing=(missing,))
    return None


MANY_COMPLAINTS = 20
RESOLUTION = re.compile(r"name resolution|getaddrinfo|name or service not known|no such host|failed to resolve", re.I)
DNS = re.compile(r"coredns|kube-dns")
HOST_AND_PORT = re.compile(r"(?<![\w.-])([a-z][\w-]*):\d{2,5}\b")
