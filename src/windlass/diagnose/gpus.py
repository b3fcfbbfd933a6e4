"""Answers about one GPU, `gpu/NODE:INDEX`: unhealthy, out of reach with its node, in use by a pod, or free.

`subject` makes the object that stands for it, since Kubernetes has none; `podless_objects` calls `gpu_finding`.
"""

from __future__ import annotations

from windlass.diagnose import gpu_stack
from windlass.diagnose.contradictions import unhealed
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.fit import capacity_and_allocatable
from windlass.model.device import Device, node_devices
from windlass.model.digits import is_digits
from windlass.model.errors import InputError
from windlass.model.names.windlass import ALLOCATED_DEVICES_ANNOTATION, DEVICES_ANNOTATION
from windlass.model.node import Node
from windlass.model.pod import Pod

FORM = "ask for gpu/NODE:INDEX, such as gpu/h100-0:3"


def gpu_finding(evidence: Evidence, name: str, now: int) -> Finding:
    """What is wrong with it, or which pods use it. Raises `InputError` where the evidence has no such GPU."""
    node, device = _find(evidence, name)
    index = device.index
    title = f"GPU {index} of node {node.name} ({device.model or 'model unknown'})"
    own = [] if device.healthy else [Finding("DEVICE_UNHEALTHY", f"{title} is unhealthy", _said(evidence, node, index))]
    found = gpu_stack.node_cause(evidence, node, now, own)
    if found is not None and (not device.healthy or found.code not in ("DEVICE_UNHEALTHY", "GPU_HW_FAULT")):
        return found
    users = [pod.title for pod in evidence.pods_on(node.name) if index in _held(pod)]
    use = f"used by {', '.join(users)}" if users else "free"
    return Finding("NONE", f"nothing is wrong: {title} is {use}")


def _find(evidence: Evidence, name: str) -> tuple[Node, Device]:
    node, index = evidence.nodes.get(name.rpartition(":")[0]), name.rpartition(":")[2]
    if node is None or not is_digits(index):
        raise InputError(f"there is no gpu/{name} in the evidence", remedy=FORM)
    capacity, allocatable = capacity_and_allocatable(node)
    devices = node_devices(node, allocatable, capacity)
    if int(index) >= len(devices):
        raise InputError(f"there is no gpu/{name}: node {node.name} has {len(devices)} GPUs", remedy=FORM)
    return node, devices[int(index)]


def _said(evidence: Evidence, node: Node, index: int) -> tuple[str, ...]:
    """Events of the node that name the GPU by its index."""
    item = evidence.get("Node", "", node.name)
    events = unhealed(evidence.events_of(item)) if item is not None else []
    return tuple(event.message for event in events if event.message.startswith(f"GPU {index} "))[-2:]


def _held(pod: ClusterObject) -> set[int]:
    """Indices of the GPUs that a running pod holds, as its kubelet reported or its scheduler chose them."""
    if isinstance(pod.decoded, Pod) and pod.decoded.is_terminal:
        return set()
    text = pod.annotations.get(ALLOCATED_DEVICES_ANNOTATION) or pod.annotations.get(DEVICES_ANNOTATION, "")
    return {int(part) for part in (part.strip() for part in text.split(",")) if is_digits(part)}
