"""The node agent's objects: a DaemonSet on nodes with NVIDIA GPUs, and an account that may change its own node only.

`windlass install node` prints them, `windlass uninstall node` takes them away. RBAC can't say "its own node"; an
admission policy does, by the node that the API server has written into the agent's token.
"""

from __future__ import annotations

import msgspec

from windlass import __version__
from windlass.cli.install_crds import MANAGED_LABELS
from windlass.cli.install_manifests import managed_object, namespace_object
from windlass.cli.install_platforms import find_platform
from windlass.cli.install_rbac import freeze_rule
from windlass.model.names.kubernetes import (
    APP_COMPONENT_LABEL,
    APP_NAME_LABEL,
    APPS_API_VERSION,
)
from windlass.model.names.windlass import AGENT_REVISION_LABEL
from windlass.model.unstructured import Unstructured
from windlass.node.agent_parts import PLUGIN_READY_FILE

NAME = "windlass-node"
SELECTOR_LABELS = {APP_NAME_LABEL: "windlass", APP_COMPONENT_LABEL: "node"}
LABELS = {**MANAGED_LABELS, **SELECTOR_LABELS}
RBAC = "rbac.authorization.k8s.io"
ADMISSION = "admissionregistration.k8s.io/v1"
CONFIG_KEY = "config.yaml"
CONFIG_FOLDER = "/etc/windlass"
HOST_PATHS = {
    "device-plugins": "/var/lib/kubelet/device-plugins",
    "pod-resources": "/var/lib/kubelet/pod-resources",
    "cdi": "/var/run/cdi",
    "state": "/run/windlass",
    "mps": "/run/nvidia/mps",
    "dev": "/dev",
    "sys": "/sys",
}
"""Name → path inside, and on the host unless the platform has another one."""
AGENT_VARIABLES = {"MPS_ROOT": HOST_PATHS["mps"]}
"""Settings of the device plugin that follow from the mounts, as NVIDIA's chart sets them."""
FEATURES_FOLDER = "/etc/kubernetes/node-feature-discovery/features.d"
"""Where NFD looks for labels in files, on the host; mounted for the label sink `file` alone."""
HISTORY_FOLDER = "/var/lib/windlass/history"
"""Where the agent keeps its samples, on the host; mounted on request."""
METRICS_PORT = 9400
READINESS_PROBE = {
    # Python itself, since the image has no other program, and without its site packages: milliseconds.
    "exec": {
        "command": [
            *("python3", "-I", "-S", "-c"),
            f"import os, sys; sys.exit(not os.path.exists('{HOST_PATHS['state']}/{PLUGIN_READY_FILE}'))",
        ]
    },
    "periodSeconds": 5,
    "timeoutSeconds": 5,
}
"""Whether the kubelet has this node's devices: a rollout that breaks them ends at the first nodes."""
PRIORITY_CLASS = "system-node-critical"
HOST_FILES = "/proc/1/root"
"""The host's file system as its first process has it: the driver in any layout, also one that is mounted later."""
MOUNTED_HOST = "/host"
"""Where it is mounted instead, for hosts that keep the files of their first process from everybody."""


class NodeInstallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What may differ from one cluster to the next."""

    namespace: str = "windlass-node"
    image: str = f"windlass-node:{__version__}"
    pull_policy: str = "IfNotPresent"
    parts: tuple[str, ...] = ("plugin", "exporter", "labels", "mig")
    label_sink: str = "node"
    runtime_class: str = ""
    config: str = ""
    """Text of a device plugin config; empty for the defaults."""
    configs: tuple[tuple[str, str], ...] = ()
    """Several instead, name and text; a label of the node picks one."""
    default_config: str = ""
    """Which of them nodes without the label get."""
    arguments: tuple[str, ...] = ()
    """More of `windlass node run`."""
    node_selector: tuple[tuple[str, str], ...] = ()
    """Instead of the PCI labels."""
    pod_monitor: bool = False
    """Whether to add a PodMonitor, for Prometheus's operator."""
    history: bool = False
    """Whether the agent keeps 30 days of samples on the node."""
    mount_host_root: bool = False
    """Whether the host's file system is a volume of the pod, instead of `/proc/1/root`."""
    platform: str = ""
    """One of `PLATFORMS`; empty for the usual paths and labels."""


def node_manifests(choices: NodeInstallOptions) -> list[Unstructured]:
    """All objects, in the order in which they are applied."""
    config = [_config(choices)] if choices.config or choices.configs else []
    monitor = [_pod_monitor(choices)] if choices.pod_monitor else []
    return [
        namespace_object(choices.namespace, "privileged"),
        {**_object("v1", "ServiceAccount", choices), "automountServiceAccountToken": False},
        *_roles(choices),
        *_policy(choices),
        *_platform_objects(choices),
        *config,
        _service(choices),
        *monitor,
        _daemon(choices),
    ]


def _object(version: str, kind: str, choices: NodeInstallOptions, *, namespaced: bool = True) -> Unstructured:
    return managed_object(version, kind, NAME, LABELS, choices.namespace if namespaced else "")


def _roles(choices: NodeInstallOptions) -> list[Unstructured]:
    rules = [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
        # Which GPU a pod holds by a claim, for the exporter.
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["list"]},
    ]
    if choices.label_sink == "node-feature":
        verbs = ["get", "create", "update"]
        rules.append({"apiGroups": ["nfd.k8s-sigs.io"], "resources": ["nodefeatures"], "verbs": verbs})
    role = {**_object(f"{RBAC}/v1", "ClusterRole", choices, namespaced=False), "rules": rules}
    binding = {
        **_object(f"{RBAC}/v1", "ClusterRoleBinding", choices, namespaced=False),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": choices.namespace}],
    }
    return [role, binding, *_freeze_role(choices)]


def _freeze_role(choices: NodeInstallOptions) -> list[Unstructured]:
    """The right to read whether `windlass freeze` was given, in its own namespace."""
    version, name = f"{RBAC}/v1", f"{NAME}-freeze"
    role = managed_object(version, "Role", name, LABELS, choices.namespace)
    binding = {
        **managed_object(version, "RoleBinding", name, LABELS, choices.namespace),
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": choices.namespace}],
    }
    return [{**role, "rules": [freeze_rule()]}, binding]


def _policy(choices: NodeInstallOptions) -> list[Unstructured]:
    extra = "authentication.kubernetes.io/node-name"
    user = f"system:serviceaccount:{choices.namespace}:{NAME}"
    own_node = f"('{extra}' in request.userInfo.extra) ? request.userInfo.extra['{extra}'][0] : ''"
    updates = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"]}
    policy = {
        **_object(ADMISSION, "ValidatingAdmissionPolicy", choices, namespaced=False),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{**updates, "resources": ["nodes", "pods"]}]},
            "matchConditions": [{"name": "the-agent", "expression": f"request.userInfo.username == '{user}'"}],
            "variables": [{"name": "node", "expression": own_node}],
            "validations": [
                {
                    "expression": "variables.node != '' && (request.resource.resource == 'nodes' "
                    "? object.metadata.name == variables.node : object.spec.nodeName == variables.node)",
                    "message": "the node agent may change its own node and the pods on it, and nothing else",
                }
            ],
        },
    }
    binding = {
        **_object(ADMISSION, "ValidatingAdmissionPolicyBinding", choices, namespaced=False),
        "spec": {"policyName": NAME, "validationActions": ["Deny"]},
    }
    return [policy, binding]


def _platform_objects(choices: NodeInstallOptions) -> list[Unstructured]:
    """What the platform's own admission asks for."""
    platform, objects = find_platform(choices.platform), []
    if platform.cluster_role:
        binding = {
            **_object(f"{RBAC}/v1", "RoleBinding", choices),
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": platform.cluster_role},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": choices.namespace}],
        }
        objects.append(binding)
    if platform.needs_quota:
        classes = {"scopeName": "PriorityClass", "operator": "In", "values": [PRIORITY_CLASS]}
        spec = {"hard": {"pods": "5000"}, "scopeSelector": {"matchExpressions": [classes]}}
        objects.append({**_object("v1", "ResourceQuota", choices), "spec": spec})
    return objects


def _config(choices: NodeInstallOptions) -> Unstructured:
    data = dict(choices.configs) or {CONFIG_KEY: choices.config}
    return {**_object("v1", "ConfigMap", choices), "data": data}


def _service(choices: NodeInstallOptions) -> Unstructured:
    """Headless: one address per node, for scrapers that find targets by Services or annotations."""
    service = _object("v1", "Service", choices)
    scrape = {"prometheus.io/scrape": "true", "prometheus.io/port": str(METRICS_PORT), "prometheus.io/path": "/metrics"}
    service["metadata"]["annotations"] = scrape
    port = {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}
    return {**service, "spec": {"clusterIP": "None", "selector": SELECTOR_LABELS, "ports": [port]}}


def _pod_monitor(choices: NodeInstallOptions) -> Unstructured:
    # Without honorLabels, Prometheus replaces the pod that holds the GPU by the exporter's own.
    endpoints = [{"port": "metrics", "honorLabels": True}]
    spec = {"selector": {"matchLabels": SELECTOR_LABELS}, "podMetricsEndpoints": endpoints}
    return {**_object("monitoring.coreos.com/v1", "PodMonitor", choices), "spec": spec}


def _daemon(choices: NodeInstallOptions) -> Unstructured:
    return {
        **_object(APPS_API_VERSION, "DaemonSet", choices),
        "spec": {
            "selector": {"matchLabels": SELECTOR_LABELS},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {"metadata": {"labels": dict(LABELS)}, "spec": _pod(choices)},
        },
    }


def _pod(choices: NodeInstallOptions) -> Unstructured:
    platform = find_platform(choices.platform)
    paths = HOST_PATHS | dict(platform.host_paths)
    volumes: list[Unstructured] = [
        {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}} for name, path in paths.items()
    ]
    if choices.label_sink == "file":
        volumes.append({"name": "features", "hostPath": {"path": FEATURES_FOLDER, "type": "DirectoryOrCreate"}})
    if choices.history:
        volumes.append({"name": "history", "hostPath": {"path": HISTORY_FOLDER, "type": "DirectoryOrCreate"}})
    if choices.mount_host_root:
        volumes.append({"name": "host-root", "hostPath": {"path": "/"}})
    if choices.config or choices.configs:
        volumes.append({"name": "config", "configMap": {"name": NAME}})
    pod: Unstructured = {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "priorityClassName": PRIORITY_CLASS,
        "hostPID": True,
        "terminationGracePeriodSeconds": 15,
        # The agent is what makes a GPU node usable: it stays whatever the node is tainted with.
        "tolerations": [{"operator": "Exists"}],
        "containers": [_container(choices)],
        "volumes": volumes,
    }
    if choices.runtime_class:
        pod["runtimeClassName"] = choices.runtime_class
    if choices.node_selector:
        pod["nodeSelector"] = dict(choices.node_selector)
    # Nodes for which the operator has chosen a version have a DaemonSet of their own.
    as_installed = {"key": AGENT_REVISION_LABEL, "operator": "DoesNotExist"}
    terms = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), as_installed]}
        for term in platform.node_selector_terms(any_gpu_label=not choices.node_selector) or [{}]
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod["affinity"] = {"nodeAffinity": required}
    return pod


def _container(choices: NodeInstallOptions) -> Unstructured:
    mounts: list[Unstructured] = [{"name": name, "mountPath": path} for name, path in HOST_PATHS.items()]
    if choices.label_sink == "file":
        mounts.append({"name": "features", "mountPath": FEATURES_FOLDER})
    if choices.history:
        mounts.append({"name": "history", "mountPath": HISTORY_FOLDER})
    if choices.mount_host_root:  # what the host mounts or unmounts later, the agent sees too
        mounts.append({"name": "host-root", "mountPath": MOUNTED_HOST, "mountPropagation": "HostToContainer"})
    arguments = [
        *("node", "run", f"--parts={','.join(choices.parts)}"),
        *(f"--label-sink={choices.label_sink}", f"--namespace={choices.namespace}"),
    ]
    if choices.history:
        arguments.append(f"--history={HISTORY_FOLDER}")
    if choices.configs:
        arguments.append(f"--config-file-srcdir={CONFIG_FOLDER}")
    elif choices.config:
        arguments.append(f"--config-file={CONFIG_FOLDER}/{CONFIG_KEY}")
    if choices.default_config:
        arguments.append(f"--default-config={choices.default_config}")
    if choices.configs or choices.config:
        mounts.append({"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True})
    arguments += choices.arguments
    probe = {"readinessProbe": READINESS_PROBE} if "plugin" in choices.parts else {}
    return {
        "name": "agent",
        "image": choices.image,
        "imagePullPolicy": choices.pull_policy,
        "args": arguments,
        "env": [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "HOST_ROOT", "value": MOUNTED_HOST if choices.mount_host_root else HOST_FILES},
            *({"name": name, "value": value} for name, value in AGENT_VARIABLES.items()),
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"},
            {"name": "NVIDIA_MIG_CONFIG_DEVICES", "value": "all"},
        ],
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT}],
        # With the validator's CUDA context 172 MiB at most were seen with one H200; 16 GPUs have more of it.
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        # The image's own user may write to none of the host's folders that are mounted here.
        "securityContext": {"privileged": True, "runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False},
        "volumeMounts": mounts,
        **probe,
    }
