"""Indices of an Indexed Job that fail and succeed on their own: backoffLimitPerIndex, maxFailedIndexes, successPolicy.

Asked by `controllers.job`. How often an index has failed stands on its newest pod; that pod is kept, uncounted, until
the next one of its index bears the number on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windlass.embedded.controllers.job_pods import (
    finished_at,
    has_failed,
    index_of,
    indices_of,
    is_tracked,
    new_pod,
)
from windlass.embedded.controllers.job_policy import FAIL_INDEX, IGNORE, verdict_on
from windlass.embedded.controllers.objects import Tree, annotations_of
from windlass.embedded.controllers.pods import is_active

FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"


def is_per_index(job: Tree) -> bool:
    """Whether every index has failures of its own."""
    return job["spec"].get("backoffLimitPerIndex") is not None


def failed_indices(job: Tree, pods: Iterable[Tree]) -> set[int]:
    """Those that won't be tried again: known before, and found among the pods."""
    found = indices_of((job.get("status") or {}).get("failedIndexes") or "")
    for pod in pods:
        if has_failed(job, pod) and _was_the_last_try(job, pod):
            found.add(index_of(pod))
    return found - {-1}


def _was_the_last_try(job: Tree, pod: Tree) -> bool:
    action, _ = verdict_on(job, pod)
    if action == FAIL_INDEX:
        return True
    return action != IGNORE and _count(pod, FAILURES) >= int(job["spec"]["backoffLimitPerIndex"])


def last_failed(job: Tree, pods: Sequence[Tree], over: set[int]) -> dict[int, Tree]:
    """Index → its newest failed pod, where another one has to follow; `over` are indices that have come to an end."""
    busy = over | {index_of(pod) for pod in pods if is_active(pod)}
    newest: dict[int, Tree] = {}
    for pod in pods:
        index = index_of(pod)
        if index < 0 or index in busy or not is_tracked(pod) or not has_failed(job, pod):
            continue
        if index not in newest or _tries(pod) > _tries(newest[index]):
            newest[index] = pod
    return newest


def next_pod(job: Tree, index: int, before: Tree | None) -> Tree:
    """The pod of an index, with the failures so far written on it."""
    failures = ignored = 0
    if before is not None:
        failures, ignored = _count(before, FAILURES), _count(before, IGNORED)
        is_ignored = verdict_on(job, before)[0] == IGNORE
        failures, ignored = failures + (not is_ignored), ignored + is_ignored
    pod = new_pod(job, index)
    pod["metadata"]["annotations"][FAILURES] = str(failures)
    if ignored:
        pod["metadata"]["annotations"][IGNORED] = str(ignored)
    return pod


def next_try(before: Tree, first: float, longest: float, now: float) -> float:
    """When the next pod of the index may come: the pause doubles with each failure."""
    pause: float = min(first * 2 ** min(_tries(before), 20), longest)
    return finished_at(before, now) + pause


def why_indices_fail(job: Tree, failed: set[int], done: set[int]) -> tuple[str, str] | None:
    """Reason and message, where failed indices are the Job's end."""
    most = job["spec"].get("maxFailedIndexes")
    if most is not None and len(failed) > int(most):
        words = "Job has exceeded the specified maximal number of failed indexes"
        return "MaxFailedIndexesExceeded", words
    if failed and len(failed) + len(done) >= int(job["spec"].get("completions") or 0):
        return "FailedIndexes", "Job has failed indexes"
    return None


def rule_met(job: Tree, done: set[int]) -> int | None:
    """The number of the first rule of the success policy that the succeeded indices meet."""
    for number, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules") or ()):
        named = rule.get("succeededIndexes")
        wanted = indices_of(named) if named is not None else None
        hits = done if wanted is None else done & wanted
        least = rule.get("succeededCount")
        if len(hits) >= (int(least) if least is not None else len(wanted or ())):
            return number
    return None


def _tries(pod: Tree) -> int:
    return _count(pod, FAILURES) + _count(pod, IGNORED)


def _count(pod: Tree, annotation: str) -> int:
    text = annotations_of(pod).get(annotation, "")
    return int(text) if text.isascii() and text.isdigit() else 0
