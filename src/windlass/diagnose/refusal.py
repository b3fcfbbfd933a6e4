"""Work for which no pod exists because the API server, a quota or a policy refused it, and pods that can't be valid.

Fed by `why` with the subject. The object's own fields come first; events and statuses of its owners say what the API
server answered when somebody tried.
"""

from __future__ import annotations

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
    """A field of the object, or of the pods that it would make, that no API server takes."""
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
    """What the pod asks for, as the API server would check it."""
    try:
        gpu_request(pod, pod_requests(pod))
    except InputError as error:
        return error
    return None


def _code_of(error: InputError) -> str:
    matches = log_patterns.find_matches_in_text(error.message, "", log_patterns.API)
    return matches[0].code if matches else "INVALID_OBJECT"


def _claim_fault(item: ClusterObject) -> Finding | None:
    """A resource claim that names neither a claim nor a template, as the first API versions wrote it."""
    templates = [("", item.data)] if item.kind == "Pod" else templates_of(item.data)
    for path, template in templates:
        for place, claim in enumerate(nested_maps(template, "spec", "resourceClaims")):
            if not (
                nested_string(claim, "resourceClaimName") or nested_string(claim, "resourceClaimTemplateName")
            ):
                where = f"{path}.spec.resourceClaims[{place}]".lstrip(".")
                message = f"{where} names neither resourceClaimName nor resourceClaimTemplateName"
                return Finding("DRA_CLAIM_INVALID", message)
    return None


def reported_refusal(evidence: Evidence, subject: Subject) -> Finding | None:
    """What events, conditions and statuses of the subject and its owners repeat of the API server's refusal."""
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
        _quota_words(first.line) if "QUOTA" in first.code else "",
        (f"{first.origin}: {first.line}",),
    )


def status_lines(item: ClusterObject) -> LogLines:
    """Every message in an object's status, wherever its kind keeps it."""
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
    """Lines of controllers' logs that name the subject, or that tell of a refused pod."""
    names = {item.name for item in subject.related}
    found: list[LogLines] = []
    for pod in evidence.of_kind("Pod"):
        if pod in subject.pods:
            continue
        for log in evidence.logs_of(pod):
            lines = [line for line in log.lines if "is invalid" in line or "is forbidden" in line]
            named = [line for line in lines if any(name in line for name in names)]
            if named or lines:
                found.append(LogLines(log.origin, named or lines))
    return found


def _quota_words(line: str) -> str:
    """Which of the quota's limits stands in the way."""
    place = line.find("exceeded quota:")
    return line[place:].strip() if place >= 0 else ""
