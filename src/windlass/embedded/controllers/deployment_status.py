"""A Deployment's status and conditions, which `kubectl rollout status` reads. Called by `deployment`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from windlass.embedded.api.timestamps import format_time, parse_time
from windlass.embedded.controllers.deployment_rolling import Rollout, surge_and_unavailable
from windlass.embedded.controllers.objects import condition, condition_of, name_of, with_condition
from windlass.embedded.controllers.replicaset import REPLICA_FAILURE, desired_replicas
from windlass.model.unstructured import Unstructured

NO_PROGRESS_DEADLINE = 2**31 - 1


def deployment_status(rollout: Rollout, now: float, created: str = "") -> tuple[Unstructured, float | None]:
    """The status, and when to check the progress deadline. `created`: a ReplicaSet that is being created."""
    deployment, updated = rollout.deployment, [rollout.new] if rollout.new is not None else []
    replica_sets = [*rollout.old, *updated]
    status = dict(deployment.get("status") or {})
    available = _sum(replica_sets, "availableReplicas")
    total = _sum(replica_sets, "replicas")
    before = {field: int(status.get(field) or 0) for field in _REPLICA_COUNTS}
    status["observedGeneration"] = deployment["metadata"].get("generation", 1)
    status["replicas"] = total or None
    status["updatedReplicas"] = _sum(updated, "replicas") or None
    status["readyReplicas"] = _sum(replica_sets, "readyReplicas") or None
    status["availableReplicas"] = available or None
    status["unavailableReplicas"] = max(0, sum(map(desired_replicas, replica_sets)) - available) or None
    has_progressed = any(int(status.get(field) or 0) > before[field] for field in _REPLICA_COUNTS[1:]) or (
        total - int(status.get("updatedReplicas") or 0) < before["replicas"] - before["updatedReplicas"]
    )
    conditions = list(status.get("conditions") or ())
    conditions = _set_condition(conditions, _available_condition(deployment, available), now)
    conditions = _copy_replica_failure(conditions, (*updated, *rollout.old), now)
    progress, requeue_at = _progressing_condition(rollout, status, has_progressed, now, created)
    if progress is not None:
        conditions = _set_condition(conditions, progress, now)
        if has_progressed and progress["reason"] == "ReplicaSetUpdated":
            for known in conditions:  # copies, made by `with_condition`
                if known["type"] == "Progressing":
                    known["lastUpdateTime"] = format_time(now)
    status["conditions"] = conditions
    return status, requeue_at


_REPLICA_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")


def _sum(replica_sets: Sequence[Unstructured], field: str) -> int:
    return sum(int((replica_set.get("status") or {}).get(field) or 0) for replica_set in replica_sets)


def _set_condition(conditions: list[Unstructured], new: Unstructured, now: float) -> list[Unstructured]:
    return with_condition(conditions, new, now, update_time_field="lastUpdateTime")


def _available_condition(deployment: Unstructured, available: int) -> Unstructured:
    _, unavailable = surge_and_unavailable(deployment)
    enough = available >= desired_replicas(deployment) - unavailable
    reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
    message = f"Deployment {'has' if enough else 'does not have'} minimum availability."
    return condition("Available", str(enough), reason, message)


def is_complete(deployment: Unstructured, status: Unstructured) -> bool:
    counts = ("updatedReplicas", "replicas", "availableReplicas")
    return all(int(status.get(field) or 0) == desired_replicas(deployment) for field in counts)


def _progressing_condition(
    rollout: Rollout, status: Unstructured, has_progressed: bool, now: float, created: str
) -> tuple[Unstructured | None, float | None]:
    deployment, new = rollout.deployment, rollout.new
    deadline = deployment["spec"].get("progressDeadlineSeconds")
    if deadline is None or int(deadline) == NO_PROGRESS_DEADLINE:
        return None, None
    known = condition_of(deployment, "Progressing")
    subject = f'ReplicaSet "{name_of(new)}"' if new is not None else "Deployment"
    if deployment["spec"].get("paused"):
        timed_out = known is not None and known.get("reason") == "ProgressDeadlineExceeded"
        paused = _condition("Unknown", "DeploymentPaused", "Deployment is paused")
        return unchanged_condition(known) if timed_out and known is not None else paused, None
    if known is not None and known.get("reason") == "DeploymentPaused":
        return _condition("Unknown", "DeploymentResumed", "Deployment is resumed"), now + int(deadline)
    if created:
        message = f'Created new replica set "{created}"'
        return _condition("True", "NewReplicaSetCreated", message), now + int(deadline)
    if new is None:
        return (unchanged_condition(known) if known else None), None
    was_complete = known is not None and known.get("reason") == "NewReplicaSetAvailable"
    if known is not None and was_complete and status.get("replicas") == status.get("updatedReplicas"):
        return unchanged_condition(known), None  # a pod that fails later does not start a new rollout
    if is_complete(deployment, status):
        return _condition("True", "NewReplicaSetAvailable", f"{subject} has successfully progressed."), None
    if known is None:
        message = f'Found new replica set "{name_of(new)}"'
        return _condition("True", "FoundNewReplicaSet", message), now + int(deadline)
    if has_progressed:
        return _condition("True", "ReplicaSetUpdated", f"{subject} is progressing."), now + int(deadline)
    if was_complete:
        return unchanged_condition(known), None
    expires = parse_time(known.get("lastUpdateTime")) + int(deadline)
    if now >= expires:
        return _condition("False", "ProgressDeadlineExceeded", f"{subject} has timed out progressing."), None
    return unchanged_condition(known), expires


def _copy_replica_failure(
    conditions: list[Unstructured], replica_sets: Sequence[Unstructured], now: float
) -> list[Unstructured]:
    """Copies the first ReplicaSet's ReplicaFailure condition to the Deployment."""
    for replica_set in replica_sets:
        failure = condition_of(replica_set, REPLICA_FAILURE)
        if failure is not None and failure.get("status") == "True":
            fields = {name: failure.get(name, "") for name in ("type", "status", "reason", "message")}
            return _set_condition(conditions, fields, now)
    return [known for known in conditions if known["type"] != REPLICA_FAILURE]


def unchanged_condition(known: Unstructured) -> Unstructured:
    return _condition(str(known["status"]), str(known["reason"]), str(known.get("message", "")))


_condition = partial(condition, "Progressing")
