"""Who else does the agent's jobs on this node: NVIDIA's own pods, or another publisher of the same labels.

Asked before each part starts. Two owners of one job fight without a word, so the part refuses and says whom it found
and how to decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

PARTS = ("plugin", "exporter", "labels", "mig")
DEPLOY_LABEL_PREFIX = "nvidia.com/gpu.deploy."
DEPLOY_LABELS = {
    "plugin": f"{DEPLOY_LABEL_PREFIX}device-plugin",
    "exporter": f"{DEPLOY_LABEL_PREFIX}dcgm-exporter",
    "labels": f"{DEPLOY_LABEL_PREFIX}gpu-feature-discovery",
    "mig": f"{DEPLOY_LABEL_PREFIX}mig-manager",
}
"""The operator's labels, which switch our parts too."""
PLUGIN_OFF_FILE = "device-plugin.off"
"""The file in the state folder that is there while the plugin, which reads no labels, is switched off."""
_APPS = {
    "plugin": ("nvidia-device-plugin-daemonset", "nvidia-device-plugin", "nvidia-device-plugin-ds"),
    "exporter": ("nvidia-dcgm-exporter", "dcgm-exporter"),
    "labels": ("gpu-feature-discovery", "nvidia-gpu-feature-discovery"),
    "mig": ("nvidia-mig-manager",),
}
_LABELS = ("app", "name", "app.kubernetes.io/name", "app.kubernetes.io/component")


def conflicting_pods(pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Part → `namespace/name` of the running pod that does its job."""
    found: dict[str, str] = {}
    for pod in pods:
        metadata = pod.get("metadata", {})
        if pod.get("status", {}).get("phase") not in ("Running", "Pending") or metadata.get(
            "deletionTimestamp"
        ):
            continue
        labels = metadata.get("labels") or {}
        words = {labels.get(name, "") for name in _LABELS}
        for part, apps in _APPS.items():
            if words.intersection(apps):
                found.setdefault(part, f"{metadata.get('namespace')}/{metadata.get('name')}")
    return found


def conflict_message(part: str, owner: str) -> str:
    return (
        f"the part {part} does not start: {owner} does its job on this node "
        f"(remove it, or leave the part out with the label {DEPLOY_LABELS[part]}=false)"
    )


def is_disabled_by_label(part: str, labels: Mapping[str, str]) -> bool:
    """`false` is the user's word, `paused-for-…` a pause by somebody else; nothing and `true` mean on."""
    if labels.get(f"{DEPLOY_LABEL_PREFIX}operands") == "false":
        return True
    return labels.get(DEPLOY_LABELS[part], "true") not in ("", "true")
