"""Kinds that behave differently when they are updated or deleted, as in Kubernetes' API server (Apache-2.0).

Used by `preconditions`, `writer` and the server. How status and generation are handled is in `api.strategy`.
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
"""An update has to give the version that it replaces; so do updates of custom objects."""
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
"""A deletion returns the object; for all other kinds a Status."""


def allows_unconditional_update(kind: Kind) -> bool:
    return not kind.custom and kind.resource not in NO_UNCONDITIONAL_UPDATE
