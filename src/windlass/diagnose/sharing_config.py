"""Compares the device plugin's sharing configuration with what the node advertises.

Called by `gpu_stack` and `root_causes` for one node. The ConfigMap is read with the node agent's own parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import yaml

from windlass.diagnose import nodes
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.unstructured import nested_map
from windlass.model.digits import is_digits
from windlass.model.errors import InputError
from windlass.model.names.nvidia import DEVICE_PLUGIN_CONFIG_LABEL, GPU_COUNT_LABEL
from windlass.model.node import Node
from windlass.sharing.plugin_config import resolve_config
from windlass.sharing.sharing_config import Sharing


def sharing_findings(evidence: Evidence, node: Node, resource: str) -> list[Finding]:
    """Devices that the configuration promises on this node and the node does not advertise."""
    offered = nodes.gpu_resources(node)
    for item, name, text in _configs(evidence, node):
        if resource.endswith(".shared"):
            if resource not in offered:
                return [_misplaced(item, name, text, node, resource)]
            continue
        promised = _promised(text, node, resource)
        if 0 < offered.get(resource, 0) < promised:
            message = (
                f"ConfigMap {item.name}, key {name}, promises {promised} {resource} on node {node.name}, but "
                f"the node advertises {offered[resource]}"
            )
            return [Finding("SHARING_CONFIG_NOT_APPLIED", message)]
    return []


def _configs(evidence: Evidence, node: Node) -> Iterator[tuple[ClusterObject, str, str]]:
    """(ConfigMap, key, text) of the configurations for the node: the one of its label, else all."""
    chosen = node.labels.get(DEVICE_PLUGIN_CONFIG_LABEL, "")
    for item in evidence.of_kind("ConfigMap"):
        texts = nested_map(item.data, "data")
        for name, text in texts.items():
            shares = isinstance(text, str) and ("timeSlicing" in text or "mps:" in text)
            if shares and (not chosen or name == chosen or chosen not in texts):
                yield item, name, text


def _promised(text: str, node: Node, resource: str) -> int:
    """How many of the resource the node would advertise with it; 0 if it is not shared under this name."""
    sharing = _read(text)
    count = node.labels.get(GPU_COUNT_LABEL, "1")
    for entry in sharing.resources if sharing is not None else ():
        if entry.name == resource and not entry.rename and not (sharing and sharing.rename_by_default):
            return entry.replicas * (int(count) if is_digits(count) else 1)
    return 0


@lru_cache(maxsize=64)
def _read(text: str) -> Sharing | None:
    try:
        return resolve_config(yaml.load(text, Loader=yaml.CSafeLoader)).sharing
    except (yaml.YAMLError, InputError, ValueError):
        return None  # `check` says what is wrong with it


def _misplaced(item: ClusterObject, name: str, text: str, node: Node, resource: str) -> Finding:
    has = ", ".join(f"{key}={amount}" for key, amount in nodes.gpu_resources(node).items()) or "no GPU resource"
    before_sharing = text.split("sharing:", 1)[0]
    why = f"ConfigMap {item.name}, key {name}, asks for sharing, and node {node.name} advertises {has}, not {resource}"
    remedy = ""
    if "renameByDefault" in before_sharing:
        remedy = "move renameByDefault under sharing.timeSlicing (or sharing.mps); under flags it is ignored"
    elif "renameByDefault" not in text:
        remedy = "set renameByDefault: true under sharing.timeSlicing, or ask for nvidia.com/gpu"
    return Finding("SHARING_CONFIG_NOT_APPLIED", why, (), (), remedy)
