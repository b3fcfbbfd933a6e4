"""How many pods each ReplicaSet of a Deployment gets next: rolling update, recreate, scaling. Called by
`deployment`.

Follows kube-controller-manager's deployment controller (rolling.go, recreate.go, sync.go).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windlass.embedded.api.numbers import parse_decimal
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


@dataclass
class Rollout:
    """A Deployment with its ReplicaSets, and what is to be done about them."""

    deployment: Unstructured
    new: Unstructured | None
    """The ReplicaSet with the Deployment's template."""
    old: Sequence[Unstructured]
    pods: Mapping[str, Sequence[Unstructured]]
    """Those of each ReplicaSet by UID; only the Recreate strategy needs them."""
    plan: ReconcileResultBuilder = field(default_factory=ReconcileResultBuilder)

    @property
    def desired(self) -> int:
        return desired_replicas(self.deployment)

    def scale(self, replica_set: Unstructured, size: int) -> bool:
        """Scales a ReplicaSet and records an event; returns whether its size changes."""
        before = desired_replicas(replica_set)
        merge: Unstructured = {"metadata": {"annotations": size_annotations(self.deployment)}}
        if size != before:
            merge["spec"] = {"replicas": size}
        self.plan.add(Patch(REPLICA_SETS, replica_set, merge))
        if size == before:
            return False
        direction = "up" if size > before else "down"
        message = f"Scaled {direction} replica set {name_of(replica_set)} from {before} to {size}"
        self.plan.add(EmitEvent(self.deployment, "ScalingReplicaSet", message))
        return True

    def rolling_update_step(self, new: Unstructured) -> None:
        """One step: scale the new ReplicaSet up; if it stays, scale old ones down."""
        if not self.scale(new, self._new_replicas(new)):
            self._scale_down_old(new)

    def _new_replicas(self, new: Unstructured) -> int:
        size = desired_replicas(new)
        if size >= self.desired:
            return self.desired
        surge, _ = surge_and_unavailable(self.deployment)
        headroom = self.desired + surge - size - sum(map(desired_replicas, self.old))
        return size if headroom <= 0 else min(self.desired, size + headroom)

    def _scale_down_old(self, new: Unstructured) -> None:
        scaled = [item for item in self.old if desired_replicas(item)]
        if not scaled:
            return
        _, unavailable = surge_and_unavailable(self.deployment)
        min_available = self.desired - unavailable
        total = desired_replicas(new) + sum(map(desired_replicas, scaled))
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
            self.scale(item, sizes[name_of(item)])

    def recreate_step(self, new: Unstructured) -> None:
        """All old pods end before the first new one is created."""
        scaled_down = [self.scale(item, 0) for item in self.old if desired_replicas(item)]
        if any(scaled_down):
            return
        old_pods = (pod for item in self.old for pod in self.pods.get(item["metadata"]["uid"], ()))
        if all(map(is_finished, old_pods)):
            self.scale(new, self.desired)

    def scale_proportionally(self) -> None:
        """Keeps the proportions of a rollout when the Deployment is scaled or paused in the middle of it."""
        new, desired = self.new, self.desired
        scaled = [item for item in (*self.old, *([new] if new else [])) if desired_replicas(item)]
        if len(scaled) <= 1:
            latest = scaled[0] if scaled else (new or max(self.old, key=created_at, default=None))
            if latest is not None:
                self.scale(latest, desired)
            return
        if new is not None and _is_saturated(new, desired):
            for item in scaled:
                self.scale(item, desired if item is new else 0)
            return
        surge, _ = surge_and_unavailable(self.deployment)
        self._scale_in_proportion(scaled, desired + surge if desired else 0)

    def _scale_in_proportion(self, scaled: list[Unstructured], allowed: int) -> None:
        total = sum(map(desired_replicas, scaled))
        change = allowed - total
        # The largest gets its share first, so that rounding does not starve a small one.
        ranked = sorted(scaled, key=lambda item: (-desired_replicas(item), -created_at(item) * (change > 0)))
        remaining = change
        sizes: dict[str, int] = {}
        for item in ranked:
            size = desired_replicas(item)
            allowed_before = parse_decimal(annotations_of(item).get(MAX_REPLICAS_ANNOTATION) or "") or total
            # Rounds half up, as Kubernetes does.
            share = math.floor(size * allowed / allowed_before + 0.5) - size
            share = max(min(share, remaining), 0) if change > 0 else min(max(share, remaining), 0)
            sizes[name_of(item)] = size + share
            remaining -= share
        if remaining:
            first = name_of(ranked[0])
            sizes[first] = max(0, sizes[first] + remaining)
        for item in scaled:
            self.scale(item, sizes[name_of(item)])


def _is_saturated(new: Unstructured, desired: int) -> bool:
    """Whether the new ReplicaSet has all replicas that the Deployment wants, available."""
    is_annotated = annotations_of(new).get(DESIRED_REPLICAS_ANNOTATION) == str(desired)
    return is_annotated and desired_replicas(new) == desired == _available(new)


def _available(replica_set: Unstructured) -> int:
    return int((replica_set.get("status") or {}).get("availableReplicas") or 0)
