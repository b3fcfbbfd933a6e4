"""The parts of the agent, their `nvidia.com/gpu.deploy.*` labels, and pods that already do the job of a part.

The sidecar calls `conflicting_pods` before it starts a part: two device plugins, exporters or MIG managers on one
node would overwrite each other silently, so the part does not start and its message names the pod and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.model.names.kubernetes import APP_COMPONENT_LABEL, APP_NAME_LABEL
from windlass.model.names.nvidia import DEPLOY_LABEL_PREFIX

PARTS = ("plugin", "exporter", "labels", "mig")
DEPLOY_LABELS = {
    "plugin": f"{DEPLOY_LABEL_PREFIX}device-plugin",
    "exporter": f"{DEPLOY_LABEL_PREFIX}dcgm-exporter",
    "labels": f"{DEPLOY_LABEL_PREFIX}gpu-feature-discovery",
    "mig": f"{DEPLOY_LABEL_PREFIX}mig-manager",
}
"""The labels with which the GPU operator switches its operands; they switch our parts too."""
PLUGIN_OFF_FILE = "device-plugin.off"
"""File in the state folder that exists while a label disables the plugin. The plugin itself reads no labels."""
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


def conflicting_pods(pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Part → `namespace/name` of the running pod that does its job."""
    found: dict[str, str] = {}
    for pod in pods:
        metadata = pod.get("metadata", {})
        if pod.get("status", {}).get("phase") not in ("Running", "Pending") or metadata.get("deletionTimestamp"):
            continue
        labels = metadata.get("labels") or {}
        values = {labels.get(name, "") for name in _LABELS}
        for part, apps in _APPS.items():
            if values.intersection(apps):
                found.setdefault(part, f"{metadata.get('namespace')}/{metadata.get('name')}")
    return found


def conflict_message(part: str, owner: str) -> str:
    return (
        f"the part {part} does not start: {owner} does its job on this node "
        f"(remove that pod, or label the node {DEPLOY_LABELS[part]}=false)"
    )


def is_disabled_by_label(part: str, labels: Mapping[str, str]) -> bool:
    """No label and `true` enable a part; `false` and the operator's `paused-for-…` disable it."""
    if labels.get(f"{DEPLOY_LABEL_PREFIX}operands") == "false":
        return True
    return labels.get(DEPLOY_LABELS[part], "true") not in ("", "true")
