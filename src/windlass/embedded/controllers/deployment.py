"""The Deployment controller: one ReplicaSet per template, and the rollout from one to the next.

`reconcile_deployment` is pure; `workload_controllers` calls it. Rolling steps are in `deployment_rolling`, status
and conditions in `deployment_status`. `kubectl rollout` relies on the revisions, pause and progress condition
written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.embedded.api.numbers import parse_decimal
from windlass.embedded.controllers.deployment_rolling import (
    DESIRED_REPLICAS_ANNOTATION,
    MAX_REPLICAS_ANNOTATION,
    Rollout,
    size_annotations,
    surge_and_unavailable,
)
from windlass.embedded.controllers.deployment_status import deployment_status
from windlass.embedded.controllers.objects import (
    annotations_of,
    created_at,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
)
from windlass.embedded.controllers.pod_template import POD_TEMPLATE_HASH, same_template, template_hash
from windlass.embedded.controllers.reconcile_result import (
    Create,
    Delete,
    EmitEvent,
    Patch,
    ReconcileResult,
    UpdateStatus,
)
from windlass.embedded.controllers.replicaset import RESOURCE as REPLICA_SETS
from windlass.embedded.controllers.replicaset import desired_replicas
from windlass.model.names.kubernetes import APPS_API_VERSION, LAST_APPLIED_ANNOTATION
from windlass.model.unstructured import Unstructured

RESOURCE = "deployments.apps"
REVISION_ANNOTATION = "deployment.kubernetes.io/revision"
REVISION_HISTORY_ANNOTATION = "deployment.kubernetes.io/revision-history"
_NOT_COPIED = (
    LAST_APPLIED_ANNOTATION,
    REVISION_ANNOTATION,
    REVISION_HISTORY_ANNOTATION,
    DESIRED_REPLICAS_ANNOTATION,
    MAX_REPLICAS_ANNOTATION,
)


def reconcile_deployment(
    deployment: Unstructured,
    replica_sets: Sequence[Unstructured],
    pods: Mapping[str, Sequence[Unstructured]],
    now: float,
) -> ReconcileResult:
    ordered = sorted(replica_sets, key=lambda replica_set: (created_at(replica_set), name_of(replica_set)))
    new = _current_replica_set(deployment, ordered)
    rollout = Rollout(deployment, new, [item for item in ordered if item is not new], pods)
    if is_deleting(deployment):
        return _with_status(rollout, now)
    paused = bool(deployment["spec"].get("paused"))
    if new is None and not paused:
        return _with_status(rollout, now, _create_new(rollout))
    if new is not None and not paused:
        _sync_revision(rollout, new)
    if paused or _was_scaled(deployment, ordered):
        rollout.scale_proportionally()
    else:
        assert new is not None, "created above"
        rollout.recreate_step(new) if _is_recreate(deployment) else rollout.rolling_update_step(new)
    if not paused:
        _delete_old_replica_sets(rollout)
    return _with_status(rollout, now)


def _is_recreate(deployment: Unstructured) -> bool:
    return bool((deployment["spec"].get("strategy") or {}).get("type") == "Recreate")


def revision_of(obj: Unstructured) -> int:
    return parse_decimal(annotations_of(obj).get(REVISION_ANNOTATION, "0")) or 0


def _current_replica_set(deployment: Unstructured, ordered: Sequence[Unstructured]) -> Unstructured | None:
    """The oldest ReplicaSet with the Deployment's template."""
    template = deployment["spec"]["template"]
    for replica_set in ordered:
        if same_template(replica_set["spec"]["template"], template):
            return replica_set
    return None


def _was_scaled(deployment: Unstructured, replica_sets: Sequence[Unstructured]) -> bool:
    desired = str(desired_replicas(deployment))
    return any(
        desired_replicas(item) > 0 and annotations_of(item).get(DESIRED_REPLICAS_ANNOTATION, desired) != desired
        for item in replica_sets
    )


def _create_new(rollout: Rollout) -> str:
    """Creates the ReplicaSet of the current template; returns its name, or "" after a hash collision."""
    plan, deployment, old = rollout.plan, rollout.deployment, rollout.old
    collisions = int((deployment.get("status") or {}).get("collisionCount") or 0)
    template = deployment["spec"]["template"]
    digest = template_hash(template, collisions)
    name = f"{name_of(deployment)}-{digest}"
    if any(name_of(replica_set) == name for replica_set in old):  # another template with the same hash
        status = {**deployment.get("status", {}), "collisionCount": collisions + 1}
        plan.add(UpdateStatus(RESOURCE, deployment, status))
        return ""
    revision = max(map(revision_of, old), default=0) + 1
    replicas = _initial_replicas(rollout)
    new = _replica_set(deployment, name, digest, revision, replicas)
    plan.add(_revision_patch(deployment, revision))
    plan.add(Create(REPLICA_SETS, deployment, new, suppress_event=True))
    if replicas:
        message = f"Scaled up replica set {name} from 0 to {replicas}"
        plan.add(EmitEvent(deployment, "ScalingReplicaSet", message))
    return name


def _initial_replicas(rollout: Rollout) -> int:
    desired, running = rollout.desired, sum(map(desired_replicas, rollout.old))
    if _is_recreate(rollout.deployment):
        return 0 if running or any(rollout.pods.values()) else desired
    surge, _ = surge_and_unavailable(rollout.deployment)
    return max(0, min(desired, desired + surge - running))


def _replica_set(deployment: Unstructured, name: str, digest: str, revision: int, replicas: int) -> Unstructured:
    spec = deployment["spec"]
    template = spec["template"]
    labels = {**((template.get("metadata") or {}).get("labels") or {}), POD_TEMPLATE_HASH: digest}
    selector = dict(spec["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), POD_TEMPLATE_HASH: digest}
    annotations = _copied_annotations(deployment)
    annotations |= {REVISION_ANNOTATION: str(revision), **size_annotations(deployment)}
    replica_set_spec: Unstructured = {
        "replicas": replicas,
        "selector": selector,
        "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
    }
    if spec.get("minReadySeconds"):
        replica_set_spec["minReadySeconds"] = spec["minReadySeconds"]
    return {
        "apiVersion": APPS_API_VERSION,
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": namespace_of(deployment),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": replica_set_spec,
    }


def _copied_annotations(deployment: Unstructured) -> dict[str, str]:
    return {key: value for key, value in annotations_of(deployment).items() if key not in _NOT_COPIED}


def _sync_revision(rollout: Rollout, new: Unstructured) -> None:
    """A template that is used again gets the newest revision number, and its old numbers go into the history."""
    deployment = rollout.deployment
    newest = max(map(revision_of, rollout.old), default=0) + 1
    revision = revision_of(new)
    annotations = _copied_annotations(deployment)
    if revision < newest:
        annotations[REVISION_ANNOTATION] = str(newest)
        if revision:
            history = annotations_of(new).get(REVISION_HISTORY_ANNOTATION, "").split(",")
            annotations[REVISION_HISTORY_ANNOTATION] = ",".join(filter(None, [*history, str(revision)]))
        revision = newest
    merge: Unstructured = {"metadata": {"annotations": annotations}}
    min_ready = int(deployment["spec"].get("minReadySeconds") or 0)
    if int(new["spec"].get("minReadySeconds") or 0) != min_ready:
        merge["spec"] = {"minReadySeconds": min_ready}
    rollout.plan.add(Patch(REPLICA_SETS, new, merge), _revision_patch(deployment, revision))


def _revision_patch(deployment: Unstructured, revision: int) -> Patch:
    annotations = {REVISION_ANNOTATION: str(revision)}
    return Patch(RESOURCE, deployment, {"metadata": {"annotations": annotations}}, "status")


def _delete_old_replica_sets(rollout: Rollout) -> None:
    """Deletes old ReplicaSets beyond revisionHistoryLimit, once the rollout is complete."""
    limit = rollout.deployment["spec"].get("revisionHistoryLimit")
    status = (rollout.new or {}).get("status") or {}
    if rollout.new is None or int(status.get("availableReplicas") or 0) < rollout.desired:
        return
    idle = [
        replica_set
        for replica_set in rollout.old
        if not desired_replicas(replica_set)
        and not (replica_set.get("status") or {}).get("replicas")
        and not is_deleting(replica_set)
        and labels_of(replica_set).get(POD_TEMPLATE_HASH)
    ]
    surplus = len(idle) - (10 if limit is None else int(limit))
    for replica_set in sorted(idle, key=revision_of)[: max(0, surplus)]:
        rollout.plan.add(Delete(REPLICA_SETS, replica_set))


def _with_status(rollout: Rollout, now: float, created: str = "") -> ReconcileResult:
    """The actions so far, and the status that follows from the ReplicaSets as they are."""
    plan = rollout.plan
    status, requeue_at = deployment_status(rollout, now, created)
    for action in plan.actions:
        if isinstance(action, UpdateStatus):  # a new collision count
            status["collisionCount"] = action.status["collisionCount"]
    plan.actions = [action for action in plan.actions if not isinstance(action, UpdateStatus)]
    plan.add(UpdateStatus(RESOURCE, rollout.deployment, status))
    plan.requeue(requeue_at)
    return plan.build()
