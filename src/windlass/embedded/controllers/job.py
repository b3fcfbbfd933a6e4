"""The Job controller: runs pods until enough have succeeded, or until the Job has failed.

`reconcile_job` is pure: a Job, its pods, the failures so far and the time go in, actions come out;
`workload_controllers` calls it. A pod is counted exactly once: a finalizer keeps it until then, and
`status.uncountedTerminatedPods` lists those that were being counted when the process was killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from windlass.embedded.api.timestamps import format_time, parse_time
from windlass.embedded.controllers.index_set import IndexSet
from windlass.embedded.controllers.job_indices import (
    failed_indices,
    failed_pods_to_retry,
    index_failure_reason,
    is_per_index,
    matched_success_rule,
    new_index_pod,
    retry_at,
)
from windlass.embedded.controllers.job_pods import (
    duplicate_index_pods,
    finished_at,
    has_failed,
    has_tracking_finalizer,
    index_of,
    is_indexed,
    new_pod,
    remove_finalizer_patch,
)
from windlass.embedded.controllers.job_policy import FAIL_JOB, IGNORE, failure_policy_action
from windlass.embedded.controllers.objects import (
    condition,
    condition_of,
    has_condition,
    is_deleting,
    uid_of,
    with_condition,
)
from windlass.embedded.controllers.pod_state import (
    deletion_rank,
    is_active,
    is_finished,
    is_ready,
    phase_of,
    total_restarts,
)
from windlass.embedded.controllers.reconcile_result import (
    Create,
    Delete,
    EmitEvent,
    Patch,
    ReconcileResult,
    ReconcileResultBuilder,
    UpdateStatus,
)
from windlass.model.unstructured import Unstructured

RESOURCE = "jobs.batch"
INITIAL_BACKOFF, MAX_BACKOFF = 10.0, 600.0
MAX_POD_CHANGES_PER_SYNC = 500
JOB_CONTROLLER = "kubernetes.io/job-controller"


@dataclass(frozen=True)
class Failures:
    """Pods that failed in a row, for the back-off."""

    count: int = 0
    last: float = 0.0

    @property
    def backoff_until(self) -> float:
        """No new pod is created before this time."""
        if not self.count:
            return 0.0
        backoff: float = min(INITIAL_BACKOFF * 2 ** min(self.count - 1, 20), MAX_BACKOFF)
        return self.last + backoff


NO_FAILURES = Failures()


@dataclass
class Tally:
    """The ended pods: counted before, and found now."""

    succeeded: int = 0
    failed: int = 0
    done: IndexSet = field(default_factory=IndexSet)
    """Succeeded indices."""
    given_up: IndexSet = field(default_factory=IndexSet)
    """Indices that have failed finally (backoffLimitPerIndex)."""
    again: dict[int, Unstructured] = field(default_factory=dict)
    """Indices to retry, each with its newest failed pod."""
    counting: dict[str, list[str]] = field(default_factory=lambda: {"succeeded": [], "failed": []})
    release: list[Unstructured] = field(default_factory=list)
    """Pods whose finalizer can be removed."""
    why_fail: str = ""
    """The message of a FailJob rule."""
    failures: Failures = NO_FAILURES


def reconcile_job(
    job: Unstructured, pods: Sequence[Unstructured], now: float, failures: Failures = NO_FAILURES
) -> tuple[ReconcileResult, Failures]:
    if job["spec"].get("managedBy") not in (None, "", JOB_CONTROLLER):
        return ReconcileResult(), failures
    if is_deleting(job) or is_job_finished(job):
        return _reconcile_finished(job, pods, now), failures
    tally = count_ended(job, pods, now, failures)
    return _JobSync(job, list(pods), now, tally).run(), tally.failures


def is_job_finished(job: Unstructured) -> bool:
    return has_condition(job, "Complete") or has_condition(job, "Failed")


def _reconcile_finished(job: Unstructured, pods: Sequence[Unstructured], now: float) -> ReconcileResult:
    """Only releases pods, and deletes the Job after ttlSecondsAfterFinished."""
    plan = ReconcileResultBuilder(
        [Patch("pods", pod, remove_finalizer_patch(pod)) for pod in pods if has_tracking_finalizer(pod)]
    )
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    if ttl is not None and not is_deleting(job):
        finished = condition_of(job, "Complete" if has_condition(job, "Complete") else "Failed")
        assert finished is not None, "finished"
        expires = parse_time(finished.get("lastTransitionTime")) + int(ttl)
        if now >= expires:
            plan.add(Delete(RESOURCE, job, propagation="Foreground"))
        else:
            plan.requeue(expires)
    return plan.build()


def count_ended(job: Unstructured, pods: Sequence[Unstructured], now: float, failures: Failures) -> Tally:
    status = job.get("status") or {}
    tally = Tally(int(status.get("succeeded") or 0), int(status.get("failed") or 0), failures=failures)
    is_failing = has_condition(job, "FailureTarget")
    if is_indexed(job):
        tally.done = _done_indices(job, pods)
    if is_per_index(job):
        # A failing Job kills its pods; that is no failure of their indices.
        tally.given_up = failed_indices(job, () if is_failing else pods) - tally.done
        if not is_failing:
            tally.again = failed_pods_to_retry(job, pods, tally.done | tally.given_up)
    uncounted = status.get("uncountedTerminatedPods") or {}
    counting = {kind: set(uncounted.get(kind) or ()) for kind in ("succeeded", "failed")}
    finish_times: list[tuple[float, bool]] = []
    for pod in pods:
        if not has_tracking_finalizer(pod):
            continue
        if phase_of(pod) == "Succeeded":
            counting["succeeded"].add(uid_of(pod))
            finish_times.append((finished_at(pod, now), True))
        elif has_failed(job, pod) or (is_failing and is_finished(pod)):
            action, message = failure_policy_action(job, pod)
            tally.why_fail = tally.why_fail or (message if action == FAIL_JOB else "")
            if tally.again.get(index_of(pod)) is pod:
                continue  # counted when its replacement has taken over its failure count
            if action != IGNORE:
                counting["failed"].add(uid_of(pod))
                finish_times.append((finished_at(pod, now), False))
        else:
            continue
        tally.release.append(pod)
    tally.counting = {kind: sorted(uids) for kind, uids in counting.items()}
    tally.succeeded = len(tally.done) if is_indexed(job) else tally.succeeded + len(counting["succeeded"])
    tally.failed += len(counting["failed"])
    for finished, succeeded in sorted(finish_times):
        tally.failures = Failures() if succeeded else Failures(tally.failures.count + 1, finished)
    return tally


def _done_indices(job: Unstructured, pods: Sequence[Unstructured]) -> IndexSet:
    """Succeeded indices below `completions`, which may have been lowered."""
    known = IndexSet.parse((job.get("status") or {}).get("completedIndexes") or "")
    succeeded = (pod for pod in pods if has_tracking_finalizer(pod) and phase_of(pod) == "Succeeded")
    new = IndexSet(index for pod in succeeded if (index := index_of(pod)) >= 0)
    return (known | new).below(int(job["spec"].get("completions") or 0))


class _JobSync:
    """One sync of a Job that is not finished."""

    def __init__(self, job: Unstructured, pods: list[Unstructured], now: float, tally: Tally) -> None:
        self.job, self.spec, self.now, self.tally = job, job["spec"], now, tally
        self.active = [pod for pod in pods if is_active(pod)]
        self.terminating = sum(is_deleting(pod) and not is_finished(pod) for pod in pods)
        self.status: Unstructured = dict(job.get("status") or {})
        self.conditions: list[Unstructured] = list(self.status.get("conditions") or ())
        self.plan = ReconcileResultBuilder()
        self.suspended = bool(self.spec.get("suspend"))

    def run(self) -> ReconcileResult:
        self._update_suspended()
        failure = self._failure_reason()
        if failure:
            self._finish("FailureTarget", "Failed", *failure)
        elif success := self._success_reason():
            self._finish("SuccessCriteriaMet", "Complete", *success)
        else:
            self._scale_pods()
        self._write_status()
        return self.plan.build()

    def _update_suspended(self) -> None:
        was_suspended = has_condition(self.job, "Suspended")
        if self.suspended:
            self.status["startTime"] = None
            if not was_suspended:
                self._set_condition("Suspended", "JobSuspended", "Job suspended")
                self.plan.add(EmitEvent(self.job, "Suspended", "Job suspended"))
        elif was_suspended:
            self._set_condition("Suspended", "JobResumed", "Job resumed", "False")
            self.plan.add(EmitEvent(self.job, "Resumed", "Job resumed"))
            self.status["startTime"] = format_time(self.now)
        elif not self.status.get("startTime"):
            self.status["startTime"] = format_time(self.now)

    def _failure_reason(self) -> tuple[str, str] | None:
        target = condition_of(self.job, "FailureTarget")
        if target is not None and target.get("status") == "True":
            return str(target["reason"]), str(target["message"])
        if self.tally.why_fail:
            return "PodFailurePolicy", self.tally.why_fail
        if self._is_past_backoff_limit():
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        if self._is_past_deadline():
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        if is_per_index(self.job):
            return index_failure_reason(self.job, self.tally.given_up, self.tally.done)
        return None

    def _is_past_backoff_limit(self) -> bool:
        limit = self.spec.get("backoffLimit")
        limit = 6 if limit is None else int(limit)
        if self.tally.failed > limit:
            return True
        if (self.spec["template"].get("spec") or {}).get("restartPolicy") != "OnFailure":
            return False
        count = sum(total_restarts(pod) for pod in self.active)
        return count > 0 if limit == 0 else count >= limit

    def _is_past_deadline(self) -> bool:
        deadline = self.spec.get("activeDeadlineSeconds")
        if deadline is None or self.suspended or not self.status.get("startTime"):
            return False
        deadline_at = parse_time(self.status["startTime"]) + int(deadline)
        self.plan.requeue(deadline_at)
        return self.now >= deadline_at

    def _success_reason(self) -> tuple[str, str] | None:
        met = condition_of(self.job, "SuccessCriteriaMet")
        if met is not None and met.get("status") == "True":
            return str(met["reason"]), str(met["message"])
        rule = matched_success_rule(self.job, self.tally.done) if is_indexed(self.job) else None
        if rule is not None:
            return "SuccessPolicy", f"Matched rules at index {rule}"
        completions = self.spec.get("completions")
        if completions is None:
            enough = self.tally.succeeded > 0 and not self.active
        else:
            enough = self.tally.succeeded >= int(completions)
        return ("CompletionsReached", "Reached expected number of succeeded pods") if enough else None

    def _finish(self, target: str, final: str, reason: str, message: str) -> None:
        """First the target condition, then the pods are deleted, then the final condition."""
        self._set_condition(target, reason, message)
        is_failure = target == "FailureTarget"
        for pod in self.active:
            if not is_failure and has_tracking_finalizer(pod):
                self.plan.add(Patch("pods", pod, remove_finalizer_patch(pod)))
            self.plan.add(Delete("pods", pod, self.job))
        remaining = len(self.active) + self.terminating
        self.active = []
        if remaining:
            self.terminating = remaining
            return
        self._set_condition(final, reason, message)
        if final == "Complete":
            self.status["completionTime"] = format_time(self.now)
            self.plan.add(EmitEvent(self.job, "Completed", "Job completed"))
        else:
            self.plan.add(EmitEvent(self.job, reason, message, "Warning"))
        ttl = self.spec.get("ttlSecondsAfterFinished")
        if ttl is not None:
            self.plan.requeue(self.now + int(ttl))

    def _scale_pods(self) -> None:
        if is_indexed(self.job):
            self._remove(duplicate_index_pods(self.active))
        wanted = self._wanted_pods()
        if len(self.active) > wanted:
            ranked = sorted(self.active, key=deletion_rank)
            self._remove(ranked[: len(self.active) - wanted])
        missing = wanted - len(self.active)
        if self.spec.get("podReplacementPolicy") == "Failed":
            missing -= self.terminating
        if missing <= 0:
            return
        if not is_per_index(self.job) and self.now < self.tally.failures.backoff_until:
            self.plan.requeue(self.tally.failures.backoff_until)
            return
        self._create_pods(min(missing, MAX_POD_CHANGES_PER_SYNC))

    def _wanted_pods(self) -> int:
        if self.suspended:
            return 0
        parallelism = self.spec.get("parallelism")
        max_parallel = 1 if parallelism is None else int(parallelism)
        completions = self.spec.get("completions")
        if completions is None:
            return len(self.active) if self.tally.succeeded > 0 else max_parallel
        return max(0, min(max_parallel, int(completions) - self.tally.succeeded))

    def _remove(self, pods: Sequence[Unstructured]) -> None:
        for pod in pods:
            if has_tracking_finalizer(pod):  # removed first, so that it is not counted as failed
                self.plan.add(Patch("pods", pod, remove_finalizer_patch(pod)))
            self.plan.add(Delete("pods", pod, self.job))
        removed = {uid_of(pod) for pod in pods}
        self.active = [pod for pod in self.active if uid_of(pod) not in removed]
        self.terminating += len(removed)

    def _create_pods(self, count: int) -> None:
        if not is_indexed(self.job):
            self.plan.add(*(Create("pods", self.job, new_pod(self.job)) for _ in range(count)))
            return
        active = IndexSet(index for pod in self.active if (index := index_of(pod)) >= 0)
        unavailable = self.tally.done | self.tally.given_up | active
        if is_per_index(self.job):
            unavailable |= IndexSet(self._indices_in_backoff())
        for index in unavailable.missing(int(self.spec.get("completions") or 0), count):
            if is_per_index(self.job):
                pod = new_index_pod(self.job, index, self.tally.again.get(index))
            else:
                pod = new_pod(self.job, index)
            self.plan.add(Create("pods", self.job, pod))

    def _indices_in_backoff(self) -> set[int]:
        """Failed indices whose back-off is not over."""
        in_backoff = set()
        for index, pod in self.tally.again.items():
            retry_time = retry_at(pod, INITIAL_BACKOFF, MAX_BACKOFF, self.now)
            if self.now < retry_time:
                in_backoff.add(index)
                self.plan.requeue(retry_time)
        return in_backoff

    def _set_condition(self, kind: str, reason: str, message: str, status: str = "True") -> None:
        if has_condition({"status": {"conditions": self.conditions}}, kind, status):
            return
        new = condition(kind, status, reason, message)
        self.conditions = with_condition(self.conditions, new, self.now, update_time_field="lastProbeTime")

    def _write_status(self) -> None:
        """The counts are written first, with the UIDs that they include; only then the pods are released."""
        status = self.status
        tally = self.tally
        first_actions: list[UpdateStatus | Patch] = []
        if tally.release:
            uncounted = {**status, "uncountedTerminatedPods": {k: v for k, v in tally.counting.items() if v}}
            uncounted["conditions"] = self.job.get("status", {}).get("conditions")
            if is_indexed(self.job):  # releasing the pods loses their indices
                uncounted |= self._index_status()
            first_actions.append(UpdateStatus(RESOURCE, self.job, uncounted))
            first_actions += [Patch("pods", pod, remove_finalizer_patch(pod)) for pod in tally.release]
        # Pods to be created are not active yet: their creation may be refused.
        status["active"] = len(self.active) or None
        status["ready"] = sum(is_ready(pod) for pod in self.active)
        status["terminating"] = self.terminating
        status["succeeded"] = tally.succeeded or None
        status["failed"] = tally.failed or None
        status["uncountedTerminatedPods"] = {}
        status["conditions"] = self.conditions or None
        if is_indexed(self.job):
            status |= self._index_status()
        self.plan.actions = [*first_actions, *self.plan.actions, UpdateStatus(RESOURCE, self.job, status)]

    def _index_status(self) -> Unstructured:
        """The status fields of an Indexed Job's indices."""
        tally = self.tally
        fields: Unstructured = {"completedIndexes": tally.done.format() or None}
        if is_per_index(self.job):
            fields["failedIndexes"] = tally.given_up.format()
        return fields
