"""How many pods each ReplicaSet of a Deployment gets next: rolling update, recreate, scaling. Called by
`deployment`.

Follows kube-controller-manager's deployment controller (rolling.go, recreate.go, sync.go).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from windlass.embedded.controllers.objects import annotations_of, created_at, name_of, scaled_int_or_percent
from windlass.embedded.controllers.pod_state import is_finished
from windlass.embedded.controllers.reconcile_result import EmitEvent, Patch, ReconcileResultBuilder
from windlass.embedded.controllers.replicaset import RESOURCE as REPLICA_SETS
from windlass.embedded.controllers.replicaset import desired_replicas
from windlass.model.unstructured import Unstructured

DESIRED_REPLICAS_ANNOTATION = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS_ANNOTATION = "deployment.kubernetes.io/max-replicas"


def surge_and_unavailable(deployment: Unstructured) -> tuple[int, int]:
    """`(maxSurge, maxUnavailable)` in pods. If both are zero, nothing could move, so one may be unavailable."""
    strategy = deployment["spec"].get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return 0, 0
    rolling = strategy.get("rollingUpdate") or {}
    replicas = desired_replicas(deployment)
    surge = scaled_int_or_percent(rolling.get("maxSurge", "25%"), replicas, round_up=True)
    unavailable = scaled_int_or_percent(rolling.get("maxUnavailable", "25%"), replicas, round_up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, replicas)


def size_annotations(deployment: Unstructured) -> dict[str, str]:
    """What a ReplicaSet remembers of its Deployment's size, so that a later scaling is noticed."""
    desired, (surge, _) = desired_replicas(deployment), surge_and_unavailable(deployment)
    return {DESIRED_REPLICAS_ANNOTATION: str(desired), MAX_REPLICAS_ANNOTATION: str(desired + surge)}


def scale_replica_set(
    plan: ReconcileResultBuilder, deployment: Unstructured, replica_set: Unstructured, size: int
) -> bool:
    """Scales a ReplicaSet and records an event; returns whether its size changes."""
    before = desired_replicas(replica_set)
    merge: Unstructured = {"metadata": {"annotations": size_annotations(deployment)}}
    if size != before:
        merge["spec"] = {"replicas": size}
    plan.add(Patch(REPLICA_SETS, replica_set, merge))
    if size == before:
        return False
    direction = "up" if size > before else "down"
    message = f"Scaled {direction} replica set {name_of(replica_set)} from {before} to {size}"
    plan.add(EmitEvent(deployment, "ScalingReplicaSet", message))
    return True


def rolling_update_step(
    plan: ReconcileResultBuilder, deployment: Unstructured, new: Unstructured, old: Sequence[Unstructured]
) -> None:
    """One step: scale the new ReplicaSet up; if it stays, scale old ones down."""
    if scale_replica_set(plan, deployment, new, _new_replicas(deployment, new, old)):
        return
    _scale_down_old(plan, deployment, new, old)


def _new_replicas(deployment: Unstructured, new: Unstructured, old: Sequence[Unstructured]) -> int:
    desired, size = desired_replicas(deployment), desired_replicas(new)
    if size >= desired:
        return desired
    surge, _ = surge_and_unavailable(deployment)
    total = size + sum(desired_replicas(item) for item in old)
    headroom = desired + surge - total
    return size if headroom <= 0 else min(desired, size + headroom)


def _scale_down_old(
    plan: ReconcileResultBuilder, deployment: Unstructured, new: Unstructured, old: Sequence[Unstructured]
) -> None:
    scaled = [item for item in old if desired_replicas(item)]
    if not scaled:
        return
    _, unavailable = surge_and_unavailable(deployment)
    min_available = desired_replicas(deployment) - unavailable
    total = desired_replicas(new) + sum(desired_replicas(item) for item in scaled)
    new_unavailable = desired_replicas(new) - _available(new)
    max_cleanup = total - min_available - new_unavailable
    if max_cleanup <= 0:
        return
    sizes = {name_of(item): desired_replicas(item) for item in scaled}
    for item in sorted(scaled, key=created_at):  # unhealthy pods go first
        unhealthy = min(sizes[name_of(item)] - _available(item), max_cleanup)
        if unhealthy > 0:
            sizes[name_of(item)] -= unhealthy
            max_cleanup -= unhealthy
    available = _available(new) + sum(min(_available(item), sizes[name_of(item)]) for item in scaled)
    surplus = available - min_available
    for item in sorted(scaled, key=created_at):
        step = min(sizes[name_of(item)], surplus)
        if step > 0:
            sizes[name_of(item)] -= step
            surplus -= step
    for item in scaled:
        scale_replica_set(plan, deployment, item, sizes[name_of(item)])


def recreate_step(
    plan: ReconcileResultBuilder,
    deployment: Unstructured,
    new: Unstructured,
    old: Sequence[Unstructured],
    pods: Mapping[str, Sequence[Unstructured]],
) -> None:
    """All old pods end before the first new one is created."""
    scaled_down = [scale_replica_set(plan, deployment, item, 0) for item in old if desired_replicas(item)]
    if any(scaled_down):
        return
    remaining = [pod for item in old for pod in pods.get(item["metadata"]["uid"], ()) if not is_finished(pod)]
    if not remaining:
        scale_replica_set(plan, deployment, new, desired_replicas(deployment))


def scale_proportionally(
    plan: ReconcileResultBuilder,
    deployment: Unstructured,
    new: Unstructured | None,
    old: Sequence[Unstructured],
) -> None:
    """Keeps the proportions of a rollout when the Deployment is scaled or paused in the middle of it."""
    scaled = [item for item in (*old, *([new] if new else [])) if desired_replicas(item)]
    desired = desired_replicas(deployment)
    if len(scaled) <= 1:
        latest = scaled[0] if scaled else (new or max(old, key=created_at, default=None))
        if latest is not None:
            scale_replica_set(plan, deployment, latest, desired)
        return
    if new is not None and _is_saturated(new, desired):
        for item in scaled:
            scale_replica_set(plan, deployment, item, desired if item is new else 0)
        return
    surge, _ = surge_and_unavailable(deployment)
    _scale_in_proportion(plan, deployment, scaled, desired + surge if desired else 0)


def _scale_in_proportion(
    plan: ReconcileResultBuilder, deployment: Unstructured, scaled: list[Unstructured], allowed: int
) -> None:
    total = sum(desired_replicas(item) for item in scaled)
    change = allowed - total
    # The largest gets its share first, so that rounding does not starve a small one.
    ranked = sorted(scaled, key=lambda item: (-desired_replicas(item), -created_at(item) * (change > 0)))
    remaining = change
    sizes: dict[str, int] = {}
    for item in ranked:
        size = desired_replicas(item)
        allowed_before = int(annotations_of(item).get(MAX_REPLICAS_ANNOTATION) or 0) or total
        share = math.floor(size * allowed / allowed_before + 0.5) - size  # rounds half up, as Kubernetes does
        share = max(min(share, remaining), 0) if change > 0 else min(max(share, remaining), 0)
        sizes[name_of(item)] = size + share
        remaining -= share
    if remaining:
        first = name_of(ranked[0])
        sizes[first] = max(0, sizes[first] + remaining)
    for item in scaled:
        scale_replica_set(plan, deployment, item, sizes[name_of(item)])


def _is_saturated(new: Unstructured, desired: int) -> bool:
    """Whether the new ReplicaSet has all replicas that the Deployment wants, available."""
    is_annotated = annotations_of(new).get(DESIRED_REPLICAS_ANNOTATION) == str(desired)
    return is_annotated and desired_replicas(new) == desired == _available(new)


def _available(replica_set: Unstructured) -> int:
    return int((replica_set.get("status") or {}).get("availableReplicas") or 0)
