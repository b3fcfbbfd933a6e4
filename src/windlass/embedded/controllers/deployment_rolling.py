"""How many pods each ReplicaSet of a Deployment may have next: rolling, recreating, scaling. Called by `deployment`."""

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
    """`(surge, unavailable)` in pods; both zero would stand still, so then one may be unavailable."""
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


def scale_replica_set(
    plan: ReconcileResultBuilder, deployment: Unstructured, replica_set: Unstructured, size: int
) -> bool:
    """Scale a ReplicaSet and say so; whether that changes anything."""
    before = desired_replicas(replica_set)
    surge, _ = surge_and_unavailable(deployment)
    desired = desired_replicas(deployment)
    annotations = {DESIRED_REPLICAS_ANNOTATION: str(desired), MAX_REPLICAS_ANNOTATION: str(desired + surge)}
    merge: Unstructured = {"metadata": {"annotations": annotations}}
    if size != before:
        merge["spec"] = {"replicas": size}
    plan.add(Patch(REPLICA_SETS, replica_set, merge))
    if size == before:
        return False
    direction = "up" if size > before else "down"
    said = f"Scaled {direction} replica set {name_of(replica_set)} from {before} to {size}"
    plan.add(EmitEvent(deployment, "ScalingReplicaSet", said))
    return True


def rolling_update_step(
    plan: ReconcileResultBuilder, deployment: Unstructured, new: Unstructured, old: Sequence[Unstructured]
) -> None:
    """One step: first up, then down, never both at once."""
    if scale_replica_set(plan, deployment, new, _new_size(deployment, new, old)):
        return
    _shrink_old(plan, deployment, new, old)


def _new_size(deployment: Unstructured, new: Unstructured, old: Sequence[Unstructured]) -> int:
    desired, size = desired_replicas(deployment), desired_replicas(new)
    if size >= desired:
        return desired
    surge, _ = surge_and_unavailable(deployment)
    total = size + sum(desired_replicas(each) for each in old)
    room = desired + surge - total
    return size if room <= 0 else min(desired, size + room)


def _shrink_old(
    plan: ReconcileResultBuilder, deployment: Unstructured, new: Unstructured, old: Sequence[Unstructured]
) -> None:
    standing = [each for each in old if desired_replicas(each)]
    if not standing:
        return
    _, unavailable = surge_and_unavailable(deployment)
    floor = desired_replicas(deployment) - unavailable
    total = desired_replicas(new) + sum(desired_replicas(each) for each in standing)
    new_unavailable = desired_replicas(new) - _available(new)
    may_go = total - floor - new_unavailable
    if may_go <= 0:
        return
    sizes = {name_of(each): desired_replicas(each) for each in standing}
    for each in sorted(standing, key=created_at):  # pods that don't work anyway go first
        ill = min(sizes[name_of(each)] - _available(each), may_go)
        if ill > 0:
            sizes[name_of(each)] -= ill
            may_go -= ill
    healthy = _available(new) + sum(min(_available(each), sizes[name_of(each)]) for each in standing)
    spare = healthy - floor
    for each in sorted(standing, key=created_at):
        step = min(sizes[name_of(each)], spare)
        if step > 0:
            sizes[name_of(each)] -= step
            spare -= step
    for each in standing:
        scale_replica_set(plan, deployment, each, sizes[name_of(each)])


def recreate_step(
    plan: ReconcileResultBuilder,
    deployment: Unstructured,
    new: Unstructured,
    old: Sequence[Unstructured],
    pods: Mapping[str, Sequence[Unstructured]],
) -> None:
    """All old pods go before the first new one comes."""
    shrunk = [scale_replica_set(plan, deployment, each, 0) for each in old if desired_replicas(each)]
    if any(shrunk):
        return
    left = [pod for each in old for pod in pods.get(each["metadata"]["uid"], ()) if not is_finished(pod)]
    if not left:
        scale_replica_set(plan, deployment, new, desired_replicas(deployment))


def scale_proportionally(
    plan: ReconcileResultBuilder,
    deployment: Unstructured,
    new: Unstructured | None,
    old: Sequence[Unstructured],
) -> None:
    """The number of pods was changed, or the Deployment is paused: keep the proportions of a rollout under way."""
    standing = [each for each in (*old, *([new] if new else [])) if desired_replicas(each)]
    desired = desired_replicas(deployment)
    if len(standing) <= 1:
        latest = standing[0] if standing else (new or max(old, key=created_at, default=None))
        if latest is not None:
            scale_replica_set(plan, deployment, latest, desired)
        return
    if new is not None and _is_saturated(new, desired):
        for each in standing:
            scale_replica_set(plan, deployment, each, desired if each is new else 0)
        return
    surge, _ = surge_and_unavailable(deployment)
    _share_out(plan, deployment, standing, desired + surge if desired else 0)


def _share_out(
    plan: ReconcileResultBuilder, deployment: Unstructured, standing: list[Unstructured], allowed: int
) -> None:
    total = sum(desired_replicas(each) for each in standing)
    change = allowed - total
    # The largest gets its share first, so that rounding doesn't starve a small one.
    ranked = sorted(standing, key=lambda each: (-desired_replicas(each), -created_at(each) * (change > 0)))
    left = change
    sizes: dict[str, int] = {}
    for each in ranked:
        size = desired_replicas(each)
        before = int(annotations_of(each).get(MAX_REPLICAS_ANNOTATION) or 0) or total
        share = math.floor(size * allowed / before + 0.5) - size  # halves go up, as Kubernetes rounds
        share = max(min(share, left), 0) if change > 0 else min(max(share, left), 0)
        sizes[name_of(each)] = size + share
        left -= share
    if left:
        first = name_of(ranked[0])
        sizes[first] = max(0, sizes[first] + left)
    for each in standing:
        scale_replica_set(plan, deployment, each, sizes[name_of(each)])


def _is_saturated(new: Unstructured, desired: int) -> bool:
    """Whether the new ReplicaSet has all that the Deployment wants, and was meant to."""
    known = annotations_of(new).get(DESIRED_REPLICAS_ANNOTATION) == str(desired)
    return known and desired_replicas(new) == desired == _available(new)


def _available(replica_set: Unstructured) -> int:
    return int((replica_set.get("status") or {}).get("availableReplicas") or 0)
