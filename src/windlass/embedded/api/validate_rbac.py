"""Validation of roles and bindings; `server.authorization` enforces them.

Called by `validation` with decoded, defaulted objects. Messages are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.api.errors import FieldError, invalid, required
from windlass.embedded.api.field_checks import choice_errors, required_errors
from windlass.model.unstructured import Unstructured

_RBAC = "rbac.authorization.k8s.io"


def role_errors(obj: Unstructured) -> Iterator[FieldError]:
    for index, rule in enumerate(obj.get("rules") or ()):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            yield required(f"{path}.verbs", "verbs must contain at least one value")
        if rule.get("nonResourceURLs"):
            if rule.get("resources") or rule.get("apiGroups") or rule.get("resourceNames"):
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                yield invalid(f"{path}.nonResourceURLs", rule["nonResourceURLs"], detail)
            continue
        if not rule.get("apiGroups"):
            yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield required(f"{path}.resources", "resource rules must supply at least one resource")


def binding_errors(obj: Unstructured) -> Iterator[FieldError]:
    role = obj["roleRef"]
    yield from choice_errors(role, "apiGroup", "roleRef", (_RBAC,))
    kinds = ("ClusterRole",) if obj["kind"] == "ClusterRoleBinding" else ("Role", "ClusterRole")
    yield from choice_errors(role, "kind", "roleRef", kinds)
    yield from required_errors(role, "roleRef", "name")
    known = ("ServiceAccount", "User", "Group")
    is_cluster_scoped = obj["kind"] == "ClusterRoleBinding"
    for index, subject in enumerate(obj.get("subjects") or ()):
        path = f"subjects[{index}]"
        yield from required_errors(subject, path, "name")
        yield from choice_errors(subject, "kind", path, known)
        if is_cluster_scoped and subject.get("kind") == "ServiceAccount":
            yield from required_errors(subject, path, "namespace")
