"""The Job controller: so many pods until so many have succeeded, or until it is clear that they won't.

`reconcile_job` is pure: a Job, its pods, what is remembered of failures, and the time go in; actions come out. A pod
is counted once and for all, by a finalizer that keeps it until then; `status.uncountedTerminatedPods` carries those
that were being counted when the process was killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
    format_indices,
    has_failed,
    has_tracking_finalizer,
    index_of,
    is_indexed,
    missing_indices,
    new_pod,
    parse_indices,
    remove_finalizer_patch,
)
from windlass.embedded.controllers.job_policy import FAIL_JOB, IGNORE, failure_policy_action
from windlass.embedded.controllers.objects import (
    condition_of,
    format_time,
    has_condition,
    is_deleting,
    parse_time,
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
        """No new pod before this moment."""
        if not self.count:
            return 0.0
        pause: float = min(INITIAL_BACKOFF * 2 ** min(self.count - 1, 20), MAX_BACKOFF)
        return self.last + pause


NO_FAILURES = Failures()


@dataclass
class Tally:
    """What has ended: counted before, and found now."""

    succeeded: int = 0
    failed: int = 0
    done: set[int] = field(default_factory=set)
    """Indices that have succeeded."""
    given_up: set[int] = field(default_factory=set)
    """Indices that have failed for good, where each has failures of its own."""
    again: dict[int, Unstructured] = field(default_factory=dict)
    """Indices to be tried again, each with the pod that failed last."""
    counting: dict[str, list[str]] = field(default_factory=lambda: {"succeeded": [], "failed": []})
    release: list[Unstructured] = field(default_factory=list)
    """Pods whose finalizer can go."""
    why_fail: str = ""
    """The words of a FailJob rule."""
    failures: Failures = NO_FAILURES


def reconcile_job(
    job: Unstructured, pods: Sequence[Unstructured], now: float, failures: Failures = NO_FAILURES
) -> tuple[ReconcileResult, Failures]:
    if job["spec"].get("managedBy") not in (None, "", JOB_CONTROLLER):
        return ReconcileResult(), failures
    if is_deleting(job) or is_job_finished(job):
        return _after_the_end(job, pods, now), failures
    tally = count_ended(job, pods, now, failures)
    return _Pass(job, list(pods), now, tally).run(), tally.failures


def is_job_finished(job: Unstructured) -> bool:
    return has_condition(job, "Complete") or has_condition(job, "Failed")


def _after_the_end(job: Unstructured, pods: Sequence[Unstructured], now: float) -> ReconcileResult:
    """Nothing but letting go of pods and, after its time, of the Job."""
    plan = ReconcileResultBuilder(
        [Patch("pods", pod, remove_finalizer_patch(pod)) for pod in pods if has_tracking_finalizer(pod)]
    )
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    if ttl is not None and not is_deleting(job):
        ended = (
            condition_of(job, "Complete") if has_condition(job, "Complete") else condition_of(job, "Failed")
        )
        assert ended is not None, "it is over"
        expires = parse_time(ended.get("lastTransitionTime")) + int(ttl)
        if now >= expires:
            plan.add(Delete(RESOURCE, job, propagation="Foreground"))
        else:
            plan.requeue(expires)
    return plan.build()


def count_ended(job: Unstructured, pods: Sequence[Unstructured], now: float, failures: Failures) -> Tally:
    status = job.get("status") or {}
    tally = Tally(int(status.get("succeeded") or 0), int(status.get("failed") or 0), failures=failures)
    ending = has_condition(job, "FailureTarget")
    if is_indexed(job):
        tally.done = _done_indices(job, pods)
    if is_per_index(job):
        # Once the Job ends, its pods are killed, and their indices have not failed by that.
        tally.given_up = failed_indices(job, () if ending else pods) - tally.done
        if not ending:
            tally.again = failed_pods_to_retry(job, pods, tally.done | tally.given_up)
    before = status.get("uncountedTerminatedPods") or {}
    caught = {kind: set(before.get(kind) or ()) for kind in ("succeeded", "failed")}
    ends: list[tuple[float, bool]] = []
    for pod in pods:
        if not has_tracking_finalizer(pod):
            continue
        if phase_of(pod) == "Succeeded":
            caught["succeeded"].add(uid_of(pod))
            ends.append((finished_at(pod, now), True))
        elif has_failed(job, pod) or (ending and is_finished(pod)):
            action, words = failure_policy_action(job, pod)
            tally.why_fail = tally.why_fail or (words if action == FAIL_JOB else "")
            if tally.again.get(index_of(pod)) is pod:
                continue  # it is counted once another one bears its number of failures on
            if action != IGNORE:
                caught["failed"].add(uid_of(pod))
                ends.append((finished_at(pod, now), False))
        else:
            continue
        tally.release.append(pod)
    tally.counting = {kind: sorted(uids) for kind, uids in caught.items()}
    tally.succeeded = len(tally.done) if is_indexed(job) else tally.succeeded + len(caught["succeeded"])
    tally.failed += len(caught["failed"])
    for moment, good in sorted(ends):
        tally.failures = Failures() if good else Failures(tally.failures.count + 1, moment)
    return tally


def _done_indices(job: Unstructured, pods: Sequence[Unstructured]) -> set[int]:
    """Indices that have succeeded; those beyond a number of completions that was lowered no longer count."""
    known = parse_indices((job.get("status") or {}).get("completedIndexes") or "")
    new = {index_of(pod) for pod in pods if has_tracking_finalizer(pod) and phase_of(pod) == "Succeeded"}
    return {index for index in known | new if 0 <= index < int(job["spec"].get("completions") or 0)}


class _Pass:
    """One look at a Job that is not over."""

    def __init__(self, job: Unstructured, pods: list[Unstructured], now: float, tally: Tally) -> None:
        self.job, self.spec, self.now, self.tally = job, job["spec"], now, tally
        self.active = [pod for pod in pods if is_active(pod)]
        self.terminating = sum(is_deleting(pod) and not is_finished(pod) for pod in pods)
        self.status: Unstructured = dict(job.get("status") or {})
        self.conditions: list[Unstructured] = list(self.status.get("conditions") or ())
        self.plan = ReconcileResultBuilder()
        self.suspended = bool(self.spec.get("suspend"))

    def run(self) -> ReconcileResult:
        self._note_suspension()
        why = self._why_failed()
        if why:
            self._end("FailureTarget", "Failed", *why)
        elif success := self._why_succeeded():
            self._end("SuccessCriteriaMet", "Complete", *success)
        else:
            self._keep_going()
        self._write()
        return self.plan.build()

    def _note_suspension(self) -> None:
        known = condition_of({"status": {"conditions": self.conditions}}, "Suspended")
        was = known is not None and known["status"] == "True"
        if self.suspended:
            self.status["startTime"] = None
            if not was:
                self._condition("Suspended", "JobSuspended", "Job suspended")
                self.plan.add(EmitEvent(self.job, "Suspended", "Job suspended"))
        elif was:
            self._condition("Suspended", "JobResumed", "Job resumed", "False")
            self.plan.add(EmitEvent(self.job, "Resumed", "Job resumed"))
            self.status["startTime"] = format_time(self.now)
        elif not self.status.get("startTime"):
            self.status["startTime"] = format_time(self.now)

    def _why_failed(self) -> tuple[str, str] | None:
        begun = condition_of(self.job, "FailureTarget")
        if begun is not None and begun.get("status") == "True":
            return str(begun["reason"]), str(begun["message"])
        if self.tally.why_fail:
            return "PodFailurePolicy", self.tally.why_fail
        if self._past_limit():
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        if self._past_deadline():
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        if is_per_index(self.job):
            return index_failure_reason(self.job, self.tally.given_up, self.tally.done)
        return None

    def _past_limit(self) -> bool:
        limit = self.spec.get("backoffLimit")
        limit = 6 if limit is None else int(limit)
        if self.tally.failed > limit:
            return True
        if (self.spec["template"].get("spec") or {}).get("restartPolicy") != "OnFailure":
            return False
        count = sum(total_restarts(pod) for pod in self.active)
        return count > 0 if limit == 0 else count >= limit

    def _past_deadline(self) -> bool:
        deadline = self.spec.get("activeDeadlineSeconds")
        if deadline is None or self.suspended or not self.status.get("startTime"):
            return False
        ends = parse_time(self.status["startTime"]) + int(deadline)
        self.plan.requeue(ends)
        return self.now >= ends

    def _why_succeeded(self) -> tuple[str, str] | None:
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

    def _end(self, target: str, final: str, reason: str, message: str) -> None:
        """First the target, then the pods go, then the last word."""
        self._condition(target, reason, message)
        counted = target == "FailureTarget"
        for pod in self.active:
            if not counted and has_tracking_finalizer(pod):
                self.plan.add(Patch("pods", pod, remove_finalizer_patch(pod)))
            self.plan.add(Delete("pods", pod, self.job))
        left = len(self.active) + self.terminating
        self.active = []
        if left:
            self.terminating = left
            return
        self._condition(final, reason, message)
        if final == "Complete":
            self.status["completionTime"] = format_time(self.now)
            self.plan.add(EmitEvent(self.job, "Completed", "Job completed"))
        else:
            self.plan.add(EmitEvent(self.job, reason, message, "Warning"))
        ttl = self.spec.get("ttlSecondsAfterFinished")
        if ttl is not None:
            self.plan.requeue(self.now + int(ttl))

    def _keep_going(self) -> None:
        if is_indexed(self.job):
            self._remove(duplicate_index_pods(self.active))
        want = self._wanted()
        if len(self.active) > want:
            ranked = sorted(self.active, key=deletion_rank)
            self._remove(ranked[: len(self.active) - want])
        missing = want - len(self.active)
        if self.spec.get("podReplacementPolicy") == "Failed":
            missing -= self.terminating
        if missing <= 0:
            return
        if not is_per_index(self.job) and self.now < self.tally.failures.backoff_until:
            self.plan.requeue(self.tally.failures.backoff_until)
            return
        self._start(min(missing, MAX_POD_CHANGES_PER_SYNC))

    def _wanted(self) -> int:
        if self.suspended:
            return 0
        parallelism = self.spec.get("parallelism")
        most = 1 if parallelism is None else int(parallelism)
        completions = self.spec.get("completions")
        if completions is None:
            return len(self.active) if self.tally.succeeded > 0 else most
        return max(0, min(most, int(completions) - self.tally.succeeded))

    def _remove(self, pods: Sequence[Unstructured]) -> None:
        for pod in pods:
            if has_tracking_finalizer(pod):
                self.plan.add(
                    Patch("pods", pod, remove_finalizer_patch(pod))
                )  # first, so that it doesn't count as failed
            self.plan.add(Delete("pods", pod, self.job))
        gone = {uid_of(pod) for pod in pods}
        self.active = [pod for pod in self.active if uid_of(pod) not in gone]
        self.terminating += len(gone)

    def _start(self, count: int) -> None:
        if not is_indexed(self.job):
            self.plan.add(*(Create("pods", self.job, new_pod(self.job)) for _ in range(count)))
            return
        taken = self.tally.done | self.tally.given_up | {index_of(pod) for pod in self.active}
        if is_per_index(self.job):
            taken |= self._waiting_indices()
        for index in missing_indices(taken, int(self.spec.get("completions") or 0), count):
            pod = (
                new_index_pod(self.job, index, self.tally.again.get(index))
                if is_per_index(self.job)
                else new_pod(self.job, index)
            )
            self.plan.add(Create("pods", self.job, pod))

    def _waiting_indices(self) -> set[int]:
        """Indices that have failed and whose pause isn't over."""
        waiting = set()
        for index, pod in self.tally.again.items():
            at = retry_at(pod, INITIAL_BACKOFF, MAX_BACKOFF, self.now)
            if self.now < at:
                waiting.add(index)
                self.plan.requeue(at)
        return waiting

    def _condition(self, kind: str, reason: str, message: str, status: str = "True") -> None:
        new = {"type": kind, "status": status, "reason": reason, "message": message}
        known = condition_of({"status": {"conditions": self.conditions}}, kind)
        if known is not None and known["status"] == status:
            return
        self.conditions = with_condition(self.conditions, new, self.now, update_time_field="lastProbeTime")

    def _write(self) -> None:
        """The counts go first, together with whose they are; the pods are let go after that."""
        status = self.status
        tally = self.tally
        first: list[UpdateStatus | Patch] = []
        if tally.release:
            held = {**status, "uncountedTerminatedPods": {k: v for k, v in tally.counting.items() if v}}
            held["conditions"] = self.job.get("status", {}).get("conditions")
            if is_indexed(self.job):  # their pods are let go next, and with them goes what they did
                held |= self._indices()
            first.append(UpdateStatus(RESOURCE, self.job, held))
            first += [Patch("pods", pod, remove_finalizer_patch(pod)) for pod in tally.release]
        # Pods that are only about to be made are counted once they are there: making them may be refused.
        status["active"] = len(self.active) or None
        status["ready"] = sum(is_ready(pod) for pod in self.active)
        status["terminating"] = self.terminating
        status["succeeded"] = tally.succeeded or None
        status["failed"] = tally.failed or None
        status["uncountedTerminatedPods"] = {}
        status["conditions"] = self.conditions or None
        if is_indexed(self.job):
            status |= self._indices()
        self.plan.actions = [*first, *self.plan.actions, UpdateStatus(RESOURCE, self.job, status)]

    def _indices(self) -> Unstructured:
        """What the status says of an Indexed Job's indices."""
        tally = self.tally
        said: Unstructured = {"completedIndexes": format_indices(tally.done) or None}
        if is_per_index(self.job):
            said["failedIndexes"] = format_indices(tally.given_up)
        return said
