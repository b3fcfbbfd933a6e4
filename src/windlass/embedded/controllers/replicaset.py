"""The ReplicaSet controller: the desired number of pods, least valuable ones deleted first. Called by
`workload_controllers`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from windlass.embedded.controllers.objects import (
    has_condition,
    is_deleting,
    labels_of,
    name_of,
    with_condition,
)
from windlass.embedded.controllers.pod_state import (
    deletion_rank,
    is_active,
    is_available,
    is_ready,
    is_terminating,
    node_name,
    soonest_available,
)
from windlass.embedded.controllers.pod_template import generate_name_of, pod_from_template
from windlass.embedded.controllers.reconcile_result import (
    Create,
    Delete,
    ReconcileResult,
    ReconcileResultBuilder,
    UpdateStatus,
)
from windlass.model.unstructured import Unstructured

RESOURCE = "replicasets.apps"
BURST_REPLICAS = 500
REPLICA_FAILURE = "ReplicaFailure"


def desired_replicas(obj: Unstructured) -> int:
    replicas = obj["spec"].get("replicas")
    return 1 if replicas is None else int(replicas)


def reconcile_replicaset(replica_set: Unstructured, pods: Sequence[Unstructured], now: float) -> ReconcileResult:
    """Knows nothing of refused creations; the caller handles those with `replica_failure_status`."""
    plan = ReconcileResultBuilder()
    active = [pod for pod in pods if is_active(pod)]
    if not is_deleting(replica_set):
        difference = desired_replicas(replica_set) - len(active)
        if difference > 0:
            plan.add(*(_create_pod(replica_set) for _ in range(min(difference, BURST_REPLICAS))))
        elif difference < 0:
            pods_per_node = Counter(node_name(pod) for pod in active)
            ranked = sorted(active, key=lambda pod: deletion_rank(pod, pods_per_node[node_name(pod)]))
            plan.add(*(Delete("pods", pod, replica_set) for pod in ranked[:-difference]))
    min_ready = int(replica_set["spec"].get("minReadySeconds") or 0)
    plan.add(UpdateStatus(RESOURCE, replica_set, _status(replica_set, pods, active, min_ready, now)))
    plan.requeue(soonest_available(active, min_ready, now))
    return plan.build()


def _create_pod(replica_set: Unstructured) -> Create:
    pod = pod_from_template(replica_set["spec"]["template"], replica_set, prefix=generate_name_of(name_of(replica_set)))
    return Create("pods", replica_set, pod)


def _status(
    replica_set: Unstructured,
    pods: Sequence[Unstructured],
    active: list[Unstructured],
    min_ready: int,
    now: float,
) -> Unstructured:
    labels = (replica_set["spec"].get("template") or {}).get("metadata", {}).get("labels") or {}
    labelled = sum(labels.items() <= labels_of(pod).items() for pod in active)
    status = dict(replica_set.get("status") or {})
    status["replicas"] = len(active)
    status["fullyLabeledReplicas"] = labelled or None
    status["readyReplicas"] = sum(map(is_ready, active)) or None
    status["availableReplicas"] = sum(is_available(pod, min_ready, now) for pod in active) or None
    status["terminatingReplicas"] = sum(map(is_terminating, pods)) or None
    status["observedGeneration"] = replica_set["metadata"].get("generation", 1)
    # With pods missing, their creation may still be refused: keep ReplicaFailure until all exist.
    if len(active) >= desired_replicas(replica_set):
        kept = [item for item in status.get("conditions") or () if item["type"] != REPLICA_FAILURE]
        status["conditions"] = kept or None
    return status


def replica_failure_status(replica_set: Unstructured, message: str, now: float) -> Unstructured:
    """The status after refused creations. Keeps the first message, since each pod has another name."""
    status = dict(replica_set.get("status") or {})
    if has_condition(replica_set, REPLICA_FAILURE):
        return status
    new = {"type": REPLICA_FAILURE, "status": "True", "reason": "FailedCreate", "message": message}
    status["conditions"] = with_condition(status.get("conditions") or (), new, now)
    return status
