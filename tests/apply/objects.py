"""Kubernetes and Kueue objects as trees, for the tests of `apply` and `scheduler`: each with what a test needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.kube.resources import WATCHED_KINDS
from windlass.model.codec import decode_object
from windlass.model.names.kubernetes import POLICY_API_VERSION
from windlass.model.names.kueue import KUEUE_API_VERSION, QUEUE_NAME_LABEL
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.unstructured import Unstructured

NAMESPACE = "team"
CREATED = "2026-01-01T00:00:00Z"


def plural_of(tree: Unstructured) -> str:
    group = tree["apiVersion"].rpartition("/")[0]
    return next(kind.plural for kind in WATCHED_KINDS if (kind.kind, kind.group) == (tree["kind"], group))


def decoded(tree: Unstructured) -> Any:
    return decode_object(tree)


def node(name: str, *, gpus: int = 8, labels: Mapping[str, str] | None = None) -> Unstructured:
    status = {
        "allocatable": {GPU_RESOURCE: str(gpus), "cpu": "64", "memory": "256Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return _object("v1", "Node", name, labels=labels, namespace="") | {"status": status}


def pod(
    name: str,
    *,
    on: str = "",
    gpus: int = 1,
    priority: int = 0,
    scheduler: str = "windlass",
    gates: Sequence[str] = (),
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> Unstructured:
    made: Unstructured = {
        "schedulerName": scheduler,
        "priority": priority,
        "containers": [container(gpus)],
        **(spec or {}),
    }
    if on:
        made["nodeName"] = on
    if gates:
        made["schedulingGates"] = [{"name": gate} for gate in gates]
    tree = _object("v1", "Pod", name, **metadata) | {"spec": made}
    return tree | {"status": dict(status)} if status else tree


def gang_pod(name: str, gang: str, size: int = 2, **more: Any) -> Unstructured:
    """A member of a plain pod group of Kueue."""
    labels = {"kueue.x-k8s.io/pod-group-name": gang}
    annotations = {"kueue.x-k8s.io/pod-group-total-count": str(size)}
    return pod(name, labels=labels, annotations=annotations, **more)


def container(gpus: int) -> Unstructured:
    return {"name": "main", "resources": {"limits": {GPU_RESOURCE: str(gpus)}} if gpus else {}}


def template(gpus: int = 1, scheduler: str = "windlass", **spec: Any) -> Unstructured:
    return {"spec": {"schedulerName": scheduler, "containers": [container(gpus)], **spec}}


def job(
    name: str,
    *,
    gpus: int = 1,
    parallelism: int = 1,
    queue: str = "main",
    suspend: bool = True,
    scheduler: str = "windlass",
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    **metadata: Any,
) -> Unstructured:
    queue_label = {QUEUE_NAME_LABEL: queue} if queue else {}
    made = {
        "suspend": suspend,
        "parallelism": parallelism,
        "template": template(gpus, scheduler),
        **(spec or {}),
    }
    tree = _object("batch/v1", "Job", name, labels={**queue_label, **(labels or {})}, **metadata)
    return tree | {"spec": made, "status": dict(status or {})}


def workload(
    name: str,
    *,
    gpus: int = 1,
    count: int = 1,
    queue: str = "main",
    priority: int = 0,
    active: bool = True,
    owner: Unstructured | None = None,
    status: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> Unstructured:
    if owner is not None:
        metadata["ownerReferences"] = [reference(owner)]
    pod_sets = [{"name": "main", "count": count, "template": template(gpus)}]
    spec = {"queueName": queue, "priority": priority, "active": active, "podSets": pod_sets}
    tree = _object(KUEUE_API_VERSION, "Workload", name, **metadata)
    return tree | {"spec": spec, "status": dict(status or {})}


def admission(queue: str = "cluster", *, gpus: int = 1, count: int = 1, flavor: str = "default") -> Unstructured:
    """The status of a Workload that holds quota."""
    assignment = {
        "name": "main",
        "count": count,
        "flavors": {GPU_RESOURCE: flavor},
        "resourceUsage": {GPU_RESOURCE: str(gpus * count)},
    }
    return {"clusterQueue": queue, "podSetAssignments": [assignment]}


def reference(owner: Unstructured, *, controller: bool = True) -> Unstructured:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": controller,
    }


def queues(
    *, quota: int = 8, local: str = "main", cluster: str = "cluster", **cluster_queue: Any
) -> list[Unstructured]:
    """A LocalQueue, its ClusterQueue with so many GPUs, and its flavor."""
    flavor = {"name": "default", "resources": [{"name": GPU_RESOURCE, "nominalQuota": quota}]}
    groups = [{"coveredResources": [GPU_RESOURCE], "flavors": [flavor]}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups, **cluster_queue}
    return [
        _object(KUEUE_API_VERSION, "ResourceFlavor", "default", namespace="") | {"spec": {}},
        _object(KUEUE_API_VERSION, "ClusterQueue", cluster, namespace="") | {"spec": spec},
        local_queue(local, cluster),
    ]


def local_queue(name: str, cluster: str = "cluster", **spec: Any) -> Unstructured:
    return _object(KUEUE_API_VERSION, "LocalQueue", name) | {"spec": {"clusterQueue": cluster, **spec}}


def budget(name: str, labels: Mapping[str, str], *, allowed: int = 0) -> Unstructured:
    tree = _object(POLICY_API_VERSION, "PodDisruptionBudget", name)
    return tree | {
        "spec": {"selector": {"matchLabels": dict(labels)}, "minAvailable": 1},
        "status": {"disruptionsAllowed": allowed},
    }


def custom(api_version: str, kind: str, name: str, **fields: Any) -> Unstructured:
    """An object of any other kind; `fields` go beside its metadata."""
    metadata = fields.pop("metadata", {})
    return _object(api_version, kind, name, **metadata) | fields


def condition(tree: Unstructured, kind: str) -> Unstructured:
    """The condition of an object; empty if it has none of this type."""
    found = tree.get("status", {}).get("conditions") or ()
    return next((known for known in found if known["type"] == kind), {})


def _object(
    api_version: str,
    kind: str,
    name: str,
    *,
    namespace: str = NAMESPACE,
    labels: Mapping[str, str] | None = None,
    **metadata: Any,
) -> Unstructured:
    meta: Unstructured = {"name": name, "uid": f"uid-{name}", "creationTimestamp": CREATED, **metadata}
    if namespace:
        meta["namespace"] = namespace
    if labels:
        meta["labels"] = dict(labels)
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}
