"""Pods that the API server, a quota or a policy refused, and objects with invalid fields.

Called by `why`. `object_fault` checks the object's own fields; `reported_cause` and `reported_pod_cause` read what
controllers say about it, and follow the objects that they name.
"""

from __future__ import annotations

import re

import msgspec

from windlass.diagnose import log_patterns
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.hypothesis import Conclusion
from windlass.diagnose.message_names import with_limit_range
from windlass.diagnose.quotas import quota_report_finding
from windlass.diagnose.reports import Report, reports_about
from windlass.diagnose.scheduler_condition import COUNTED_NODES
from windlass.diagnose.subject import Subject, pod_group_of, template_pods, templates_of
from windlass.diagnose.unstructured import nested_maps, nested_string
from windlass.diagnose.workload_faults import classified, named_fault
from windlass.model.errors import InputError
from windlass.model.gpu import gpu_request
from windlass.model.pod import Pod
from windlass.model.requests import pod_requests

_CODES = {"FRACTIONAL_GPU_REQUEST", "REQUESTS_NE_LIMITS", "DRA_CLAIM_INVALID"}


def object_fault(item: ClusterObject) -> Finding | None:
    """A field of the object, or of the pods that it would create, that the API server refuses."""
    error = item.error
    if item.kind != "Pod" and (error is None or error.code not in _CODES):
        pods, error = template_pods(item)
        error = error or next((fault for pod in pods if (fault := _request_fault(pod)) is not None), None)
    elif error is None and isinstance(item.decoded, Pod):
        error = _request_fault(item.decoded)
    if error is None:
        return _claim_fault(item)
    code = error.code if error.code in _CODES else _code_of(error)
    message = f"{error.path}: {error.message}" if error.path else error.message
    return Finding(code, message, remedy=error.remedy)


def _request_fault(pod: Pod) -> InputError | None:
    """Why the API server would refuse the pod's requests."""
    try:
        gpu_request(pod, pod_requests(pod))
    except InputError as error:
        return error
    return None


def _code_of(error: InputError) -> str:
    matches = log_patterns.find_matches_in_text(error.message, "", log_patterns.API)
    return matches[0].code if matches else "INVALID_OBJECT"


def _claim_fault(item: ClusterObject) -> Finding | None:
    """A resource claim that names neither a claim nor a template, as before Kubernetes 1.31 (nested in `source`)."""
    if item.kind == "Pod" and item.uid:
        return None  # the API server has taken it
    templates = [("", item.data)] if item.kind == "Pod" else templates_of(item.data)
    for path, template in templates:
        for place, claim in enumerate(nested_maps(template, "spec", "resourceClaims")):
            if not (nested_string(claim, "resourceClaimName") or nested_string(claim, "resourceClaimTemplateName")):
                where = f"{path}.spec.resourceClaims[{place}]".lstrip(".")
                message = f"{where} names neither resourceClaimName nor resourceClaimTemplateName"
                return Finding("DRA_CLAIM_INVALID", message)
    return None


def reported_cause(evidence: Evidence, subject: Subject, now: int) -> Conclusion | None:
    """What controllers say about the subject, its owners and what it owns: why it has no pods, or too few."""
    items = [item for item in subject.related if item.kind != "Workload"]  # `queue` reads Workloads
    return _first_cause(evidence, subject, reports_about(evidence, items, subject.pods), now)


def reported_pod_cause(evidence: Evidence, subject: Subject, now: int) -> Conclusion | None:
    """What controllers say about its waiting pods, and about the groups that these name."""
    groups = [group for pod in subject.pending if (group := pod_group_of(evidence, pod)) is not None]
    items = {id(item): item for item in (*subject.pending[:MANY_PODS], *groups)}
    reports = reports_about(evidence, items.values(), subject.pods)
    # What kube-scheduler counts nodes by is judged on the nodes.
    return _first_cause(evidence, subject, [report for report in reports if not COUNTED_NODES.search(report.text)], now)


MANY_PODS = 20


def _first_cause(evidence: Evidence, subject: Subject, reports: list[Report], now: int) -> Conclusion | None:
    """The first report that shows a cause, with the fault of the object that it names, if it names one."""
    for report in reports:
        found = quota_report_finding(evidence, subject, report) or classified(report)
        if found is None and not BINDING.search(report.text):
            continue
        behind = named_fault(evidence, subject, report, now)
        if behind is None and found is None:
            continue
        if behind is None or (found is not None and behind.code == found.code):
            if found is None:
                return None
            named = with_limit_range(evidence, subject.item.namespace, found)
            return Conclusion(named, is_certain=not _is_alone(report, found, reports))
        links = (found,) if found is not None else ()
        codes = (*behind.contributing, *(link.code for link in links))
        cause = msgspec.structs.replace(behind, evidence=(report.quote, *behind.evidence), contributing=codes)
        return Conclusion(cause, links)
    return None


def _is_alone(report: Report, cause: Finding, reports: list[Report]) -> bool:
    """Whether one line of another pod's log is all that says it: no event, no status, and not said again."""
    others = [found for other in reports if other is not report and (found := classified(other)) is not None]
    return report.is_line and cause.code not in [found.code for found in others]


BINDING = re.compile(r"\b(re)?bind|waiting for|reserv", re.I)
"""A scheduler has chosen a node and can't use it, or waits for something that it names."""


def binding_failure(evidence: Evidence, pod: ClusterObject) -> str:
    """What a scheduler says last about the pod, if that is that binding it to a node fails; else empty."""
    events = [event for event in evidence.events_of(pod) if SCHEDULING.search(event.reason)]
    return events[-1].message if events and FAILED_BINDING.search(f"{events[-1].reason} {events[-1].message}") else ""


SCHEDULING = re.compile(r"schedul|bind", re.I)
FAILED_BINDING = re.compile(r"(bind\w*.{0,20}(fail|error|reject|denied))|((fail|error|reject|unable).{0,20}bind)", re.I)
