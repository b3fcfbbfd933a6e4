"""Answers about objects without pods: nodes, GPUs, quotas, queues, and DaemonSets that miss nodes.

`why` calls `podless_object_finding` before it looks for pods.
"""

from __future__ import annotations

import msgspec

from windlass.diagnose import gpu_stack, nodes, queue
from windlass.diagnose.contradictions import unhealed
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.fit import capacity_and_allocatable
from windlass.diagnose.node_words import down_words
from windlass.diagnose.operator_nodes import node_notes, with_repair
from windlass.diagnose.quotas import ineffective_key_finding
from windlass.diagnose.stack_components import component_of, gpu_nodes
from windlass.diagnose.subject import node_of, phase_of
from windlass.diagnose.workload_faults import exclusion_finding
from windlass.model.device import Device, node_devices
from windlass.model.digits import is_digits
from windlass.model.errors import InputError
from windlass.model.names.windlass import ALLOCATED_DEVICES_ANNOTATION, DEVICES_ANNOTATION
from windlass.model.node import Node
from windlass.model.pod import Pod


def podless_object_finding(evidence: Evidence, item: ClusterObject, now: int) -> Finding | None:
    """What is wrong with the object, or that nothing is; None for objects with pods."""
    found: Finding | None = None
    if item.kind == "ResourceQuota":
        found = ineffective_key_finding(item)
    elif item.kind in ("LocalQueue", "ClusterQueue"):
        return _of_queue(evidence, item)
    elif isinstance(item.decoded, Node):
        found = _of_node(evidence, item.decoded, now)
    elif item.kind == "GPU":
        return gpu_finding(evidence, item.name, now)
    elif item.kind == "DaemonSet":
        return _of_daemon(evidence, item)
    else:
        return None
    return found or Finding("NONE", f"nothing is wrong with {item.title}")


def _of_queue(evidence: Evidence, item: ClusterObject) -> Finding:
    is_local = item.kind == "LocalQueue"
    found = queue.local_queue_finding(evidence, item) if is_local else queue.stopped_queue_finding(item)
    waiting = queue.waiting_in(evidence, item)
    count = f"; {waiting} workload{'s wait' if waiting != 1 else ' waits'} in it" if waiting else ""
    return found or Finding("NONE", f"nothing is wrong with {item.title}{count}")


def _of_daemon(evidence: Evidence, item: ClusterObject) -> Finding | None:
    """A GPU node without GPUs on which the DaemonSet has no pod; None if one of its pods is not running.

    What advertises its GPUs is served, by this DaemonSet or by another.
    """
    pods = evidence.children(item)
    if not component_of(item) or any(phase_of(pod) not in ("Running", "Succeeded") for pod in pods):
        return None
    occupied = {node_of(pod) for pod in pods}
    for node in gpu_nodes(evidence):
        if node.name in occupied or nodes.gpu_resources(node):
            continue
        found = exclusion_finding(item, node)
        if found is not None and component_of(item) == "device plugin":
            return gpu_stack.plugin_absent_finding(evidence, node, [item])
        if found is not None:
            return found
    return None


def _of_node(evidence: Evidence, node: Node, now: int) -> Finding | None:
    """The deepest fault of the node that nothing rules out."""
    if not nodes.looks_like_gpu_node(node) and node not in gpu_nodes(evidence):
        down = nodes.unschedulable_reason(node)
        message = f"node {node.name} is {down}"
        said = down_words(evidence, node) if down else ()
        return Finding("NODE_UNSCHEDULABLE", message, said, remedy=nodes.down_remedy(node)) if down else None
    found = gpu_stack.node_cause(evidence, node, now, _unhealthy_devices(node))
    notes = tuple(node_notes(evidence, node.name))
    if notes and found is None:
        remedy = f"wait for the operator (windlass stack explain {node.name})"
        return Finding("NODE_UNSCHEDULABLE", notes[0], notes[1:], remedy=remedy)
    if found is None:
        return None
    found = msgspec.structs.replace(found, evidence=(*found.evidence, *notes))
    return with_repair(evidence, found, node.name)


def _unhealthy_devices(node: Node) -> list[Finding]:
    for name, count in nodes.gpu_resources(node).items():
        ill = nodes.unhealthy_device_count(node, name)
        if ill:
            message = f"{ill} of the {count} {name} of node {node.name} {'is' if ill == 1 else 'are'} unhealthy"
            return [Finding("DEVICE_UNHEALTHY", message)]
    return []


# One GPU, `gpu/NODE:INDEX`: `subject` makes the object that stands for it, since Kubernetes has none


FORM = "ask for gpu/NODE:INDEX, such as gpu/h100-0:3"


def gpu_finding(evidence: Evidence, name: str, now: int) -> Finding:
    """What is wrong with it, or which pods use it. Raises `InputError` where the evidence has no such GPU."""
    node, device = _find(evidence, name)
    index = device.index
    title = f"GPU {index} of node {node.name} ({device.model or 'model unknown'})"
    own = [] if device.healthy else [Finding("DEVICE_UNHEALTHY", f"{title} is unhealthy", _said(evidence, node, index))]
    found = gpu_stack.node_cause(evidence, node, now, own)
    if found is not None and (not device.healthy or found.code not in ("DEVICE_UNHEALTHY", "GPU_HW_FAULT")):
        return with_repair(evidence, found, node.name, index)
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
