"""Who else does the agent's jobs on this node: NVIDIA's own pods, or another publisher of the same labels.

Asked before each part starts. Two owners of one job fight without a word, so the part refuses and says whom it found
and how to decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

PARTS = ("plugin", "exporter", "labels", "mig")
DEPLOY = "nvidia.com/gpu.deploy."
DEPLOY_LABELS = {
    "plugin": f"{DEPLOY}device-plugin",
    "exporter": f"{DEPLOY}dcgm-exporter",
    "labels": f"{DEPLOY}gpu-feature-discovery",
    "mig": f"{DEPLOY}mig-manager",
}
"""The operator's labels, which switch our parts too."""
SWITCH = "device-plugin.off"
"""The file in the state folder that is there while the plugin, which reads no labels, is switched off."""
_APPS = {
    "plugin": ("nvidia-device-plugin-daemonset", "nvidia-device-plugin", "nvidia-device-plugin-ds"),
    "exporter": ("nvidia-dcgm-exporter", "dcgm-exporter"),
    "labels": ("gpu-feature-discovery", "nvidia-gpu-feature-discovery"),
    "mig": ("nvidia-mig-manager",),
}
_LABELS = ("app", "name", "app.kubernetes.io/name", "app.kubernetes.io/component")


def other_owners(pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
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


def refusal(part: str, owner: str) -> str:
    return (
        f"the part {part} does not start: {owner} does its job on this node "
        f"(remove it, or leave the part out with the label {DEPLOY_LABELS[part]}=false)"
    )


def is_switched_off(part: str, labels: Mapping[str, str]) -> bool:
    """`false` is the user's word, `paused-for-…` a pause by somebody else; nothing and `true` mean on."""
    if labels.get(f"{DEPLOY}operands") == "false":
        return True
    return labels.get(DEPLOY_LABELS[part], "true") not in ("", "true")
