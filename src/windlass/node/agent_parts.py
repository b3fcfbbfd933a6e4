"""The parts of the agent and the `nvidia.com/gpu.deploy.*` labels that switch them.

The sidecar and the plugin ask it; `owners` says which pod already does the job of a part.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.model.names.nvidia import DEPLOY_LABEL_PREFIX
from windlass.model.names.windlass import TAKEN_OVER_VALUE

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
PLUGIN_READY_FILE = "device-plugin.ready"
"""File in the state folder that exists while the kubelet knows every resource, or a label disables the plugin; the
pod's readiness probe looks for it."""


def is_disabled_by_label(part: str, labels: Mapping[str, str]) -> bool:
    """No label, `true` and `windlass` (taken over) enable a part; `false` and `paused-for-…` disable it."""
    if labels.get(f"{DEPLOY_LABEL_PREFIX}operands") == "false":
        return True
    return labels.get(DEPLOY_LABELS[part], "true") not in ("", "true", TAKEN_OVER_VALUE)
