"""Which pod of another project already does the job of a part on this node.

The sidecar asks before it starts a part: two exporters or MIG managers on one node would overwrite each other silently,
so the part does not start and its message names the pod and the remedy. Two device plugins are noticed by the kubelet's
sockets as well (`plugin.registrar`), which no pod without the host's files can make.

A label says what a pod is called; anybody who may create a pod writes one. So a label gives a job away only where no
tenant can write it: on a pod of a DaemonSet, in a namespace of the cluster's administrators, with access to the host,
which the job takes and which Pod Security keeps from tenants.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from windlass.model.names.kubernetes import APP_COMPONENT_LABEL, APP_NAME_LABEL
from windlass.node.agent_parts import DEPLOY_LABELS

TRUSTED_NAMESPACES = (
    *("kube-system", "gpu-operator", "gpu-operator-resources", "nvidia-gpu-operator", "nvidia-device-plugin"),
    *("nvidia", "nvidia-dcgm-exporter"),
)
"""Where NVIDIA's and the clouds' instructions install the originals."""
_APPS = {
    "plugin": (
        *("nvidia-device-plugin-daemonset", "nvidia-device-plugin", "nvidia-device-plugin-ds"),
        "nvidia-gpu-device-plugin",  # Google's
    ),
    "exporter": ("nvidia-dcgm-exporter", "dcgm-exporter"),
    "labels": ("gpu-feature-discovery", "nvidia-gpu-feature-discovery"),
    "mig": ("nvidia-mig-manager",),
}
_LABELS = ("app", "k8s-app", "name", APP_NAME_LABEL, APP_COMPONENT_LABEL)


class Owners(NamedTuple):
    """Of the jobs of parts, by part: `namespace/name` of a pod."""

    trusted: dict[str, str]
    """Pods that do the job: the part does not start."""
    doubtful: dict[str, str]
    """Pods that only say so: the part starts, and the log says that there may be two."""


def find_owners(pods: Iterable[Mapping[str, Any]], trusted_namespaces: Iterable[str] = TRUSTED_NAMESPACES) -> Owners:
    namespaces = frozenset(trusted_namespaces)
    owners = Owners({}, {})
    for pod in pods:
        metadata = pod.get("metadata") or {}
        if (pod.get("status") or {}).get("phase") not in ("Running", "Pending") or metadata.get("deletionTimestamp"):
            continue
        is_trusted = metadata.get("namespace") in namespaces and _is_of_daemon_set(metadata) and _has_host_access(pod)
        for part in _named_parts(metadata):
            found = owners.trusted if is_trusted else owners.doubtful
            found.setdefault(part, f"{metadata.get('namespace')}/{metadata.get('name')}")
    return owners


def conflict_message(part: str, owner: str) -> str:
    return (
        f"the part {part} does not start: {owner} does its job on this node "
        f"(remove that pod, or label the node {DEPLOY_LABELS[part]}=false)"
    )


def doubt_message(part: str, owner: str) -> str:
    return (
        f"the part {part} starts although {owner} is labelled as if it did the same job: that pod is not one of a "
        f"DaemonSet with access to the host in a trusted namespace (if it does the job, name its namespace in "
        f"--trusted-namespaces, or label the node {DEPLOY_LABELS[part]}=false)"
    )


def _named_parts(metadata: Mapping[str, Any]) -> Iterator[str]:
    labels = metadata.get("labels") or {}
    values = {labels.get(name, "") for name in _LABELS}
    return (part for part, apps in _APPS.items() if values.intersection(apps))


def _is_of_daemon_set(metadata: Mapping[str, Any]) -> bool:
    references = metadata.get("ownerReferences") or ()
    return any(reference.get("controller") and reference.get("kind") == "DaemonSet" for reference in references)


def _has_host_access(pod: Mapping[str, Any]) -> bool:
    spec = pod.get("spec") or {}
    if any(volume.get("hostPath") for volume in spec.get("volumes") or ()):
        return True
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    return any((container.get("securityContext") or {}).get("privileged") for container in containers)
