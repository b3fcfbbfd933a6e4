"""Objects that every cluster has from the start: system namespaces, priority classes, roles, the given CRDs.

`embedded_cluster` calls `bootstrap` once, before the server listens. Existing objects are not changed.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.embedded.api.errors import ApiError
from windlass.embedded.bootstrap_roles import bootstrap_roles
from windlass.embedded.controllers.client import Client
from windlass.model.names.kubernetes import SCHEDULING_API_VERSION
from windlass.model.unstructured import Unstructured

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease", "windlass-system")
CRDS = "customresourcedefinitions.apiextensions.k8s.io"
_CLASSES = (
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
)


def bootstrap(client: Client, crds: Iterable[Unstructured] = ()) -> None:
    for name in SYSTEM_NAMESPACES:
        create_if_missing(client, "namespaces", "", _named("v1", "Namespace", name))
    for name, value, description in _CLASSES:
        priority_class = _named(SCHEDULING_API_VERSION, "PriorityClass", name)
        priority_class |= {"value": value, "globalDefault": False, "description": description}
        create_if_missing(client, "priorityclasses.scheduling.k8s.io", "", priority_class)
    for resource, role in bootstrap_roles():
        create_if_missing(client, resource, "", role)
    for crd in crds:
        create_if_missing(client, CRDS, "", crd)
    create_if_missing(client, "services", "default", _api_service())


def create_if_missing(client: Client, resource: str, namespace: str, obj: Unstructured) -> None:
    try:
        client.create(resource, namespace, obj)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


def _named(api_version: str, kind: str, name: str) -> Unstructured:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}


def _api_service() -> Unstructured:
    """The Service `kubernetes`; nothing listens on its address."""
    service = _named("v1", "Service", "kubernetes")
    service["metadata"]["labels"] = {"component": "apiserver", "provider": "kubernetes"}
    service["spec"] = {
        "type": "ClusterIP",
        "clusterIP": "10.96.0.1",
        "clusterIPs": ["10.96.0.1"],
        "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
    }
    return service
