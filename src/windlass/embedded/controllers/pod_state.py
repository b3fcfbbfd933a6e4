"""State of a pod as controllers see it: active, ready, available, and the order of deletion. Used by most
controllers.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.embedded.api.numbers import parse_signed
from windlass.embedded.api.timestamps import parse_time
from windlass.embedded.controllers.objects import (
    annotations_of,
    condition_of,
    created_at,
    has_condition,
    is_deleting,
    name_of,
)
from windlass.model.unstructured import Unstructured

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def phase_of(pod: Unstructured) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_finished(pod: Unstructured) -> bool:
    return phase_of(pod) in ("Succeeded", "Failed")


def is_active(pod: Unstructured) -> bool:
    return not is_finished(pod) and not is_deleting(pod)


def is_terminating(pod: Unstructured) -> bool:
    """Being deleted and not finished."""
    return is_deleting(pod) and not is_finished(pod)


def is_ready(pod: Unstructured) -> bool:
    return has_condition(pod, "Ready")


def is_available(pod: Unstructured, min_ready: int, now: float) -> bool:
    """Ready for at least `min_ready` seconds."""
    at = available_at(pod, min_ready)
    return at is not None and now >= at


def available_at(pod: Unstructured, min_ready: int) -> float | None:
    """When it becomes available if it stays ready; None if it is not ready."""
    ready = condition_of(pod, "Ready")
    if ready is None or ready.get("status") != "True":
        return None
    return parse_time(ready.get("lastTransitionTime")) + min_ready if min_ready else 0.0


def soonest_available(pods: Sequence[Unstructured], min_ready: int, now: float) -> float | None:
    """When the next pod becomes available."""
    moments = [at for pod in pods if (at := available_at(pod, min_ready)) is not None and at > now]
    return min(moments, default=None)


def max_restarts(pod: Unstructured) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((int(container.get("restartCount", 0)) for container in statuses), default=0)


def total_restarts(pod: Unstructured) -> int:
    status = pod.get("status") or {}
    listed = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    return sum(int(container.get("restartCount", 0)) for container in listed)


def node_name(pod: Unstructured) -> str:
    """The node that it is bound to; empty before."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def deletion_rank(pod: Unstructured, pods_on_node: int = 0) -> tuple[object, ...]:
    """Sort key for scaling down, as in Kubernetes. `pods_on_node`: pods of the same owner on its node."""
    phases = {"Pending": 0, "Unknown": 1, "Running": 2}
    ready = condition_of(pod, "Ready")
    since = parse_time(ready.get("lastTransitionTime")) if ready and is_ready(pod) else 0.0
    cost = annotations_of(pod).get(DELETION_COST, "0")
    return (
        bool(node_name(pod)),
        phases.get(phase_of(pod), 2),
        is_ready(pod),
        parse_signed(cost) or 0,
        -pods_on_node,
        -since,
        -max_restarts(pod),
        -created_at(pod),
        name_of(pod),
    )
