"""Evidence against what a line of a log says: the state of the node now, versions, and what has healed since.

`pod_startup` and `gpu_stack` ask before they blame: a line is what a program believed at one moment, objects and hosts
are what is.
"""

from __future__ import annotations

import re

from windlass.diagnose import nodes
from windlass.diagnose.evidence import ClusterObject, Event, Evidence, LogLines
from windlass.diagnose.finding import Finding
from windlass.diagnose.fit import capacity_and_allocatable
from windlass.diagnose.stack_components import stack_pods
from windlass.diagnose.subject import node_of
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string
from windlass.model.digits import is_digits
from windlass.model.node import Node

Version = tuple[int, int]
REQUIRED_CUDA = re.compile(r"cuda\s*>=\s*(\d+)\.(\d+)", re.I)
IMAGE_CUDA = re.compile(r"cuda[:_-]?v?(\d{1,2})\.(\d{1,2})", re.I)
SMI_CUDA = re.compile(r"CUDA Version:\s*(\d+)\.(\d+)")
SMI_WORKS = re.compile(r"NVIDIA-SMI \d.*Driver Version|^GPU \d+: .*UUID")
MODULE_LOADED = re.compile(r"NVRM: loading NVIDIA .*Kernel Module")
CUDA_LABELS = (
    ("nvidia.com/cuda.runtime-version.major", "nvidia.com/cuda.runtime-version.minor"),
    ("nvidia.com/cuda.runtime.major", "nvidia.com/cuda.runtime.minor"),
)
"""The CUDA version that the driver supports, as feature discovery writes it since 0.15 and before."""
HEALED = re.compile(r"(?<!un)(?<!not)healthy|recovered|resolved|NoXid|NoGPU\w*(Error|Fault)", re.I)
"""Reasons of events that take an earlier fault back."""


def refutation(evidence: Evidence, finding: Finding, node: Node | None, pod: ClusterObject | None = None) -> str:
    """What rules the finding out on this node; empty if nothing does."""
    if node is None:
        return ""
    if finding.code == "DRIVER_MISSING":
        return working_driver(evidence, node) or _driver_container(evidence, finding, node)
    if finding.code == "CUDA_DRIVER_TOO_OLD":
        return _new_enough(evidence, finding, node, pod)
    if finding.code == "DEVICE_ID_STALE":
        return _known_devices(evidence, finding, node)
    if finding.code == "INVALID_OBJECT" and pod is not None:
        return _exists_now(evidence, finding, pod)
    if finding.code == "DEVICE_UNHEALTHY" and all_healthy(node):
        return f"all GPUs of node {node.name} are allocatable now"
    return ""


def working_driver(evidence: Evidence, node: Node) -> str:
    """What shows that the node's driver works; empty if nothing does."""
    for log in evidence.host_logs(node.name):
        if "nvidia-smi" in log.origin and any(SMI_WORKS.search(line) for line in log.lines):
            return f"nvidia-smi works on host {node.name}"
        if "dmesg" in log.origin and any(MODULE_LOADED.search(line) for line in log.lines):
            return f"the kernel of host {node.name} has loaded the driver"
    return ""


def _driver_container(evidence: Evidence, finding: Finding, node: Node) -> str:
    for component, pod in stack_pods(evidence, node.name):
        if component == "driver" and is_ready(pod) and "nvidia-smi" in "".join(finding.evidence):
            return f"the driver's container {pod.name} is ready; hosts with one have no nvidia-smi of their own"
    return ""


def _known_devices(evidence: Evidence, finding: Finding, node: Node) -> str:
    """The node has every device that the message names."""
    named, known = (
        {name for line in finding.evidence for name in DEVICE_ID.findall(line)},
        node_device_ids(evidence, node.name),
    )
    is_there = named and all(name.lower() in known for name in named)
    return f"node {node.name} has {', '.join(sorted(named))}" if is_there else ""


def _exists_now(evidence: Evidence, finding: Finding, pod: ClusterObject) -> str:
    """What was not found has been created since."""
    for line in finding.evidence:
        for kind, name in NOT_FOUND.findall(line):
            if evidence.get(NAMED_KINDS[kind.lower()], pod.namespace, name) is not None:
                return f"{kind} {name} exists now; the kubelet will find it"
    return ""


NAMED_KINDS = {"configmap": "ConfigMap", "secret": "Secret", "serviceaccount": "ServiceAccount"}
NOT_FOUND = re.compile(r"\b(configmap|secret|serviceaccount)s? \"?(\S+?)\"? not found", re.I)


def doubt(finding: Finding, node: Node | None) -> str:
    """What speaks against the finding without ruling it out."""
    if finding.code == "DRIVER_MISSING" and node is not None and all_healthy(node):
        return f"node {node.name} advertises its GPUs, for which the plugin needs the driver"
    return ""


def all_healthy(node: Node) -> bool:
    capacity, allocatable = capacity_and_allocatable(node)
    names = nodes.gpu_resources(node)
    return bool(names) and all(capacity[name] == allocatable.get(name, 0) for name in names)


def _new_enough(evidence: Evidence, finding: Finding, node: Node, pod: ClusterObject | None) -> str:
    """The driver supports at least the CUDA version that is asked for, by the message or by the image's name."""
    wanted = _versions(REQUIRED_CUDA, [*finding.evidence, finding.headline])
    if not wanted and pod is not None:
        images = [nested_string(container, "image") for container in nested_maps(pod.data, "spec", "containers")]
        wanted = _versions(IMAGE_CUDA, images)
    supported = supported_cuda(evidence, node)
    if not wanted or supported is None or supported < max(wanted):
        return ""
    has, asks = (".".join(map(str, version)) for version in (supported, max(wanted)))
    return f"the driver of node {node.name} supports CUDA {has}, and {asks} is asked for"


def supported_cuda(evidence: Evidence, node: Node) -> Version | None:
    """The newest CUDA version that the node's driver supports, as its labels or nvidia-smi say."""
    for major, minor in CUDA_LABELS:
        if is_digits(node.labels.get(major, "")) and is_digits(node.labels.get(minor, "")):
            return int(node.labels[major]), int(node.labels[minor])
    lines = [line for log in evidence.host_logs(node.name) for line in log.lines]
    return max(_versions(SMI_CUDA, lines), default=None)


def _versions(pattern: re.Pattern[str], texts: list[str]) -> list[Version]:
    return [(int(found[1]), int(found[2])) for text in texts for found in pattern.finditer(text)]


# Devices that a pod was given: a kubelet keeps them in a checkpoint, also when the machine has other GPUs


DEVICE_ID = re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.I)


def node_device_ids(evidence: Evidence, node: str) -> frozenset[str]:
    """Ids of the node's devices, as nvidia-smi or its ResourceSlices list them; empty if neither is known."""
    listed = [line for log in evidence.host_logs(node) if "nvidia-smi" in log.origin for line in log.lines]
    for item in evidence.of_kind("ResourceSlice"):
        if nested_string(item.data, "spec", "nodeName") == node:
            listed += [_uuid(device) for device in nested_maps(item.data, "spec", "devices")]
    return frozenset(found.lower() for line in listed for found in DEVICE_ID.findall(line))


def _uuid(device: dict[str, object]) -> str:
    """Before Kubernetes 1.33 the attributes were nested in `basic`."""
    attributes = nested_map(device, "attributes") or nested_map(device, "basic", "attributes")
    return nested_string(attributes, "uuid", "string")


def _is_gone(name: str, known: frozenset[str]) -> bool:
    """Whether devices of its kind are listed, and it is not: a list of GPUs says nothing about MIG instances."""
    return name not in known and any(other[:3] == name[:3] for other in known)


def stale_device_findings(evidence: Evidence, pod: ClusterObject, said: list[LogLines]) -> list[Finding]:
    """A device that the runtime was asked for, or that the pod's claim names, and that its node does not have."""
    node = node_of(pod)
    known = node_device_ids(evidence, node)
    for log in said:
        for line in log.lines if known else ():
            gone = [name for name in DEVICE_ID.findall(line) if _is_gone(name.lower(), known)]
            if gone:
                message = f"the pod was given {gone[0]}, and node {node} has {len(known)} other devices"
                return [Finding("DEVICE_ID_STALE", message, (f"{log.origin}: {line}",))]
    return []


# Time: what was, and is no more


def unhealed(events: list[Event]) -> list[Event]:
    """Events without those that a later one takes back."""
    last = max((place for place, event in enumerate(events) if _heals(event)), default=-1)
    return [event for place, event in enumerate(events) if place > last or not event.warning]


def _heals(event: Event) -> bool:
    return not event.warning and bool(HEALED.search(event.reason))


def is_ready(pod: ClusterObject) -> bool:
    """Whether all its containers run and are ready: what ended before is settled."""
    statuses = nested_maps(pod.data, "status", "containerStatuses")
    return (
        nested_string(pod.data, "status", "phase") == "Running"
        and bool(statuses)
        and all(status.get("ready") is True and "running" in nested_map(status, "state") for status in statuses)
    )


def started(pod: ClusterObject) -> str:
    """When the last of its containers was started; empty if none runs."""
    statuses = nested_maps(pod.data, "status", "containerStatuses")
    return max((nested_string(status, "state", "running", "startedAt") for status in statuses), default="")


def current_logs(evidence: Evidence, pod: ClusterObject) -> list[LogLines]:
    """The pod's logs; of a ready pod, those of earlier runs are left out."""
    logs = evidence.logs_of(pod)
    return [log for log in logs if not log.origin.endswith(".previous)")] if is_ready(pod) else logs


def current_events(evidence: Evidence, pod: ClusterObject) -> list[Event]:
    """The pod's events; of a ready pod, those from before its last start are left out."""
    since = started(pod) if is_ready(pod) else ""
    return [event for event in evidence.events_of(pod) if not since or event.last > since]
