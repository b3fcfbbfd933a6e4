"""Devices that a pod was given, and that its node no longer has: by id in the runtime's message, or by its claim.

`pod_startup` asks for a pod with a node; `contradictions` asks whether a device that is said to be unknown is there. A
kubelet keeps what it has allocated in a checkpoint, also when the machine comes back with other GPUs.
"""

from __future__ import annotations

import re

from windlass.diagnose.evidence import ClusterObject, Evidence, LogLines
from windlass.diagnose.finding import Finding
from windlass.diagnose.subject import node_of
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string

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
