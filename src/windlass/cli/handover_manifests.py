"""A kube-scheduler which takes the pods that name Windlass, as plain objects: what `windlass handover` applies.

The name of a pod's scheduler can't be changed, so the pods stay as they are, and kube-scheduler gets a profile of that
name. `cli.handover` applies and deletes these objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from windlass.cli.install_crds import MANAGED_LABELS
from windlass.cli.install_manifests import managed_object
from windlass.model.names.kubernetes import (
    APP_COMPONENT_LABEL,
    APP_NAME_LABEL,
    APPS_API_VERSION,
    DEFAULT_SCHEDULER_NAME,
)
from windlass.model.unstructured import Unstructured

NAME = "windlass-handover"
SELECTOR_LABELS = {APP_NAME_LABEL: "windlass", APP_COMPONENT_LABEL: "handover"}
LABELS = {**MANAGED_LABELS, **SELECTOR_LABELS}
CONFIG_KEY = "config.yaml"
RBAC = "rbac.authorization.k8s.io"
PORT = 10259


class HandoverOptions(msgspec.Struct, frozen=True):
    namespace: str
    image: str
    scheduler_names: tuple[str, ...]
    node: str = ""
    """Where kube-scheduler runs, if nobody else places its pod: Windlass, which is frozen, has the default name."""


def release_of(git_version: str) -> str:
    """The release whose image there is: `v1.33.5+k3s1` and `v1.33.5-eks-113cf36` are v1.33.5."""
    found = re.match(r"v\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)\.\d+)?", git_version)
    return found[0] if found else git_version


def node_for_scheduler(nodes: Iterable[Unstructured]) -> str:
    """A node that is ready, not cordoned and has no GPUs, if there is one; empty if none is ready."""
    usable = [node for node in nodes if _is_ready(node) and not node["spec"].get("unschedulable")]
    return min(((_has_gpus(node), node["metadata"]["name"]) for node in usable), default=(False, ""))[1]


def _is_ready(node: Unstructured) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _has_gpus(node: Unstructured) -> bool:
    return any("gpu" in name or "/mig-" in name for name in node.get("status", {}).get("capacity") or {})


def handover_manifests(choices: HandoverOptions) -> list[Unstructured]:
    """In the order in which they are applied: the Deployment last."""
    namespace = choices.namespace
    config = managed_object("v1", "ConfigMap", NAME, LABELS, namespace)
    return [
        managed_object("v1", "ServiceAccount", NAME, LABELS, namespace),
        _binding("ClusterRoleBinding", NAME, "ClusterRole/system:kube-scheduler", namespace),
        _binding("ClusterRoleBinding", f"{NAME}-volumes", "ClusterRole/system:volume-scheduler", namespace),
        _binding("RoleBinding", NAME, "Role/extension-apiserver-authentication-reader", namespace, "kube-system"),
        {**config, "data": {CONFIG_KEY: scheduler_configuration(choices.scheduler_names)}},
        _deployment(choices),
    ]


def scheduler_configuration(names: Sequence[str]) -> str:
    """No leader election: there is one replica, which is stopped before another is started."""
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": name} for name in names],
    }
    return msgspec.json.format(msgspec.json.encode(configuration)).decode()


def _binding(kind: str, name: str, role: str, namespace: str, inside: str = "") -> Unstructured:
    role_kind, _, role_name = role.partition("/")
    return {
        **managed_object(f"{RBAC}/v1", kind, name, LABELS, inside),
        "roleRef": {"apiGroup": RBAC, "kind": role_kind, "name": role_name},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }


def _deployment(choices: HandoverOptions) -> Unstructured:
    container = {
        "name": "kube-scheduler",
        "image": choices.image,
        "command": ["kube-scheduler", f"--config=/etc/handover/{CONFIG_KEY}", f"--secure-port={PORT}"],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": PORT, "scheme": "HTTPS"}, "periodSeconds": 30},
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/handover", "readOnly": True}],
    }
    pod = {
        "serviceAccountName": NAME,
        # Another scheduler has to place it, or nobody.
        **({"nodeName": choices.node} if choices.node else {"schedulerName": DEFAULT_SCHEDULER_NAME}),
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "system-cluster-critical",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": NAME}}],
    }
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": SELECTOR_LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": pod},
    }
    return {**managed_object(APPS_API_VERSION, "Deployment", NAME, LABELS, choices.namespace), "spec": spec}
