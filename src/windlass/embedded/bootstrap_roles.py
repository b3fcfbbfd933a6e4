"""The roles that every cluster has: cluster-admin, admin, edit, view, and what every authenticated user may do.

`bootstrap` creates them where they are missing. `admin`, `edit` and `view` are aggregated from parts, as in Kubernetes,
so that a ClusterRole with the label `rbac.authorization.k8s.io/aggregate-to-view` adds to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windlass.model.unstructured import Unstructured

RBAC_VERSION = "rbac.authorization.k8s.io/v1"
_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_DEFAULTS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_WORK = (
    ("", ["configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "serviceaccounts", "services"]),
    ("apps", ["daemonsets", "deployments", "deployments/scale", "replicasets", "replicasets/scale", "statefulsets"]),
    ("apps", ["statefulsets/scale", "controllerrevisions"]),
    ("batch", ["cronjobs", "jobs"]),
    ("networking.k8s.io", ["ingresses", "networkpolicies"]),
    ("policy", ["poddisruptionbudgets"]),
)
_SEEN = (
    ("", ["endpoints", "events", "limitranges", "namespaces", "namespaces/status", "pods/log", "pods/status"]),
    ("", ["persistentvolumeclaims/status", "resourcequotas", "resourcequotas/status", "services/status"]),
    ("apps", ["daemonsets/status", "deployments/status", "replicasets/status", "statefulsets/status"]),
    ("batch", ["cronjobs/status", "jobs/status"]),
    ("discovery.k8s.io", ["endpointslices"]),
    ("policy", ["poddisruptionbudgets/status"]),
)
_PATHS = ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version"]


def bootstrap_roles() -> Iterator[tuple[str, Unstructured]]:
    """(resource, object)."""
    everything = [_rule(["*"], ["*"], ["*"]), {"verbs": ["*"], "nonResourceURLs": ["*"]}]
    discovery = [{"verbs": ["get"], "nonResourceURLs": [*_PATHS, "/version/"]}]
    reviews = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]
    basic = [
        _rule(["create"], ["authorization.k8s.io"], reviews),
        _rule(["create"], ["authentication.k8s.io"], ["selfsubjectreviews"]),
    ]
    for name, rules, group in (
        ("cluster-admin", everything, "system:masters"),
        ("system:discovery", discovery, "system:authenticated"),
        ("system:basic-user", basic, "system:authenticated"),
    ):
        yield _role(name, rules)
        yield _binding(name, group)
    for name, rules in (("admin", _admin_rules()), ("edit", _edit_rules()), ("view", _view_rules())):
        yield _role(f"system:aggregate-to-{name}", rules, {_label(name): "true"})
    for name, part_of in (("admin", ""), ("edit", "admin"), ("view", "edit")):
        yield _role(name, [], {_label(part_of): "true"} if part_of else {}, name)


def _view_rules() -> list[Unstructured]:
    return [_rule(_READ, [group], resources) for group, resources in (*_WORK, *_SEEN)]


def _edit_rules() -> list[Unstructured]:
    secret = ["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"]
    return [
        _rule(_READ, [""], secret),
        _rule(["impersonate"], [""], ["serviceaccounts"]),
        _rule(_WRITE, [""], ["pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"]),
        _rule(["create"], [""], ["pods/eviction", "serviceaccounts/token"]),
        _rule(_WRITE, [""], ["events", "secrets", *(name for name in _WORK[0][1] if name != "pods")]),
        *(_rule(_WRITE, [group], names) for group, names in _WORK[1:] if "controllerrevisions" not in names),
        _rule(_WRITE, ["apps"], ["statefulsets/scale"]),
        _rule([*_READ, *_WRITE], ["coordination.k8s.io"], ["leases"]),
    ]


def _admin_rules() -> list[Unstructured]:
    return [
        _rule(["create"], ["authorization.k8s.io"], ["localsubjectaccessreviews"]),
        _rule([*_READ, *_WRITE], ["rbac.authorization.k8s.io"], ["rolebindings", "roles"]),
    ]


def _label(name: str) -> str:
    return f"rbac.authorization.k8s.io/aggregate-to-{name}"


def _rule(verbs: Sequence[str], groups: Sequence[str], resources: Sequence[str]) -> Unstructured:
    return {"verbs": sorted(verbs), "apiGroups": list(groups), "resources": list(resources)}


def _role(
    name: str, rules: list[Unstructured], labels: dict[str, str] | None = None, aggregate: str = ""
) -> tuple[str, Unstructured]:
    role: Unstructured = {"apiVersion": RBAC_VERSION, "kind": "ClusterRole", "rules": rules}
    role["metadata"] = {"name": name, "labels": {**_DEFAULTS, **(labels or {})}}
    if aggregate:
        role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {_label(aggregate): "true"}}]}
    return "clusterroles.rbac.authorization.k8s.io", role


def _binding(name: str, group: str) -> tuple[str, Unstructured]:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}
    binding: Unstructured = {"apiVersion": RBAC_VERSION, "kind": "ClusterRoleBinding", "roleRef": reference}
    binding |= {"metadata": {"name": name, "labels": dict(_DEFAULTS)}, "subjects": [subject]}
    return "clusterrolebindings.rbac.authorization.k8s.io", binding
