"""Devices that a node should advertise, by the plugin's sharing configuration or the MIG layout of its label.

Called by `gpu_stack` and `root_causes` for one node. What makes the one the other (the device plugin, the MIG manager)
may be failing, or may not run there at all. The ConfigMap is read with the node agent's own parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import yaml

from windlass.diagnose import nodes
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.unstructured import nested_map
from windlass.model.digits import is_digits
from windlass.model.errors import InputError
from windlass.model.mig import mig_resource_name
from windlass.model.names.nvidia import (
    DEVICE_PLUGIN_CONFIG_LABEL,
    GPU_COUNT_LABEL,
    MIG_CONFIG_LABEL,
    MIG_CONFIG_STATE_LABEL,
)
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
        promised = promised_devices(text, node)
        has = offered.get(resource, 0)
        if 0 < has < promised.get(resource, 0):
            message = (
                f"ConfigMap {item.name}, key {name}, promises {promised[resource]} {resource} on node {node.name}, but "
                f"the node advertises {has}"
            )
            return [Finding("SHARING_CONFIG_NOT_APPLIED", message)]
        if has and DEVICE_PLUGIN_CONFIG_LABEL in node.labels and not set(promised) & set(offered):
            found = _not_renamed(item, name, promised, node, resource)
            if found is not None:
                return [found]
    return []


def _not_renamed(item: ClusterObject, name: str, promised: dict[str, int], node: Node, resource: str) -> Finding | None:
    """The node's label chooses a configuration that renames the resource, and the node has the old name only."""
    renamed = f"{resource}.shared"
    if renamed not in promised:
        return None
    message = (
        f"ConfigMap {item.name}, key {name}, which the label of node {node.name} chooses, promises "
        f"{promised[renamed]} {renamed}, but the node advertises {nodes.gpu_resources(node)[resource]} {resource}"
    )
    remedy = f"see why the device plugin does not read the configuration, then ask for {renamed}"
    return Finding("SHARING_CONFIG_NOT_APPLIED", message, (), ("RESOURCE_NAME_MISMATCH",), remedy)


def promised_by_configs(evidence: Evidence, node: Node) -> dict[str, int]:
    """What the node would advertise if the sharing configuration for it were applied."""
    found: dict[str, int] = {}
    for _, _, text in _configs(evidence, node):
        for resource, amount in promised_devices(text, node).items():
            found[resource] = max(found.get(resource, 0), amount)
    return found


def _configs(evidence: Evidence, node: Node) -> Iterator[tuple[ClusterObject, str, str]]:
    """(ConfigMap, key, text) of the configurations for the node: the one of its label, else all."""
    chosen = node.labels.get(DEVICE_PLUGIN_CONFIG_LABEL, "")
    for item, name, text in evidence.sharing_configs:
        if not chosen or name == chosen or chosen not in nested_map(item.data, "data"):
            yield item, name, text


def promised_devices(text: str, node: Node) -> dict[str, int]:
    """Resource → how many the node would advertise with this configuration, under the names that it gives."""
    sharing = _read(text)
    count = node.labels.get(GPU_COUNT_LABEL, "1")
    found: dict[str, int] = {}
    for entry in sharing.resources if sharing is not None else ():
        found[entry.shared_name] = entry.replicas * (int(count) if is_digits(count) else 1)
    return found


@lru_cache(maxsize=64)
def _read(text: str) -> Sharing | None:
    try:
        return resolve_config(yaml.load(text, Loader=yaml.CSafeLoader)).sharing
    except (yaml.YAMLError, InputError, ValueError):
        return None  # `check` says what is wrong with it


def _misplaced(item: ClusterObject, name: str, text: str, node: Node, resource: str) -> Finding:
    has = ", ".join(f"{key}={amount}" for key, amount in nodes.gpu_resources(node).items()) or "no GPU resource"
    before_sharing = text.split("sharing:", 1)[0]
    why = (
        f"ConfigMap {item.name}, key {name}, asks for sharing, and node {node.name} advertises {has}; "
        f"expected {resource}"
    )
    remedy = ""
    if "renameByDefault" in before_sharing:
        remedy = "move renameByDefault under sharing.timeSlicing (or sharing.mps); under flags it is ignored"
    elif "renameByDefault" not in text:
        remedy = "set renameByDefault: true under sharing.timeSlicing, or ask for nvidia.com/gpu"
    return Finding("SHARING_CONFIG_NOT_APPLIED", why, (), (), remedy)


# MIG layouts


STRATEGY_LABEL = "nvidia.com/mig.strategy"
UNIFORM = re.compile(r"all-(([1-7])g\.\d+gb(\.me(\.all)?)?)")
"""Layouts of mig-parted's own file that cut every GPU into instances of one profile."""
MOST_INSTANCES = 7


def promised_instances(node: Node) -> dict[str, int]:
    """Resource → instances that the node would advertise with the layout of its label, and does not."""
    layout = UNIFORM.fullmatch(node.labels.get(MIG_CONFIG_LABEL, ""))
    if layout is None or node.labels.get(STRATEGY_LABEL, "mixed") != "mixed":
        return {}
    resource = mig_resource_name(layout[1].replace(".me", "+me"))
    if nodes.gpu_resources(node).get(resource) or node.labels.get(MIG_CONFIG_STATE_LABEL) == "success":
        return {}
    count = node.labels.get(GPU_COUNT_LABEL, "")
    return {resource: (int(count) if is_digits(count) else 1) * (MOST_INSTANCES // int(layout[2]))}
