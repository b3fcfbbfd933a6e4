"""Indices of an Indexed Job that fail and succeed on their own: backoffLimitPerIndex, maxFailedIndexes,
successPolicy.

Called by `job`. An annotation on the newest pod of an index counts its failures; that pod is kept, uncounted, until
its replacement has taken over the count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windlass.embedded.api.numbers import parse_decimal
from windlass.embedded.controllers.index_set import IndexSet
from windlass.embedded.controllers.job_pods import (
    finished_at,
    has_failed,
    has_tracking_finalizer,
    index_of,
    new_pod,
)
from windlass.embedded.controllers.job_policy import FAIL_INDEX, IGNORE, failure_policy_action
from windlass.embedded.controllers.objects import annotations_of
from windlass.embedded.controllers.pod_state import is_active
from windlass.model.unstructured import Unstructured

FAILURE_COUNT_ANNOTATION = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURE_COUNT_ANNOTATION = "batch.kubernetes.io/job-index-ignored-failure-count"


def is_per_index(job: Unstructured) -> bool:
    """Whether failures are counted per index."""
    return job["spec"].get("backoffLimitPerIndex") is not None


def failed_indices(job: Unstructured, pods: Iterable[Unstructured]) -> IndexSet:
    """Indices that are not tried again: known before, and found among the pods."""
    known = IndexSet.parse((job.get("status") or {}).get("failedIndexes") or "")
    ended = (pod for pod in pods if has_failed(job, pod) and _was_last_attempt(job, pod))
    return known | IndexSet(index for pod in ended if (index := index_of(pod)) >= 0)


def _was_last_attempt(job: Unstructured, pod: Unstructured) -> bool:
    action, _ = failure_policy_action(job, pod)
    if action == FAIL_INDEX:
        return True
    limit = int(job["spec"]["backoffLimitPerIndex"])
    return action != IGNORE and _count(pod, FAILURE_COUNT_ANNOTATION) >= limit


def failed_pods_to_retry(
    job: Unstructured, pods: Sequence[Unstructured], finished: IndexSet
) -> dict[int, Unstructured]:
    """Index → its newest failed pod, if it has to be replaced; `finished` are finished indices."""
    excluded = finished | IndexSet(index for pod in pods if is_active(pod) and (index := index_of(pod)) >= 0)
    newest: dict[int, Unstructured] = {}
    for pod in pods:
        index = index_of(pod)
        if index < 0 or index in excluded or not has_tracking_finalizer(pod) or not has_failed(job, pod):
            continue
        if index not in newest or _attempts(pod) > _attempts(newest[index]):
            newest[index] = pod
    return newest


def new_index_pod(job: Unstructured, index: int, previous: Unstructured | None) -> Unstructured:
    """The pod of an index, annotated with the failures so far."""
    failures = ignored = 0
    if previous is not None:
        is_ignored = failure_policy_action(job, previous)[0] == IGNORE
        failures = _count(previous, FAILURE_COUNT_ANNOTATION) + (not is_ignored)
        ignored = _count(previous, IGNORED_FAILURE_COUNT_ANNOTATION) + is_ignored
    pod = new_pod(job, index)
    pod["metadata"]["annotations"][FAILURE_COUNT_ANNOTATION] = str(failures)
    if ignored:
        pod["metadata"]["annotations"][IGNORED_FAILURE_COUNT_ANNOTATION] = str(ignored)
    return pod


def retry_at(previous: Unstructured, first: float, longest: float, now: float) -> float:
    """When the next pod of the index may be created: the back-off doubles with each failure."""
    backoff: float = min(first * 2 ** min(_attempts(previous), 20), longest)
    return finished_at(previous, now) + backoff


def index_failure_reason(job: Unstructured, failed: IndexSet, done: IndexSet) -> tuple[str, str] | None:
    """Reason and message if failed indices end the Job, else None."""
    max_failed = job["spec"].get("maxFailedIndexes")
    if max_failed is not None and len(failed) > int(max_failed):
        message = "Job has exceeded the specified maximal number of failed indexes"
        return "MaxFailedIndexesExceeded", message
    if failed and len(failed) + len(done) >= int(job["spec"].get("completions") or 0):
        return "FailedIndexes", "Job has failed indexes"
    return None


def matched_success_rule(job: Unstructured, done: IndexSet) -> int | None:
    """The number of the first success policy rule that the succeeded indices meet."""
    for number, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules") or ()):
        indices_text = rule.get("succeededIndexes")
        wanted = IndexSet.parse(indices_text) if indices_text is not None else None
        matching = done if wanted is None else done & wanted
        min_count = rule.get("succeededCount")
        if len(matching) >= (int(min_count) if min_count is not None else len(wanted or ())):
            return number
    return None


def _attempts(pod: Unstructured) -> int:
    return _count(pod, FAILURE_COUNT_ANNOTATION) + _count(pod, IGNORED_FAILURE_COUNT_ANNOTATION)


def _count(pod: Unstructured, annotation: str) -> int:
    return parse_decimal(annotations_of(pod).get(annotation, "")) or 0
