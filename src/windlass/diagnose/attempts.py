"""Failed pods in whose place their controller has made others that work: what was is no answer to what is.

`why` asks it before it looks for the pod that fails. Of a Job, the attempt that runs must have outlasted those that
failed; of what is kept running, all that are wanted must be ready.
"""

from __future__ import annotations

from windlass.diagnose.contradictions import is_ready, started
from windlass.diagnose.evidence import ClusterObject
from windlass.diagnose.operator_reports import is_kept, wanted_pods
from windlass.diagnose.pod_status import ended_at
from windlass.diagnose.subject import Subject, phase_of
from windlass.diagnose.unstructured import nested_int, nested_map, nested_string
from windlass.model.times import parse_timestamp


def current_pods(subject: Subject, now: int) -> tuple[ClusterObject, ...]:
    """The subject's pods without those that have been replaced."""
    failed = [pod for pod in subject.pods if phase_of(pod) == "Failed"]
    working = [pod for pod in subject.pods if is_ready(pod)]
    item = subject.item
    if not failed or len(working) < max(1, _wanted(item)):
        return subject.pods
    if is_kept(item) or (_is_job(item) and _have_outlasted(working, failed, now)):
        return tuple(pod for pod in subject.pods if pod not in failed)
    return subject.pods


def _is_job(item: ClusterObject) -> bool:
    return item.kind == "Job" and item.api_group == "batch"


def _wanted(item: ClusterObject) -> int:
    spec, status = nested_map(item.data, "spec"), nested_map(item.data, "status")
    wanted = wanted_pods(spec)
    if _is_job(item) and "completions" in spec:
        wanted = min(wanted, nested_int(spec, "completions") - nested_int(status, "succeeded"))
    return wanted


def _have_outlasted(working: list[ClusterObject], failed: list[ClusterObject], now: int) -> bool:
    runs = min(now - parse_timestamp(started(pod)) for pod in working)
    lasted = [
        parse_timestamp(ended_at(pod)) - parse_timestamp(nested_string(pod.data, "status", "startTime"))
        for pod in failed
        if ended_at(pod) and nested_string(pod.data, "status", "startTime")
    ]
    return len(lasted) == len(failed) and runs > max(lasted)
