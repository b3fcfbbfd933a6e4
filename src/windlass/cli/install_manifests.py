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
SELECTOR_LABELS = {APP_NAME_LABEL: "windlass", APP_COMPONENT_LABEL: "scheduler"}
LABELS = {**MANAGED_LABELS, **SELECTOR_LABELS}
USER = 65532
RBAC = "rbac.authorization.k8s.io"


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
    return [
        namespace_object(choices.namespace, "restricted"),
        {**_object("v1", "ServiceAccount", choices), "automountServiceAccountToken": False},
        *_roles(choices),
        _deployment(choices),
        _budget(choices),
        _service(choices),
        _network_policy(choices),
    ]


def all_objects(choices: InstallOptions, crd_objects: list[Unstructured] | None = None) -> list[Unstructured]:
    first, *rest = manifests(choices)
    return [first, *(crds() if crd_objects is None else crd_objects), *rest]


def _object(version: str, kind: str, choices: InstallOptions, *, namespaced: bool = True) -> Unstructured:
    return managed_object(version, kind, NAME, LABELS, choices.namespace if namespaced else "")


def managed_object(version: str, kind: str, name: str, labels: dict[str, str], namespace: str = "") -> Unstructured:
    metadata = {"name": name, "labels": dict(labels), **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def namespace_object(name: str, pod_security: str) -> Unstructured:
    return managed_object("v1", "Namespace", name, {**MANAGED_LABELS, POD_SECURITY_ENFORCE_LABEL: pod_security})


def _roles(choices: InstallOptions) -> list[Unstructured]:
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": choices.namespace}]
    roles = []
    for scope, rules in (("Cluster", cluster_rules()), ("", lease_rules(LEASE))):
        kind = f"{scope}Role"
        namespaced = not scope
        roles.append({**_object(f"{RBAC}/v1", kind, choices, namespaced=namespaced), "rules": rules})
        binding = _object(f"{RBAC}/v1", f"{kind}Binding", choices, namespaced=namespaced)
        roles.append({**binding, "roleRef": {"apiGroup": RBAC, "kind": kind, "name": NAME}, "subjects": subjects})
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


def _deployment(choices: InstallOptions) -> Unstructured:
    container = {
        "name": "scheduler",
        "image": choices.image,
        "imagePullPolicy": choices.pull_policy,
        "args": _arguments(choices),
        "ports": [{"name": "status", "containerPort": PORT}],
        "livenessProbe": _probe("/healthz", 30),
        "readinessProbe": _probe("/readyz", 5),
        "startupProbe": {**_probe("/healthz", 2), "failureThreshold": 60},
        "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    term = {"labelSelector": {"matchLabels": SELECTOR_LABELS}, "topologyKey": HOSTNAME_LABEL}
    apart = {"weight": 100, "podAffinityTerm": term}
    pod = {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}}],
    }
    template = {"metadata": {"labels": LABELS}, "spec": pod}
    spec = {"replicas": choices.replicas, "selector": {"matchLabels": SELECTOR_LABELS}, "template": template}
    return {**_object(APPS_API_VERSION, "Deployment", choices), "spec": spec}


def _probe(path: str, period: int) -> Unstructured:
    return {"httpGet": {"path": path, "port": "status"}, "periodSeconds": period, "timeoutSeconds": 5}


def _budget(choices: InstallOptions) -> Unstructured:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": SELECTOR_LABELS}}
    return {**_object(POLICY_API_VERSION, "PodDisruptionBudget", choices), "spec": spec}


def _service(choices: InstallOptions) -> Unstructured:
    port = {"name": "status", "port": PORT, "targetPort": "status"}
    return {**_object("v1", "Service", choices), "spec": {"selector": SELECTOR_LABELS, "ports": [port]}}


def _network_policy(choices: InstallOptions) -> Unstructured:
    """In: the kubelet's probes and Prometheus. Out: the API server, wherever it listens, and names."""
    spec = {
        "podSelector": {"matchLabels": SELECTOR_LABELS},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": PORT}]}],
        "egress": [
            {"ports": [{"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 6443}]},
            {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
        ],
    }
    return {**_object("networking.k8s.io/v1", "NetworkPolicy", choices), "spec": spec}
