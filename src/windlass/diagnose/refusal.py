"""Pods that the API server, a quota or a policy refused, and objects with invalid fields.

Called by `why`. `object_fault` checks the object's own fields; `reported_refusal` reads events, conditions and
controller logs for the API server's answer.
"""

from __future__ import annotations

import re

from windlass.diagnose import log_patterns
from windlass.diagnose.evidence import ClusterObject, Evidence, LogLines
from windlass.diagnose.finding import Finding
from windlass.diagnose.subject import Subject, template_pods, templates_of
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string
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


def reported_refusal(evidence: Evidence, subject: Subject) -> Finding | None:
    """The API server's refusal as events, conditions and logs repeat it."""
    logs = [status_lines(item) for item in subject.related]
    for item in subject.related:
        lines = [
            event.message
            for event in evidence.events_of(item)
            if event.reason.startswith(("Failed", "Error", "Quota", "Invalid", "Forbidden")) or event.warning
        ]
        logs.append(LogLines(f"event of {item.title}", lines))
    logs += _controller_logs(evidence, subject)
    matches = log_patterns.find_matches([log for log in logs if log.lines], log_patterns.API)
    if not matches:
        return None
    first = matches[0]
    return Finding(
        first.code,
        _quota_message(first.line) if "QUOTA" in first.code else "",
        (f"{first.origin}: {first.line}",),
    )


def status_lines(item: ClusterObject) -> LogLines:
    """Every message and reason in an object's status, at any depth."""
    found: list[str] = []
    _collect(nested_map(item.data, "status"), found)
    return LogLines(f"status of {item.title}", found)


def _collect(data: object, found: list[str]) -> None:
    if isinstance(data, dict):
        for key, value in data.items():
            if isinstance(value, str) and key in ("message", "reason", "error", "failureMessage"):
                found += value.splitlines()
            else:
                _collect(value, found)
    elif isinstance(data, list):
        for value in data:
            _collect(value, found)


def _controller_logs(evidence: Evidence, subject: Subject) -> list[LogLines]:
    """Lines of other pods' logs that name the subject and speak of a refusal."""
    names = sorted({re.escape(item.name) for item in subject.related})
    named = re.compile(rf"(?<![\w.-])({'|'.join(names)})(?![\w.])")
    own = {id(pod) for pod in subject.pods}
    found: list[LogLines] = []
    for pod in evidence.of_kind("Pod"):
        logs = evidence.logs_of(pod) if id(pod) not in own else []
        for log in logs:
            lines = [line for line in log.lines if REFUSED.search(line) and named.search(line)]
            if lines:
                found.append(LogLines(log.origin, lines))
    return found


REFUSED = re.compile(r"denied|forbidden|is invalid|exceeded quota|not found", re.I)


def _quota_message(line: str) -> str:
    """The part of the line from `exceeded quota:` on."""
    place = line.find("exceeded quota:")
    return line[place:].strip() if place >= 0 else ""
