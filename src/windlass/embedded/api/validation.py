"""Validation of every kind: `creation_errors` and `update_errors`.

`machinery` passes decoded, defaulted objects and raises the result as a 422. For custom kinds only metadata is
checked here, the rest by their schema (`structural_schema`). CustomResourceDefinitions are in `crds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from windlass.embedded.api import validate_classes as classes
from windlass.embedded.api import validate_config as config
from windlass.embedded.api import validate_networking as networks
from windlass.embedded.api import validate_nodes as nodes
from windlass.embedded.api import validate_quotas as quotas
from windlass.embedded.api import validate_rbac as roles
from windlass.embedded.api import validate_updates as updates
from windlass.embedded.api import validate_volumes as volumes
from windlass.embedded.api import validate_workloads as workloads
from windlass.embedded.api.crds import definition_errors, definition_update_errors
from windlass.embedded.api.errors import FieldError, forbidden_field, invalid
from windlass.embedded.api.events import event_errors
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.validate_metadata import metadata_errors
from windlass.embedded.api.validate_pod import pod_spec_errors
from windlass.model.unstructured import Unstructured

_RBAC = "rbac.authorization.k8s.io"
_STORAGE = "storage.k8s.io"


def creation_errors(kind: Kind, obj: Unstructured) -> list[FieldError]:
    """All errors of a new object."""
    errors = list(metadata_errors(kind, obj["metadata"]))
    errors += _content_errors(kind, obj)
    return errors


def update_errors(kind: Kind, new: Unstructured, old: Unstructured, subresource: str = "") -> list[FieldError]:
    """All errors of a new version of an object."""
    errors = list(metadata_errors(kind, new["metadata"]))
    errors += _metadata_update_errors(new["metadata"], old["metadata"])
    if subresource in ("status", "finalize"):
        if kind.kind == "Node" and not kind.custom:
            errors += nodes.node_errors(new)
        return errors
    errors += _content_errors(kind, new)
    check = _UPDATE_CHECKS.get((kind.group, kind.kind))
    if check is not None and not kind.custom:
        errors += check(new, old)
    return errors


def _content_errors(kind: Kind, obj: Unstructured) -> Iterable[FieldError]:
    check = None if kind.custom else _CREATE_CHECKS.get((kind.group, kind.kind))
    return check(obj) if check is not None else ()


def _metadata_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    if new.get("uid") not in (None, "", old.get("uid")):
        yield invalid("metadata.uid", new["uid"], "field is immutable")
    if old.get("deletionTimestamp"):
        known = old.get("finalizers") or ()
        added = [finalizer for finalizer in new.get("finalizers") or () if finalizer not in known]
        if added:
            names = ", ".join(f'"{finalizer}"' for finalizer in added)
            yield forbidden_field(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{names}}}",
            )


def _pod_errors(obj: Unstructured) -> Iterator[FieldError]:
    return pod_spec_errors(obj["spec"])


_CREATE_CHECKS: dict[tuple[str, str], Callable[[Unstructured], Iterable[FieldError]]] = {
    ("", "Pod"): _pod_errors,
    ("", "ConfigMap"): config.config_map_errors,
    ("", "ReplicationController"): workloads.replication_controller_errors,
    ("", "Endpoints"): networks.endpoints_errors,
    ("discovery.k8s.io", "EndpointSlice"): networks.endpoint_slice_errors,
    ("networking.k8s.io", "Ingress"): networks.ingress_errors,
    ("networking.k8s.io", "NetworkPolicy"): networks.network_policy_errors,
    ("apps", "ControllerRevision"): workloads.controller_revision_errors,
    (_STORAGE, "CSINode"): volumes.csi_node_errors,
    (_STORAGE, "VolumeAttachment"): volumes.volume_attachment_errors,
    ("", "Secret"): config.secret_errors,
    ("", "Service"): networks.service_errors,
    ("", "ResourceQuota"): quotas.quota_errors,
    ("", "LimitRange"): quotas.limit_range_errors,
    ("", "Node"): nodes.node_errors,
    ("", "PersistentVolumeClaim"): volumes.claim_errors,
    ("", "PersistentVolume"): volumes.volume_errors,
    ("", "Event"): event_errors,
    ("apps", "Deployment"): workloads.deployment_errors,
    ("apps", "ReplicaSet"): workloads.replica_set_errors,
    ("apps", "DaemonSet"): workloads.daemon_set_errors,
    ("apps", "StatefulSet"): workloads.stateful_set_errors,
    ("batch", "Job"): workloads.job_errors,
    ("batch", "CronJob"): workloads.cron_job_errors,
    ("policy", "PodDisruptionBudget"): workloads.budget_errors,
    ("coordination.k8s.io", "Lease"): nodes.lease_errors,
    ("scheduling.k8s.io", "PriorityClass"): classes.priority_class_errors,
    ("node.k8s.io", "RuntimeClass"): classes.runtime_class_errors,
    (_STORAGE, "StorageClass"): volumes.storage_class_errors,
    (_RBAC, "Role"): roles.role_errors,
    (_RBAC, "ClusterRole"): roles.role_errors,
    (_RBAC, "RoleBinding"): roles.binding_errors,
    (_RBAC, "ClusterRoleBinding"): roles.binding_errors,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): definition_errors,
}

_UPDATE_CHECKS: dict[tuple[str, str], Callable[[Unstructured, Unstructured], Iterable[FieldError]]] = {
    ("", "Pod"): updates.pod_update_errors,
    ("", "ConfigMap"): updates.data_update_errors,
    ("", "Secret"): updates.secret_update_errors,
    ("", "Service"): updates.service_update_errors,
    ("", "Node"): updates.node_update_errors,
    ("", "ResourceQuota"): updates.quota_update_errors,
    ("", "PersistentVolumeClaim"): updates.claim_update_errors,
    ("apps", "Deployment"): updates.selector_update_errors,
    ("apps", "ReplicaSet"): updates.selector_update_errors,
    ("apps", "DaemonSet"): updates.selector_update_errors,
    ("apps", "StatefulSet"): updates.stateful_set_update_errors,
    ("batch", "Job"): updates.job_update_errors,
    ("scheduling.k8s.io", "PriorityClass"): updates.priority_class_update_errors,
    ("node.k8s.io", "RuntimeClass"): updates.runtime_class_update_errors,
    (_STORAGE, "StorageClass"): updates.storage_class_update_errors,
    (_RBAC, "RoleBinding"): updates.binding_update_errors,
    (_RBAC, "ClusterRoleBinding"): updates.binding_update_errors,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): definition_update_errors,
}
