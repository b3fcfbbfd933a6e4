"""Which kinds behave differently when they are written or deleted, as in the Kubernetes API server (Apache-2.0).

Asked by `registry.writer` and by the server. What becomes of an object's status and generation is `api.strategy`'s.
"""

from __future__ import annotations

from windlass.embedded.api.kinds import Kind

NO_UNCONDITIONAL_UPDATE = frozenset(
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
CREATE_ON_UPDATE = frozenset(
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
RETURN_DELETED_OBJECT = frozenset(
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


def allows_unconditional_update(kind: Kind) -> bool:
    return not kind.custom and kind.resource not in NO_UNCONDITIONAL_UPDATE
