"""Which product does a step on a node: what a cloud or another operator does is left alone.

Known by labels that these products write, and by their pods; `decide.steps` asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from windlass.model.names.kubernetes import APP_COMPONENT_LABEL, APP_NAME_LABEL
from windlass.model.names.nvidia import DEPLOY_LABEL_PREFIX
from windlass.model.names.windlass import DRIVER_REVISION_LABEL, TAKEN_OVER_VALUE
from windlass.operator.observed import NodeView
from windlass.operator.pods import PodView

WINDLASS, HOST, GPU_OPERATOR = "windlass", "host", "gpu-operator"
_GKE_NO_PLUGIN = "gke-no-default-nvidia-gpu-device-plugin"
_CLOUD_PREFIXES = {
    "cloud.google.com/gke-accelerator": "gke",
    "eks.amazonaws.com/": "eks",
    "kubernetes.azure.com/": "aks",
}
"""Labels by which a cloud is known."""
_CLOUD_STEPS = {
    "gke": ("driver", "plugin"),
    "eks": ("driver", "runtime"),
    "aks": ("driver", "runtime"),
    "bottlerocket": ("driver", "runtime", "plugin"),
}
_DEPLOY_STEPS = {
    "driver": "driver",
    "container-toolkit": "runtime",
    "device-plugin": "plugin",
    "gpu-feature-discovery": "labels",
    "dcgm-exporter": "exporter",
    "mig-manager": "mig",
    "operator-validator": "validator",
}
"""Labels of NVIDIA's operator, after their prefix."""
_OFF = ("", "false")
DRIVER_COMPONENT = "driver"


def is_our_driver_pod(pod: PodView) -> bool:
    labels = pod.labels
    return labels.get(APP_NAME_LABEL) == "windlass" and labels.get(APP_COMPONENT_LABEL) == DRIVER_COMPONENT


def is_other_plugin_pod(pod: PodView) -> bool:
    """Whether it is a device plugin of NVIDIA's operator."""
    return pod.owner_kind == "DaemonSet" and pod.labels.get("app") == "nvidia-device-plugin-daemonset"


def is_agent_pod(pod: PodView) -> bool:
    return is_agent(pod.labels)


def is_agent(labels: Mapping[str, str]) -> bool:
    return labels.get(APP_NAME_LABEL) == "windlass" and labels.get(APP_COMPONENT_LABEL) == "node"


class Owner(NamedTuple):
    """A product that does a step on a node; the name is empty if none is known."""

    name: str = ""
    is_cloud: bool = False


NOBODY = Owner()


def step_owners(node: NodeView) -> dict[str, Owner]:
    """The steps of this node that others do."""
    found: dict[str, Owner] = {}
    clouds: set[str] = set()
    for label, value in node.labels.items():
        if label.startswith(DEPLOY_LABEL_PREFIX):
            step = _DEPLOY_STEPS.get(label.removeprefix(DEPLOY_LABEL_PREFIX))
            if (
                step is not None
                and value not in _OFF
                and not value.startswith(TAKEN_OVER_VALUE)  # also while NVIDIA's driver manager has paused it
                and not (step == "driver" and DRIVER_REVISION_LABEL in node.labels)
            ):
                found[step] = Owner(HOST if value == "pre-installed" else GPU_OPERATOR)
        else:
            clouds |= {cloud for prefix, cloud in _CLOUD_PREFIXES.items() if label.startswith(prefix)}
    if "Bottlerocket" in node.info.os_image:
        clouds.add("bottlerocket")
    for cloud in sorted(clouds):
        for step in _CLOUD_STEPS[cloud]:
            if not (cloud == "gke" and step == "plugin" and _GKE_NO_PLUGIN in node.labels):
                found[step] = Owner(cloud, True)
    return found


def other_owner(node: NodeView, step: str) -> Owner:
    return step_owners(node).get(step, NOBODY)
