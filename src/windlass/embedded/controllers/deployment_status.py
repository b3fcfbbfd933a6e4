"""A Deployment's status and conditions, which `kubectl rollout status` waits for. Called by `deployment`."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.embedded.controllers.deployment_rolling import surge_and_unavailable
from windlass.embedded.controllers.objects import (
    condition_of,
    format_time,
    name_of,
    parse_time,
    with_condition,
)
from windlass.embedded.controllers.replicaset import REPLICA_FAILURE, desired_replicas
from windlass.model.unstructured import Unstructured

NO_PROGRESS_DEADLINE = 2**31 - 1


def deployment_status(
    deployment: Unstructured,
    new: Unstructured | None,
    old: Sequence[Unstructured],
    now: float,
    created: str = "",
) -> tuple[Unstructured, float | None]:
    """The status as it should stand, and when the progress deadline has to be looked at.

    `created` names the ReplicaSet that is being made for a new template.
    """
    sets = [*old, *([new] if new is not None else [])]
    status = dict(deployment.get("status") or {})
    available = _sum(sets, "availableReplicas")
    total = _sum(sets, "replicas")
    before = {field: int(status.get(field) or 0) for field in _COUNTED}
    status["observedGeneration"] = deployment["metadata"].get("generation", 1)
    status["replicas"] = total or None
    status["updatedReplicas"] = _sum([new] if new is not None else [], "replicas") or None
    status["readyReplicas"] = _sum(sets, "readyReplicas") or None
    status["availableReplicas"] = available or None
    status["unavailableReplicas"] = max(0, sum(map(desired_replicas, sets)) - available) or None
    moved = any(int(status.get(field) or 0) > before[field] for field in _COUNTED[1:]) or (
        total - int(status.get("updatedReplicas") or 0) < before["replicas"] - before["updatedReplicas"]
    )
    conditions = list(status.get("conditions") or ())
    conditions = _with(conditions, _availability(deployment, available), now)
    conditions = _with_refusals(conditions, new, old, now)
    progress, again = _progress(deployment, new, status, moved, now, created)
    if progress is not None:
        conditions = _with(conditions, progress, now)
        if moved and progress["reason"] == "ReplicaSetUpdated":
            conditions = [
                _touched(each, now) if each["type"] == "Progressing" else each for each in conditions
            ]
    status["conditions"] = conditions
    return status, again


_COUNTED = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")


def _sum(sets: Sequence[Unstructured], field: str) -> int:
    return sum(int((each.get("status") or {}).get(field) or 0) for each in sets)


def _with(conditions: list[Unstructured], new: Unstructured, now: float) -> list[Unstructured]:
    return with_condition(conditions, new, now, update_time_field="lastUpdateTime")


def _touched(condition: Unstructured, now: float) -> Unstructured:
    return {**condition, "lastUpdateTime": format_time(now)}


def _availability(deployment: Unstructured, available: int) -> Unstructured:
    _, unavailable = surge_and_unavailable(deployment)
    enough = available >= desired_replicas(deployment) - unavailable
    return {
        "type": "Available",
        "status": "True" if enough else "False",
        "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
        "message": f"Deployment {'has' if enough else 'does not have'} minimum availability.",
    }


def is_complete(deployment: Unstructured, status: Unstructured) -> bool:
    desired = desired_replicas(deployment)
    updated = int(status.get("updatedReplicas") or 0)
    return (
        updated == desired
        and int(status.get("replicas") or 0) == desired
        and int(status.get("availableReplicas") or 0) == desired
    )


def _progress(
    deployment: Unstructured,
    new: Unstructured | None,
    status: Unstructured,
    moved: bool,
    now: float,
    created: str,
) -> tuple[Unstructured | None, float | None]:
    deadline = deployment["spec"].get("progressDeadlineSeconds")
    if deadline is None or int(deadline) == NO_PROGRESS_DEADLINE:
        return None, None
    known = condition_of(deployment, "Progressing")
    what = f'ReplicaSet "{name_of(new)}"' if new is not None else "Deployment"
    if deployment["spec"].get("paused"):
        late = known is not None and known.get("reason") == "ProgressDeadlineExceeded"
        paused = _condition("Unknown", "DeploymentPaused", "Deployment is paused")
        return unchanged_condition(known) if late and known is not None else paused, None
    if known is not None and known.get("reason") == "DeploymentPaused":
        return _condition("Unknown", "DeploymentResumed", "Deployment is resumed"), now + int(deadline)
    if created:
        said = f'Created new replica set "{created}"'
        return _condition("True", "NewReplicaSetCreated", said), now + int(deadline)
    if new is None:
        return (unchanged_condition(known) if known else None), None
    was_through = known is not None and known.get("reason") == "NewReplicaSetAvailable"
    if known is not None and was_through and status.get("replicas") == status.get("updatedReplicas"):
        return unchanged_condition(known), None  # a pod that falls over later is no new rollout
    if is_complete(deployment, status):
        return _condition("True", "NewReplicaSetAvailable", f"{what} has successfully progressed."), None
    if known is None:
        said = f'Found new replica set "{name_of(new)}"'
        return _condition("True", "FoundNewReplicaSet", said), now + int(deadline)
    if moved:
        return _condition("True", "ReplicaSetUpdated", f"{what} is progressing."), now + int(deadline)
    if was_through:
        return unchanged_condition(known), None
    expires = parse_time(known.get("lastUpdateTime")) + int(deadline)
    if now >= expires:
        return _condition("False", "ProgressDeadlineExceeded", f"{what} has timed out progressing."), None
    return unchanged_condition(known), expires


def _with_refusals(
    conditions: list[Unstructured], new: Unstructured | None, old: Sequence[Unstructured], now: float
) -> list[Unstructured]:
    """What keeps a ReplicaSet from making pods is the Deployment's trouble too; the new one's comes first."""
    for each in (*([new] if new is not None else []), *old):
        refused = condition_of(each, REPLICA_FAILURE)
        if refused is not None and refused.get("status") == "True":
            words = {name: refused.get(name, "") for name in ("type", "status", "reason", "message")}
            return _with(conditions, words, now)
    return [each for each in conditions if each["type"] != REPLICA_FAILURE]


def unchanged_condition(known: Unstructured) -> Unstructured:
    return _condition(str(known["status"]), str(known["reason"]), str(known.get("message", "")))


def _condition(status: str, reason: str, message: str) -> Unstructured:
    return {"type": "Progressing", "status": status, "reason": reason, "message": message}
