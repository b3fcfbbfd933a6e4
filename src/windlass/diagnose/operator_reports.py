"""What an object's own controller says: failed conditions and phases, and pods that were never created.

Called by `why` for objects without pods, and where all existing pods are well: an object may have failed before it
created pods, or lack some of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from windlass.diagnose import log_patterns, refusal
from windlass.diagnose.contradictions import is_ready
from windlass.diagnose.evidence import ClusterObject, Evidence, LogLines
from windlass.diagnose.finding import Finding, MissingEvidence
from windlass.diagnose.hypothesis import Conclusion
from windlass.diagnose.log_patterns import LONG_LINE
from windlass.diagnose.reports import COMPLAINS, status_reports
from windlass.diagnose.subject import Subject, phase_of
from windlass.diagnose.unstructured import (
    find_condition,
    nested_bool,
    nested_int,
    nested_map,
    nested_maps,
    nested_string,
)
from windlass.model.times import parse_timestamp

FAILED_CONDITIONS = ("Failed", "Failure", "Error", "ReplicaFailure", "Degraded", "Stalled", "Aborted")
"""Types of conditions that mean a failure while they are True."""
FAILED_PHASES = ("Failed", "Error", "Errored", "Aborted", "failed")
NEW_SECONDS = 60
"""Age up to which an object may still be creating its pods."""
MANAGED_KINDS = ("Deployment", "ReplicaSet", "StatefulSet")


def failure_conclusion(evidence: Evidence, subject: Subject, lacking: int, now: int) -> Conclusion | None:
    """Why the object failed or lacks `lacking` pods, in its controllers' words; None if it does neither."""
    said = [entry for item in subject.related for entry in failures_of(item)]
    if not said and not lacking:
        return None
    return refusal.reported_cause(evidence, subject, now) or Conclusion(_said_failure(subject, said, lacking))


def _said_failure(subject: Subject, said: list[tuple[str, str]], lacking: int) -> Finding:
    """The failure as the object's own status has it."""
    logs = [LogLines(origin, [text]) for origin, text in said]
    for source in (log_patterns.API, log_patterns.KUBELET):
        for seen in log_patterns.find_matches(logs, source):
            return Finding(seen.code, "", (f"{seen.origin}: {seen.line}",))
    if any(DEADLINE.search(text) for _, text in said):
        remedy = "raise activeDeadlineSeconds, or save checkpoints"
        return Finding("DURATION_EXCEEDED", f"{said[0][0]}: {said[0][1]}", remedy=remedy)
    return _ended_pods(subject, said) or _unclassified(subject, said, lacking)


def _ended_pods(subject: Subject, said: list[tuple[str, str]]) -> Finding | None:
    """How its pods ended, where they are gone and only its status repeats it."""
    texts = [*said, *((item.title, report.text) for item in subject.related for report in status_reports(item))]
    for code, words in ENDS:
        for who, text in texts:
            if words.search(text):
                where = f"-n {subject.item.namespace}"
                missing = MissingEvidence("the log of a failed pod", f"kubectl logs {where} POD --previous")
                return Finding(code, f"{who}: {text}", missing=() if code == "CONTAINER_OOM" else (missing,))
    return None


DEADLINE = re.compile(r"DeadlineExceeded|\bactiveDeadlineSeconds\b|deadline exceeded", re.I)
ENDS = (
    ("CONTAINER_OOM", re.compile(r"\bOOMKilled\b")),
    (
        "APP_ERROR",
        re.compile(
            r"BackoffLimitExceeded|backoff limit|exit code \d+|\d+ replica\(s\) failed|PodFailurePolicy|FailedIndexes",
            re.I,
        ),
    ),
)
"""Code → words of a controller for how the pods ended that it has made."""


def _unclassified(subject: Subject, said: list[tuple[str, str]], lacking: int) -> Finding:
    item = subject.item
    message = f"{lacking} of the pods that {item.title} should have do not exist, and no event or condition says why"
    if said:
        message = f"{said[0][0]}: {said[0][1]}"
    where = f"-n {item.namespace} " if item.namespace else ""
    missing = (
        MissingEvidence(f"the events of {item.title}", f"kubectl describe {where}{item.kind.lower()} {item.name}"),
        MissingEvidence(
            "its operator's log", f"kubectl logs -n NAMESPACE --all-containers deploy/OPERATOR | grep {item.name}"
        ),
    )
    return Finding("UNKNOWN", message, missing=missing)


def failures_of(item: ClusterObject) -> Iterator[tuple[str, str]]:
    """(where, what) of the failures that the object's status reports."""
    for condition in nested_maps(item.data, "status", "conditions"):
        kind = nested_string(condition, "type")
        if kind in FAILED_CONDITIONS and nested_string(condition, "status") == "True":
            reason, message = (nested_string(condition, field) for field in ("reason", "message"))
            yield item.title, ": ".join(part for part in (reason, message) if part) or kind
    status = nested_map(item.data, "status")
    for field in ("phase", "state", "jobDeploymentStatus"):
        value = status.get(field)
        phase = nested_string(status, field, "phase") if isinstance(value, dict) else value
        if item.kind != "Pod" and phase in FAILED_PHASES:
            state = nested_map(status, field) if isinstance(value, dict) else status
            message = nested_string(state, "message") or nested_string(state, "reason")
            yield item.title, f"{field} {phase}: {message}" if message else f"{field} {phase}"


# Pods that should exist


def missing_pods(item: ClusterObject, pods: tuple[ClusterObject, ...], now: int) -> int:
    """How many pods the object should have and has not; 0 if it has ended, is held, or was just created."""
    created = parse_timestamp(item.created) if item.created else 0
    if item.kind == "Pod" or now - created < NEW_SECONDS or _is_settled(item):
        return 0
    is_job = item.kind == "Job" and item.api_group == "batch"
    if item.kind not in MANAGED_KINDS and not is_job and not item.api_group.count("."):
        return 0  # a DaemonSet has pods as nodes ask for them
    alive = [pod for pod in pods if not pod.owners or not nested_string(pod.data, "metadata", "deletionTimestamp")]
    if any(phase_of(pod) in ("Succeeded", "Failed") for pod in alive):
        return 0  # what has ended is not always replaced
    wanted = wanted_pods(nested_map(item.data, "spec"))
    if is_job and "completions" in nested_map(item.data, "spec"):
        wanted = min(wanted, nested_int(item.data, "spec", "completions"))
    return max(0, wanted - len(alive))


def unready_object_finding(subject: Subject, now: int) -> Finding | None:
    """Its pods are well, and its own status says for long that it is not ready: what it says about that."""
    for item in subject.related:
        ready = find_condition(item.data, "Ready")
        moment = nested_string(ready, "lastTransitionTime") or item.created
        is_custom = item.api_group.count(".") and item.kind != "Workload"
        if not is_custom or nested_string(ready, "status") != "False" or now - parse_timestamp(moment) < LONG_UNREADY:
            continue
        said = [report for report in status_reports(item) if COMPLAINS.search(report.text)]
        program = next((report for report in said if PROGRAM_FAILED.search(report.text)), None)
        message = f"its pods are ready, and {item.title} is not: "
        if program is not None:
            return Finding(
                "APP_ERROR", message + program.text[:LONG_LINE], (program.quote[:LONG_LINE],), remedy=APP_REMEDY
            )
        where = f"-n {item.namespace} " if item.namespace else ""
        missing = MissingEvidence("its conditions", f"kubectl describe {where}{item.kind.lower()} {item.name}")
        why = said[0].text if said else nested_string(ready, "message") or nested_string(ready, "reason")
        return Finding(
            "UNKNOWN", message + why[:LONG_LINE], tuple(report.quote for report in said[:2]), missing=(missing,)
        )
    return None


LONG_UNREADY = 600
"""Seconds after which an object whose pods are ready should be ready itself."""
PROGRAM_FAILED = re.compile(r"Traceback|\b\w+(Error|Exception)\b: |failed with exception")
APP_REMEDY = "correct what the exception names in the program or its configuration"


def is_done(item: ClusterObject) -> bool:
    """Whether its own status says that it has ended as it should, or has all the pods that it wants."""
    done = [find_condition(item.data, kind) for kind in ("Complete", "SuccessCriteriaMet", "Finished", "Succeeded")]
    if any(nested_string(condition, "status") == "True" for condition in done):
        return not any(nested_string(condition, "reason").startswith("Fail") for condition in done)
    if not is_kept(item):
        return False
    if rests(item):
        return True
    wanted = nested_int(item.data, "spec", "replicas") if "replicas" in nested_map(item.data, "spec") else 1
    status = nested_map(item.data, "status")
    current = nested_int(status, "updatedReplicas") if "updatedReplicas" in status else wanted
    return bool(wanted) and nested_int(status, "readyReplicas") >= wanted and current >= wanted


def rests(item: ClusterObject) -> bool:
    """Whether it is meant to have no pods now: scaled to zero, or a CronJob between two runs."""
    spec, status = nested_map(item.data, "spec"), nested_map(item.data, "status")
    if item.kind == "CronJob":
        return not nested_bool(spec, "suspend") and not status.get("active")
    return is_kept(item) and spec.get("replicas") == 0


def is_kept(item: ClusterObject) -> bool:
    """Whether its controller keeps a number of pods running, so that it never completes."""
    return item.kind in MANAGED_KINDS


def is_served(subject: Subject, now: int) -> bool:
    """Whether all its pods exist and are ready: what the engine would hold of it are pods that nobody asks for."""
    item, status = subject.item, nested_map(subject.item.data, "status")
    is_short = "readyReplicas" in status and nested_int(status, "readyReplicas") < nested_int(
        item.data, "spec", "replicas"
    )
    lacks_pods = is_short or missing_pods(item, subject.pods, now) > 0
    return bool(subject.pods) and all(map(is_ready, subject.pods)) and not lacks_pods


def _is_settled(item: ClusterObject) -> bool:
    """Whether its controller creates no more pods: ended, suspended or being deleted."""
    if nested_string(item.data, "metadata", "deletionTimestamp") or nested_bool(item.data, "spec", "suspend"):
        return True
    return any(
        nested_string(condition, "type") in ENDED and nested_string(condition, "status") == "True"
        for condition in nested_maps(item.data, "status", "conditions")
    )


ENDED = ("Complete", "Completed", "Succeeded", "SuccessCriteriaMet", "Finished", "Suspended", "Failed")


def wanted_pods(data: object) -> int:
    """Pods that a spec asks for: the replicas of every pod template, wherever its kind nests them."""
    if isinstance(data, list):
        return sum(wanted_pods(value) for value in data)
    if not isinstance(data, dict):
        return 0
    template = data.get("template")
    if not isinstance(template, dict):
        return sum(wanted_pods(value) for value in data.values() if isinstance(value, dict | list))
    count = nested_int(data, "replicas") if "replicas" in data else nested_int(data, "parallelism") or 1
    holds_pods = isinstance(nested_map(template, "spec").get("containers"), list)
    return count * (1 if holds_pods else wanted_pods(nested_map(template, "spec")))
