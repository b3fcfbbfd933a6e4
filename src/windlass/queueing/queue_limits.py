"""Limits of one job and of one user inside a ClusterQueue (`model.queue_policy`).

`admit` asks before a workload is considered. What is refused here waits and keeps nothing behind it from starting: in a
StrictFIFO queue, too, since the limit is its user's own. A user is named by `windlass.dev/user`; work without that
counts to its namespace, so that leaving it out gains nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.names.windlass import (
    MAX_JOB_GPUS_ANNOTATION,
    MAX_USER_GPUS_ANNOTATION,
    MAX_USER_RUNNING_ANNOTATION,
    MAX_USER_SUBMITTED_ANNOTATION,
)
from windlass.model.workload import Workload
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.quota_node import AdmittedWorkload

MILLI = 1000


def user_of(workload: Workload) -> str:
    return f"user {workload.user}" if workload.user else f"namespace {workload.namespace}"


def limit_refusal(pending: PendingWorkload, waiting: Callable[[], Iterable[Workload]]) -> str:
    """Which limit keeps it from being considered; empty if none does. `waiting` lists what
    waits in its queue."""
    policy, workload, queue = pending.node.spec.policy, pending.workload, pending.node.name
    if not policy.has_limits:
        return ""
    asked, user = _gpus_asked(pending), user_of(workload)
    if policy.max_job_gpus is not None and asked > policy.max_job_gpus * MILLI:
        return _message(f"it asks for {_gpus(asked)}", policy.max_job_gpus, "a job", queue, MAX_JOB_GPUS_ANNOTATION)
    running = [held for held in pending.node.admitted.values() if user_of(held.workload) == user]
    used = sum(map(_gpus_held, running))
    if policy.max_user_gpus is not None and used + asked > policy.max_user_gpus * MILLI:
        has = f"{user} has {_gpus(used)} and it asks for {_gpus(asked)}"
        return _message(has, policy.max_user_gpus, "a user", queue, MAX_USER_GPUS_ANNOTATION)
    if policy.max_user_running is not None and len(running) >= policy.max_user_running:
        has = f"{user} has {len(running)} running jobs"
        return _message(has, policy.max_user_running, "a user", queue, MAX_USER_RUNNING_ANNOTATION)
    if policy.max_user_submitted is not None:
        older = [other for other in waiting() if user_of(other) == user and _age(other) < _age(workload)]
        if len(running) + len(older) >= policy.max_user_submitted:
            has = f"{user} has submitted {len(running) + len(older)} jobs before it"
            return _message(has, policy.max_user_submitted, "a user", queue, MAX_USER_SUBMITTED_ANNOTATION)
    return ""


def _message(has: str, limit: int, whose: str, queue: str, annotation: str) -> str:
    return f"{has}; ClusterQueue {queue} allows {whose} {limit} ({annotation})"


def _age(workload: Workload) -> tuple[int, str]:
    return workload.created, workload.key


def _gpus_asked(pending: PendingWorkload) -> int:
    """In milli-GPU."""
    counts = zip(pending.requests, pending.counts, strict=True)
    return sum(requests.get(GPU_RESOURCE, 0) * count for requests, count in counts)


def _gpus_held(running: AdmittedWorkload) -> int:
    return sum(amount for (_, resource), amount in running.usage.items() if resource == GPU_RESOURCE)


def _gpus(milli: int) -> str:
    number = f"{milli / MILLI:g}"
    return f"{number} GPU{'' if number == '1' else 's'}"
