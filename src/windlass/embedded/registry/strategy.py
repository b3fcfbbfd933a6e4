"""What is particular to a kind when it is written: who owns its status, when its generation moves, what it starts with.

Called by `registry.writer` with trees that it may change. Which kinds behave how is the behaviour of the Kubernetes API
server (Apache-2.0).
"""

from __future__ import annotations

from typing import Any

from windlass.embedded.api.kinds import Kind

Tree = dict[str, Any]

NO_BLIND_UPDATE = frozenset(
    {
        "leases.coordination.k8s.io",
        "poddisruptionbudgets.policy",
        "runtimeclasses.node.k8s.io",
        "csidrivers.storage.k8s.io",
        "csinodes.storage.k8s.io",
        "volumeattachments.storage.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
    }
)
"""An update must say which version it replaces; so must one of a custom object."""
PUT_CREATES = frozenset(
    {
        "leases.coordination.k8s.io",
        "runtimeclasses.node.k8s.io",
        "roles.rbac.authorization.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
        "clusterroles.rbac.authorization.k8s.io",
        "clusterrolebindings.rbac.authorization.k8s.io",
        "limitranges",
        "events",
        "services",
        "endpoints",
    }
)
RETURNS_DELETED = frozenset(
    {
        "pods",
        "services",
        "serviceaccounts",
        "namespaces",
        "resourcequotas",
        "persistentvolumes",
        "persistentvolumeclaims",
        "podtemplates",
        "csidrivers.storage.k8s.io",
        "csinodes.storage.k8s.io",
        "storageclasses.storage.k8s.io",
        "volumeattachments.storage.k8s.io",
    }
)
"""A deletion is answered with the object; with a Status for all others."""
_GENERATION = frozenset(
    {
        "pods",
        "deployments.apps",
        "replicasets.apps",
        "statefulsets.apps",
        "daemonsets.apps",
        "jobs.batch",
        "cronjobs.batch",
        "poddisruptionbudgets.policy",
        "customresourcedefinitions.apiextensions.k8s.io",
        "priorityclasses.scheduling.k8s.io",
    }
)
_STATUS_ON_CREATE = frozenset({"nodes", "resourcequotas"})
"""Kinds whose status may come with their creation: a kubelet registers a node with its capacity."""
_BORN: dict[str, Tree] = {
    "pods": {"phase": "Pending"},
    "namespaces": {"phase": "Active"},
    "persistentvolumeclaims": {"phase": "Pending"},
    "persistentvolumes": {"phase": "Pending"},
    "services": {"loadBalancer": {}},
}


def may_update_blindly(kind: Kind) -> bool:
    return not kind.custom and kind.resource not in NO_BLIND_UPDATE


def prepare_create(kind: Kind, tree: Tree) -> None:
    """The status that a new object has, and its first generation."""
    metadata = tree["metadata"]
    metadata.pop("generation", None)
    if kind.custom:
        metadata["generation"] = 1
        if kind.has("status"):
            tree.pop("status", None)
        return
    if kind.resource in _GENERATION:
        metadata["generation"] = 1
    if kind.has("status") and kind.resource not in _STATUS_ON_CREATE:
        tree["status"] = {}
    born = _BORN.get(kind.resource)
    if born is not None:
        tree["status"] = dict(born)
    if kind.resource == "pods":
        tree["status"]["qosClass"] = qos_class(tree.get("spec") or {})
    elif kind.resource == "namespaces":
        spec = tree.setdefault("spec", {})
        if "kubernetes" not in (spec.get("finalizers") or []):
            spec["finalizers"] = [*(spec.get("finalizers") or []), "kubernetes"]
        tree["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = tree["metadata"]["name"]


def prepare_update(kind: Kind, tree: Tree, old: Tree, subresource: str) -> None:
    """Which half of the object this write may change; the generation moves where what is wanted has changed."""
    if subresource == "status":
        _status_only(kind, tree, old)
    elif subresource == "finalize":
        finalizers = (tree.get("spec") or {}).get("finalizers")
        tree["spec"] = {**(old.get("spec") or {}), "finalizers": finalizers or []}
        _keep(tree, old, "status")
    elif kind.has("status"):
        _keep(tree, old, "status")
        if kind.resource == "namespaces":
            tree["spec"] = {
                **(tree.get("spec") or {}),
                "finalizers": (old.get("spec") or {}).get("finalizers", []),
            }
    if _wanted_changed(kind, tree, old, subresource):
        tree["metadata"]["generation"] = int(old["metadata"].get("generation", 0)) + 1


def _status_only(kind: Kind, tree: Tree, old: Tree) -> None:
    """Everything but the status stays, and of metadata what a status writer may touch."""
    status = tree.get("status")
    metadata = dict(tree["metadata"])
    tree.clear()
    tree.update(old)
    if status is None:
        tree.pop("status", None)
    else:
        tree["status"] = status
    kept = dict(old["metadata"])
    changeable: tuple[str, ...] = ("managedFields", "resourceVersion")
    if not kind.custom:
        changeable = ("labels", "annotations", "finalizers", "ownerReferences", *changeable)
    for field in changeable:
        if field in metadata:
            kept[field] = metadata[field]
        else:
            kept.pop(field, None)
    tree["metadata"] = kept


def _wanted_changed(kind: Kind, tree: Tree, old: Tree, subresource: str) -> bool:
    if subresource in ("status", "finalize"):
        return False
    if kind.custom:
        ignored = {"metadata", "status"} if kind.has("status") else {"metadata"}
        return any(tree.get(name) != old.get(name) for name in {*tree, *old} - ignored)
    if kind.resource not in _GENERATION:
        return False
    if kind.resource == "deployments.apps":
        notes = tree["metadata"].get("annotations"), old["metadata"].get("annotations")
        if (notes[0] or {}) != (notes[1] or {}):
            return True
    return bool(tree.get("spec") != old.get("spec"))


def _keep(tree: Tree, old: Tree, field: str) -> None:
    if field in old:
        tree[field] = old[field]
    else:
        tree.pop(field, None)


def qos_class(spec: Tree) -> str:
    """Guaranteed, Burstable or BestEffort, by requests and limits of CPU and memory."""
    guaranteed, any_at_all = True, False
    for container in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
        resources = container.get("resources") or {} if isinstance(container, dict) else {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            request, limit = requests.get(name), limits.get(name)
            any_at_all = any_at_all or _some(request) or _some(limit)
            if not _some(limit) or (request is not None and request != limit):
                guaranteed = False
    if not any_at_all:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _some(quantity: object) -> bool:
    return quantity is not None and str(quantity) not in ("0", "")
