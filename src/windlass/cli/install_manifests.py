"""Everything that puts Windlass into a cluster, as plain objects in the order in which they are applied.

`windlass install` prints them, `windlass uninstall` takes them away again, and the Helm chart in `deploy/chart` is
written from them (`tools/write_chart.py`), so that all three say the same.
"""

from __future__ import annotations

import msgspec

from windlass import __version__
from windlass.cli.install_crds import MANAGED_LABELS, crds
from windlass.cli.install_rbac import cluster_rules, lease_rules
from windlass.model.names.kubernetes import (
    APP_COMPONENT_LABEL,
    APP_NAME_LABEL,
    APPS_API_VERSION,
    HOSTNAME_LABEL,
    POD_SECURITY_ENFORCE_LABEL,
    POLICY_API_VERSION,
)
from windlass.model.unstructured import Unstructured

LEASE = "windlass-scheduler"
NAME = "windlass-scheduler"
PORT = 10259
USER = 65532
RBAC = "rbac.authorization.k8s.io"


class Role(msgspec.Struct, frozen=True):
    """A program of Windlass that runs in a Deployment: replicas of which one leads, or the page's server."""

    name: str
    """Of all its objects, and of its lease."""
    component: str
    port: int
    arguments: tuple[str, ...]
    cluster_rules: tuple[Unstructured, ...]
    own_rules: tuple[Unstructured, ...]
    """Of the Role in its own namespace; empty: it has none."""
    egress: tuple[int, ...] = (443, 6443)
    """TCP ports; empty: any."""
    secrets: tuple[tuple[str, str, str], ...] = ()
    """(volume, Secret, folder) of those that are mounted."""
    scheme: str = "HTTP"
    """Of its probes."""
    is_critical: bool = True
    """The cluster's work waits while it is away."""

    @property
    def selector_labels(self) -> dict[str, str]:
        return {APP_NAME_LABEL: "windlass", APP_COMPONENT_LABEL: self.component}

    @property
    def labels(self) -> dict[str, str]:
        return {**MANAGED_LABELS, **self.selector_labels}


class InstallOptions(msgspec.Struct, frozen=True):
    """What may differ from one cluster to the next."""

    namespace: str = "windlass-system"
    image: str = f"windlass:{__version__}"
    pull_policy: str = "IfNotPresent"
    replicas: int = 2
    scheduler_names: tuple[str, ...] = ("windlass",)
    node_selector: str = ""
    take_over: tuple[str, ...] = ()


def manifests(choices: InstallOptions) -> list[Unstructured]:
    """All but the CRDs, which may belong to another installation."""
    return [namespace_object(choices.namespace, "restricted"), *role_manifests(scheduler_role(choices), choices)]


def scheduler_role(choices: InstallOptions) -> Role:
    rules = (tuple(cluster_rules()), tuple(lease_rules(LEASE)))
    return Role(NAME, "scheduler", PORT, tuple(_arguments(choices)), *rules)


def role_manifests(role: Role, choices: InstallOptions) -> list[Unstructured]:
    """Account, rights, Deployment, budget, Service and NetworkPolicy."""
    return [
        {**_object("v1", "ServiceAccount", role, choices), "automountServiceAccountToken": False},
        *_roles(role, choices),
        _deployment(role, choices),
        _budget(role, choices),
        _service(role, choices),
        _network_policy(role, choices),
    ]


def all_objects(choices: InstallOptions, crd_objects: list[Unstructured] | None = None) -> list[Unstructured]:
    first, *rest = manifests(choices)
    return [first, *(crds() if crd_objects is None else crd_objects), *rest]


def _object(version: str, kind: str, role: Role, choices: InstallOptions, *, namespaced: bool = True) -> Unstructured:
    return managed_object(version, kind, role.name, role.labels, choices.namespace if namespaced else "")


def managed_object(version: str, kind: str, name: str, labels: dict[str, str], namespace: str = "") -> Unstructured:
    metadata = {"name": name, "labels": dict(labels), **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def namespace_object(name: str, pod_security: str) -> Unstructured:
    return managed_object("v1", "Namespace", name, {**MANAGED_LABELS, POD_SECURITY_ENFORCE_LABEL: pod_security})


def _roles(role: Role, choices: InstallOptions) -> list[Unstructured]:
    subjects = [{"kind": "ServiceAccount", "name": role.name, "namespace": choices.namespace}]
    roles = []
    for scope, rules in (("Cluster", list(role.cluster_rules)), ("", list(role.own_rules))):
        if not rules:
            continue
        kind = f"{scope}Role"
        namespaced = not scope
        roles.append({**_object(f"{RBAC}/v1", kind, role, choices, namespaced=namespaced), "rules": rules})
        binding = _object(f"{RBAC}/v1", f"{kind}Binding", role, choices, namespaced=namespaced)
        roles.append({**binding, "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role.name}, "subjects": subjects})
    return roles


def _arguments(choices: InstallOptions) -> list[str]:
    return [
        "scheduler",
        f"--listen=:{PORT}",
        f"--lease-namespace={choices.namespace}",
        f"--lease-name={LEASE}",
        "--audit=-",
        *(f"--scheduler-name={name}" for name in choices.scheduler_names),
        *([f"--node-selector={choices.node_selector}"] if choices.node_selector else []),
        *(f"--take-over={queue}" for queue in choices.take_over),
    ]


def _deployment(role: Role, choices: InstallOptions) -> Unstructured:
    container = {
        "name": role.component,
        "image": choices.image,
        "imagePullPolicy": choices.pull_policy,
        "args": list(role.arguments),
        "ports": [{"name": "status", "containerPort": role.port}],
        "livenessProbe": _probe(role, "/healthz", 30),
        "readinessProbe": _probe(role, "/readyz", 5),
        "startupProbe": {**_probe(role, "/healthz", 2), "failureThreshold": 60},
        "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            *({"name": name, "mountPath": folder, "readOnly": True} for name, _, folder in role.secrets),
        ],
    }
    term = {"labelSelector": {"matchLabels": role.selector_labels}, "topologyKey": HOSTNAME_LABEL}
    apart = {"weight": 100, "podAffinityTerm": term}
    pod = {
        "serviceAccountName": role.name,
        "automountServiceAccountToken": True,
        **({"priorityClassName": "system-cluster-critical"} if role.is_critical else {}),
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "containers": [container],
        "volumes": [
            {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
            *({"name": name, "secret": {"secretName": secret}} for name, secret, _ in role.secrets),
        ],
    }
    template = {"metadata": {"labels": role.labels}, "spec": pod}
    spec = {"replicas": choices.replicas, "selector": {"matchLabels": role.selector_labels}, "template": template}
    return {**_object(APPS_API_VERSION, "Deployment", role, choices), "spec": spec}


def _probe(role: Role, path: str, period: int) -> Unstructured:
    scheme = {"scheme": role.scheme} if role.scheme != "HTTP" else {}
    return {"httpGet": {"path": path, "port": "status", **scheme}, "periodSeconds": period, "timeoutSeconds": 5}


def _budget(role: Role, choices: InstallOptions) -> Unstructured:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": role.selector_labels}}
    return {**_object(POLICY_API_VERSION, "PodDisruptionBudget", role, choices), "spec": spec}


def _service(role: Role, choices: InstallOptions) -> Unstructured:
    port = {"name": "status", "port": role.port, "targetPort": "status"}
    return {**_object("v1", "Service", role, choices), "spec": {"selector": role.selector_labels, "ports": [port]}}


def _network_policy(role: Role, choices: InstallOptions) -> Unstructured:
    """In: the kubelet's probes and Prometheus. Out: the API server, wherever it listens, and names."""
    spec = {
        "podSelector": {"matchLabels": role.selector_labels},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": role.port}]}],
        "egress": [
            {"ports": [{"protocol": "TCP", "port": port} for port in role.egress] or [{"protocol": "TCP"}]},
            {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
        ],
    }
    return {**_object("networking.k8s.io/v1", "NetworkPolicy", role, choices), "spec": spec}
