"""Causes that stand behind what the nodes show: GPUs that nobody advertises, labels that nobody set, an autoscaler.

Fed by `why` with the cause that the nodes came to; gives it back, or the deeper one with it as a contributing cause.
"""

from __future__ import annotations

import msgspec

from windlass.diagnose import autoscale, nodes, stack
from windlass.diagnose.evidence import Evidence, Item
from windlass.diagnose.finding import Finding
from windlass.diagnose.quota import quota_key_finding
from windlass.diagnose.schedule import Scheduling

SCALABLE = (
    "GPU_FULL",
    "GPU_FRAGMENTED",
    "SELECTOR_MISMATCH",
    "RESOURCE_NAME_MISMATCH",
    "CPU_MEM_INSUFFICIENT",
    "REQUEST_EXCEEDS_CLUSTER",
    "POD_COUNT_LIMIT",
    "DEVICE_PLUGIN_ABSENT",
    "NODE_UNSCHEDULABLE",
)
"""Causes that a new node would cure, so that the autoscaler's word stands before them."""


def no_candidate(evidence: Evidence, seen: Scheduling, now: int) -> Finding:
    """No node has the devices that are asked for: are there GPUs that nobody advertises?"""
    name = next(iter(seen.devices), "")
    for node in nodes.gpu_nodes(evidence):
        found = stack.node_findings(evidence, node, now, name)
        if found:
            first = found[0]
            more = [one.code for one in found[1:]]
            more += _besides(seen, node.name)
            return msgspec.structs.replace(first, contributing=(*first.contributing, *more))
    advertised = sorted({key for node in evidence.nodes.values() for key in nodes.gpu_resources(node)})
    said = f"; the cluster has {', '.join(advertised)}" if advertised else ", and none looks like a GPU node"
    besides = min((_besides(seen, one.node.name) for one in seen.others), key=len, default=[])
    return Finding("RESOURCE_NAME_MISMATCH", f"no node advertises {name}{said}", contributing=tuple(besides))


def overruled(evidence: Evidence, finding: Finding, seen: Scheduling, item: Item | None, now: int) -> Finding:
    """The cause that stands behind the one that the nodes show, or that one."""
    if finding.code == "SELECTOR_MISMATCH":
        labels = stack.labels_missing(evidence, seen.pod)
        if labels is not None:
            return labels
    silent = _silent_node(evidence, finding, seen, now)
    if silent is not None:
        return silent
    device = next(iter(seen.devices), "")
    scaling = autoscale.autoscaler_finding(evidence, item, device) if item else None
    if scaling is not None and finding.code in SCALABLE:
        return msgspec.structs.replace(scaling, contributing=(*scaling.contributing, finding.code))
    keys = quota_key_finding(evidence, seen.pod)
    if keys is not None:
        return msgspec.structs.replace(finding, contributing=(*finding.contributing, keys.code))
    return finding


def _silent_node(evidence: Evidence, finding: Finding, seen: Scheduling, now: int) -> Finding | None:
    """The advertised GPUs are full, while a GPU node of the cluster advertises none."""
    if finding.code not in ("GPU_FULL", "GPU_FRAGMENTED", "REQUEST_EXCEEDS_CLUSTER"):
        return None
    name = next(iter(seen.devices), "")
    silent = [node for node in nodes.gpu_nodes(evidence) if not nodes.gpu_resources(node)]
    for node in silent:
        for found in stack.node_findings(evidence, node, now, name):
            more = (finding.code, *_besides(seen, node.name))
            return msgspec.structs.replace(found, contributing=(*found.contributing, *more))
    return None


def _besides(seen: Scheduling, node: str) -> list[str]:
    """What would keep the pod off the node even if it advertised its GPUs."""
    for one in seen.others:
        if one.node.name == node:
            return [code for code in one.fixed if code != "REQUEST_EXCEEDS_CLUSTER"]
    return []
