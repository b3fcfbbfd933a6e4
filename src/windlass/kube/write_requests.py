"""Builds the write requests that Windlass sends to an API server; its RBAC role has to allow exactly these.

Called by `apply`; writes to owners of pods are in `apply.owners`, and no other module writes. Objects are named by key
(`namespace/name`), and by uid where a new object of the same name must not be mistaken for the old one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.kube.request import APPLY_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Request, dry_run
from windlass.kube.resources import NAMESPACES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, Resource
from windlass.model.names.kubernetes import POLICY_API_VERSION, SELECTED_NODE_ANNOTATION

FIELD_MANAGER = "windlass"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
"""Allows the volume controller to release the volume when its claim is deleted."""


def bind_pod(key: str, uid: str, node: str, annotations: Mapping[str, str]) -> Request:
    """The `binding` subresource; its annotations end up on the pod."""
    namespace, _, name = key.partition("/")
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid}
    if annotations:
        metadata["annotations"] = dict(annotations)
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    return Request("POST", PODS.path(key, "binding"), body=body)


def patch_pod_condition(key: str, uid: str, condition: Mapping[str, Any], nominated_node: str | None = None) -> Request:
    """Sets one condition of a pod and, unless None, `status.nominatedNodeName` (empty clears it)."""
    status: dict[str, Any] = {"conditions": [dict(condition)]}
    if nominated_node is not None:
        status["nominatedNodeName"] = nominated_node or None
    body = {"metadata": {"uid": uid}, "status": status}
    return Request("PATCH", PODS.path(key, "status"), body=body, content_type=STRATEGIC_PATCH)


def evict_pod(key: str, uid: str, *, is_dry_run: bool = False) -> Request:
    """The Eviction API: it respects PodDisruptionBudgets and sets the `DisruptionTarget` condition."""
    namespace, _, name = key.partition("/")
    body = {
        "apiVersion": POLICY_API_VERSION,
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    request = Request("POST", PODS.path(key, "eviction"), body=body, retries_on_429=False)
    return dry_run(request) if is_dry_run else request


def delete_pod(key: str, uid: str) -> Request:
    """Whatever its PodDisruptionBudgets say."""
    return Request("DELETE", PODS.path(key), body={"preconditions": {"uid": uid}})


def remove_scheduling_gates(
    key: str, uid: str, kept: Sequence[str], changes: Mapping[str, Any] | None = None
) -> Request:
    """Sets the pod's scheduling gates to those that are kept, and further fields of its spec: only as long as it is
    gated may it become more selective."""
    spec = {"schedulingGates": [{"name": name} for name in kept], **(changes or {})}
    body = {"metadata": {"uid": uid}, "spec": spec}
    return Request("PATCH", PODS.path(key), body=body, content_type=MERGE_PATCH)


def annotate_selected_node(claim: str, node: str) -> Request:
    """Tells the volume's provisioner where its first consumer will be."""
    body = {"metadata": {"annotations": {SELECTED_NODE_ANNOTATION: node}}}
    return Request("PATCH", PERSISTENT_VOLUME_CLAIMS.path(claim), body=body, content_type=MERGE_PATCH)


def prebind_volume(volume: str, version: str, claim: str, uid: str) -> Request:
    """Sets the volume's `claimRef`, as kube-scheduler does; the volume controller then binds the two. Fails with 409 if
    the volume has changed."""
    namespace, _, name = claim.partition("/")
    kept = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    kept |= {"namespace": namespace, "name": name, "uid": uid}
    body = {
        "metadata": {"resourceVersion": version, "annotations": {BOUND_BY_CONTROLLER: "yes"}},
        "spec": {"claimRef": kept},
    }
    return Request("PATCH", PERSISTENT_VOLUMES.path(volume), body=body, content_type=MERGE_PATCH)


def create_object(resource: Resource, namespace: str, body: Mapping[str, Any]) -> Request:
    return Request("POST", resource.namespace_collection(namespace), body=dict(body))


def apply_object(resource: Resource, key: str, body: Mapping[str, Any]) -> Request:
    """Server-side apply with force: creates the object or takes over these fields."""
    query = (("fieldManager", FIELD_MANAGER), ("force", "true"))
    return Request("PATCH", resource.path(key), query, dict(body), APPLY_PATCH)


def create_namespace(name: str) -> Request:
    """The only write that the installed role does not allow: an installed scheduler has its namespace."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    return Request("POST", NAMESPACES.collection, body=body)


def patch_object(resource: Resource, key: str, fields: Mapping[str, Any], version: str) -> Request:
    """Merge-patches a custom object, only if it still has that resourceVersion; lists are replaced whole."""
    body = {"metadata": {"resourceVersion": version}, **fields}
    return Request("PATCH", resource.path(key), body=body, content_type=MERGE_PATCH)


def patch_by_uid(resource: Resource, key: str, uid: str, fields: Mapping[str, Any]) -> Request:
    """Merge-patches a custom object, whatever its version, unless another one has its name by now."""
    return Request("PATCH", resource.path(key), body={"metadata": {"uid": uid}, **fields}, content_type=MERGE_PATCH)


def patch_status(resource: Resource, key: str, status: Mapping[str, Any], version: str = "") -> Request:
    """Merge-patches a custom object's status; lists are replaced whole. With a version, only if it still has it."""
    body: dict[str, Any] = {"status": dict(status)}
    if version:
        body["metadata"] = {"resourceVersion": version}
    return Request("PATCH", resource.path(key, "status"), body=body, content_type=MERGE_PATCH)
