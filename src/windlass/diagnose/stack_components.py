"""The components of the GPU stack, recognised by pod names and labels: which fail, and on which nodes they run.

Called by `gpu_stack`, `doctor` and `cli.pod_evidence`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from windlass.diagnose import nodes
from windlass.diagnose.evidence import ClusterObject, Evidence, once_per_evidence
from windlass.diagnose.finding import Finding, MissingEvidence
from windlass.diagnose.reports import COMPLAINS
from windlass.diagnose.unstructured import nested_int, nested_map, nested_maps, nested_string
from windlass.model.names.kubernetes import APP_COMPONENT_LABEL, APP_NAME_LABEL
from windlass.model.node import Node
from windlass.model.pod import Pod

COMPONENTS = {
    "device plugin": re.compile(r"device-plugin|gpu-plugin"),
    "driver": re.compile(r"(nvidia|gpu)[\w-]*driver|driver[\w-]*(daemonset|nvidia)|kmm-worker"),
    "toolkit": re.compile(r"container-toolkit|toolkit-daemonset"),
    "feature discovery": re.compile(r"gpu-feature-discovery|\bgfd\b|gfd-"),
    "node feature discovery": re.compile(r"nfd|node-feature-discovery"),
    "MIG manager": re.compile(r"mig-manager"),
    "MPS daemon": re.compile(r"mps-control|mps-daemon"),
    "validator": re.compile(r"operator-validator|cuda-validator"),
    "fabric manager": re.compile(r"fabric-?manager"),
    "exporter": re.compile(r"dcgm"),
    "operator": re.compile(r"gpu-operator(?!.*(nfd|node-feature))"),
}
"""Component → pattern of its pods' names and labels."""

IMAGES = {
    "device plugin": re.compile(r"device-plugin|gpu-plugin"),
    "driver": re.compile(r"nvidia/driver[:@]"),
    "toolkit": re.compile(r"/container-toolkit[:@]"),
    "MIG manager": re.compile(r"mig-manager"),
}
"""Component → pattern of its image, for pods and DaemonSets that are called otherwise."""
FAILURE_CODES = {
    "driver": "DRIVER_MISSING",
    "toolkit": "RUNTIME_NOT_CONFIGURED",
    "fabric manager": "FABRIC_NOT_READY",
    "MIG manager": "MIG_CONFIG_NOT_APPLIED",
    "MPS daemon": "MPS_NOT_READY",
}
"""Component → code if it fails, lowest layer first: the layers above wait for it."""
GPU_SEEN = re.compile(
    r"NVIDIA-SMI \d|NVRM:|nvidia-smi.{0,40}driver version|GPU \d+: .*UUID"
    r"|\[10de:[0-9a-f]{4}\].{0,30}class 0x03|\[1002:[0-9a-f]{4}\].{0,30}class 0x(0380|1200)"
    r"|(3D|VGA compatible|Display) controller: NVIDIA|Processing accelerators: ",
    re.I,
)
"""Lines that only a host with GPUs writes: the driver's tools and module, or the PCI bus, which needs no driver."""


def component_of(pod: ClusterObject) -> str:
    """The component that the pod belongs to; empty if none."""
    labels = pod.labels
    names = " ".join([pod.name, *(labels[key] for key in NAME_LABELS if key in labels)])
    if ANY_COMPONENT.search(names):
        return next(component for component, pattern in COMPONENTS.items() if pattern.search(names))
    return _component_with(tuple(_images(pod)))


@lru_cache(maxsize=4096)
def _component_with(images: tuple[str, ...]) -> str:
    """Remembered, since thousands of pods have the same images."""
    listed = " ".join(images)
    if not ANY_IMAGE.search(listed):
        return ""
    return next(component for component, pattern in IMAGES.items() if pattern.search(listed))


NAME_LABELS = ("app", "name", APP_NAME_LABEL, APP_COMPONENT_LABEL)
ANY_COMPONENT = re.compile("|".join(f"(?:{pattern.pattern})" for pattern in COMPONENTS.values()))
ANY_IMAGE = re.compile("|".join(f"(?:{pattern.pattern})" for pattern in IMAGES.values()))
"""Asked first, since most pods are of no component."""


def _images(item: ClusterObject) -> list[str]:
    """The images of a pod, or of a DaemonSet's template."""
    if isinstance(item.decoded, Pod):
        return [container.image for container in item.decoded.spec.containers]
    if item.kind != "DaemonSet":
        return []
    spec = nested_map(item.data, "spec", "template", "spec")
    return [nested_string(container, "image") for container in nested_maps(spec, "containers")]


def stack_pods(evidence: Evidence, node: str = "") -> list[tuple[str, ClusterObject]]:
    """(component, pod) of the stack, on the node or anywhere."""
    if not node:
        return _all_stack_pods(evidence)
    return [(component, pod) for pod in evidence.pods_on(node) if (component := component_of(pod))]


@once_per_evidence
def _all_stack_pods(evidence: Evidence) -> list[tuple[str, ClusterObject]]:
    return [(component, pod) for pod in evidence.of_kind("Pod") if (component := component_of(pod))]


def failing_components(evidence: Evidence, node: str) -> list[Finding]:
    """Components below the device plugin whose pods on the node fail."""
    found = []
    for component, code in FAILURE_CODES.items():
        for part, pod in stack_pods(evidence, node):
            reason = container_failure(pod) if part == component else ""
            if reason:
                message = f"the {component} ({pod.name}) on node {node} does not come up: {reason}"
                said = any(COMPLAINS.search(line) for log in evidence.logs_of(pod) for line in log.lines)
                unsaid = MissingEvidence(
                    "why", f"kubectl logs -n {pod.namespace} {pod.name} --all-containers --previous"
                )
                found.append(Finding(code, message, missing=() if said else (unsaid,)))
                break
    return found


def container_failure(pod: ClusterObject) -> str:
    """Why a pod's containers don't run, with the kubelet's reason; empty if they run or are starting."""
    if nested_string(pod.data, "status", "phase") == "Failed":
        return nested_string(pod.data, "status", "reason") or "it has failed"
    for kind in ("initContainerStatuses", "containerStatuses"):
        for status in nested_maps(pod.data, "status", kind):
            waiting = nested_string(status, "state", "waiting", "reason")
            if waiting and waiting not in ("ContainerCreating", "PodInitializing"):
                return f"{nested_string(status, 'name')} is in {waiting}"
            if nested_int(status, "state", "terminated", "exitCode"):
                return f"{nested_string(status, 'name')} has failed"
    return ""


@once_per_evidence
def gpu_nodes(evidence: Evidence) -> list[Node]:
    """Nodes that look like GPU nodes or whose host logs show GPUs; if there are none, nodes with a device plugin."""
    known = [
        node
        for node in evidence.nodes.values()
        if nodes.looks_like_gpu_node(node) or _host_has_gpu(evidence, node.name)
    ]
    if known:
        return known
    return [
        node
        for node in evidence.nodes.values()
        if any(part == "device plugin" for part, _ in stack_pods(evidence, node.name))
    ]


def _host_has_gpu(evidence: Evidence, node: str) -> bool:
    return any(GPU_SEEN.search(line) for log in evidence.host_logs(node) for line in log.lines)
