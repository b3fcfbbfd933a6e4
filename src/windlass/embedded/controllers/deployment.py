"""The Deployment controller: one ReplicaSet per template, and the rollout from one to the next.

`reconcile_deployment` is pure; `workload_controllers` calls it. Rolling steps are in `deployment_rolling`, status
and conditions in `deployment_status`. `kubectl rollout` relies on the revisions, pause and progress condition
written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.embedded.controllers.deployment_rolling import (
    DESIRED_REPLICAS_ANNOTATION,
    MAX_REPLICAS_ANNOTATION,
    recreate_step,
    rolling_update_step,
    scale_proportionally,
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
    ReconcileResultBuilder,
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
    """`pods` are those of each ReplicaSet by UID; only the Recreate strategy needs them."""
    plan = ReconcileResultBuilder()
    ordered = sorted(replica_sets, key=lambda replica_set: (created_at(replica_set), name_of(replica_set)))
    new = _current_replica_set(deployment, ordered)
    old = [replica_set for replica_set in ordered if replica_set is not new]
    if is_deleting(deployment):
        _write_status(plan, deployment, new, old, now)
        return plan.build()
    paused = bool(deployment["spec"].get("paused"))
    if new is None and not paused:
        created = _create_new(plan, deployment, old, pods)
        _write_status(plan, deployment, None, old, now, created)
        return plan.build()
    if new is not None and not paused:
        _sync_revision(plan, deployment, new, old)
    if paused or _was_scaled(deployment, ordered):
        scale_proportionally(plan, deployment, new, old)
    elif (deployment["spec"].get("strategy") or {}).get("type") == "Recreate":
        assert new is not None, "created above"
        recreate_step(plan, deployment, new, old, pods)
    else:
        assert new is not None, "created above"
        rolling_update_step(plan, deployment, new, old)
    if not paused:
        _delete_old_replica_sets(plan, deployment, new, old)
    _write_status(plan, deployment, new, old, now)
    return plan.build()


def revision_of(obj: Unstructured) -> int:
    text = annotations_of(obj).get(REVISION_ANNOTATION, "0")
    return int(text) if text.isascii() and text.isdigit() else 0


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
        desired_replicas(item) > 0
        and annotations_of(item).get(DESIRED_REPLICAS_ANNOTATION, desired) != desired
        for item in replica_sets
    )


def _create_new(
    plan: ReconcileResultBuilder,
    deployment: Unstructured,
    old: Sequence[Unstructured],
    pods: Mapping[str, Sequence[Unstructured]],
) -> str:
    """Creates the ReplicaSet of the current template; returns its name, or "" after a hash collision."""
    collisions = int((deployment.get("status") or {}).get("collisionCount") or 0)
    template = deployment["spec"]["template"]
    digest = template_hash(template, collisions)
    name = f"{name_of(deployment)}-{digest}"
    if any(name_of(replica_set) == name for replica_set in old):  # another template with the same hash
        status = {**deployment.get("status", {}), "collisionCount": collisions + 1}
        plan.add(UpdateStatus(RESOURCE, deployment, status))
        return ""
    revision = max(map(revision_of, old), default=0) + 1
    is_recreate = (deployment["spec"].get("strategy") or {}).get("type") == "Recreate"
    replicas = _initial_replicas(deployment, old, is_recreate, pods)
    new = _replica_set(deployment, name, digest, revision, replicas)
    plan.add(_revision_patch(deployment, revision))
    plan.add(Create(REPLICA_SETS, deployment, new, suppress_event=True))
    if replicas:
        message = f"Scaled up replica set {name} from 0 to {replicas}"
        plan.add(EmitEvent(deployment, "ScalingReplicaSet", message))
    return name


def _initial_replicas(
    deployment: Unstructured,
    old: Sequence[Unstructured],
    is_recreate: bool,
    pods: Mapping[str, Sequence[Unstructured]],
) -> int:
    desired = desired_replicas(deployment)
    running = sum(desired_replicas(replica_set) for replica_set in old)
    if is_recreate:
        return 0 if running or any(pods.values()) else desired
    surge, _ = surge_and_unavailable(deployment)
    return max(0, min(desired, desired + surge - running))


def _replica_set(
    deployment: Unstructured, name: str, digest: str, revision: int, replicas: int
) -> Unstructured:
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


def _sync_revision(
    plan: ReconcileResultBuilder, deployment: Unstructured, new: Unstructured, old: Sequence[Unstructured]
) -> None:
    """A template that is used again gets the newest revision number, and its old numbers go into the history."""
    newest = max(map(revision_of, old), default=0) + 1
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
    plan.add(Patch(REPLICA_SETS, new, merge), _revision_patch(deployment, revision))


def _revision_patch(deployment: Unstructured, revision: int) -> Patch:
    annotations = {REVISION_ANNOTATION: str(revision)}
    return Patch(RESOURCE, deployment, {"metadata": {"annotations": annotations}}, "status")


def _delete_old_replica_sets(
    plan: ReconcileResultBuilder,
    deployment: Unstructured,
    new: Unstructured | None,
    old: Sequence[Unstructured],
) -> None:
    """Deletes old ReplicaSets beyond revisionHistoryLimit, once the rollout is complete."""
    limit = deployment["spec"].get("revisionHistoryLimit")
    status = (new or {}).get("status") or {}
    if new is None or int(status.get("availableReplicas") or 0) < desired_replicas(deployment):
        return
    idle = [
        replica_set
        for replica_set in old
        if not desired_replicas(replica_set)
        and not (replica_set.get("status") or {}).get("replicas")
        and not is_deleting(replica_set)
        and labels_of(replica_set).get(POD_TEMPLATE_HASH)
    ]
    surplus = len(idle) - (10 if limit is None else int(limit))
    for replica_set in sorted(idle, key=revision_of)[: max(0, surplus)]:
        plan.add(Delete(REPLICA_SETS, replica_set))


def _write_status(
    plan: ReconcileResultBuilder,
    deployment: Unstructured,
    new: Unstructured | None,
    old: Sequence[Unstructured],
    now: float,
    created: str = "",
) -> None:
    status, requeue_at = deployment_status(deployment, new, old, now, created)
    for action in plan.actions:
        if isinstance(action, UpdateStatus):  # a new collision count
            status["collisionCount"] = action.status["collisionCount"]
    plan.actions = [action for action in plan.actions if not isinstance(action, UpdateStatus)]
    plan.add(UpdateStatus(RESOURCE, deployment, status))
    plan.requeue(requeue_at)
