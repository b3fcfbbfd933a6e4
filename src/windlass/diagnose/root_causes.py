"""Causes that stand behind what the nodes show: GPUs that nobody advertises, labels that nobody set, an autoscaler.

Fed by `why` with the cause that the nodes came to; gives it back, or the deeper one with it as a contributing cause.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from windlass.diagnose import autoscaler, gpu_stack, log_patterns, nodes, queue, unstructured
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.resource_quota import namespace_key_finding
from windlass.diagnose.sharing_config import sharing_findings
from windlass.diagnose.stack_components import gpu_nodes
from windlass.diagnose.subject import Subject
from windlass.diagnose.unschedulable import SchedulingAnalysis
from windlass.model.node import Node

FIXED_BY_NEW_NODE = (
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


def no_candidate_finding(evidence: Evidence, analysis: SchedulingAnalysis, now: int) -> Finding:
    """No node has the devices that are asked for: are there GPUs that nobody advertises?"""
    advertised = sorted({key for node in evidence.nodes.values() for key in nodes.gpu_resources(node)})
    name = next((one for one in analysis.devices if one not in advertised), next(iter(analysis.devices), ""))
    for node in gpu_nodes(evidence):
        found = gpu_stack.node_findings(evidence, node, now, name)
        if found:
            first = found[0]
            more = [one.code for one in found[1:]]
            more += _besides(analysis, node.name)
            return msgspec.structs.replace(first, contributing=(*first.contributing, *more))
    said = f"; the cluster has {', '.join(advertised)}" if advertised else ", and none looks like a GPU node"
    besides = min(
        (_besides(analysis, one.node.name) for one in analysis.never_candidates), key=len, default=[]
    )
    return Finding("RESOURCE_NAME_MISMATCH", f"no node advertises {name}{said}", contributing=tuple(besides))


def root_cause(
    evidence: Evidence,
    subject: Subject,
    finding: Finding,
    analysis: SchedulingAnalysis,
    item: ClusterObject | None,
    now: int,
) -> Finding:
    """The cause that stands behind the one that the nodes show, or that one."""
    if finding.code == "SELECTOR_MISMATCH":
        labels = gpu_stack.missing_labels_finding(evidence, analysis.pod) or _flavor_labels(
            evidence, subject, analysis
        )
        if labels is not None:
            return labels
    deeper = next(
        (one for one in _deeper(evidence, subject, finding, analysis, item, now) if one is not None), None
    )
    if deeper is not None:
        more = (*deeper.contributing, finding.code, *finding.contributing)
        return msgspec.structs.replace(deeper, contributing=more)
    keys = namespace_key_finding(evidence, analysis.pod)
    if keys is not None:
        return msgspec.structs.replace(finding, contributing=(*finding.contributing, keys.code))
    return finding


def _deeper(
    evidence: Evidence,
    subject: Subject,
    finding: Finding,
    seen: SchedulingAnalysis,
    item: ClusterObject | None,
    now: int,
) -> Iterator[Finding | None]:
    """In the order in which they are asked, one at a time: some look at every node."""
    yield _under_repair(finding, seen)
    yield _silent_node(evidence, finding, seen, now)
    yield _broken_gpus(evidence, finding, seen)
    yield _shares_not_in_force(evidence, finding, seen)
    yield _scaling(evidence, finding, seen, item)
    yield _preempted_in_vain(evidence, subject, finding)
    yield _oversold(evidence, subject, finding, seen)


def _flavor_labels(evidence: Evidence, subject: Subject, seen: SchedulingAnalysis) -> Finding | None:
    """Labels that its queue's flavor has put into the selector, and that no node has."""
    if not queue.is_admitted(subject):
        return None
    there = {(key, value) for node in evidence.nodes.values() for key, value in node.labels.items()}
    for flavor in evidence.of_kind("ResourceFlavor"):
        for key, value in unstructured.nested_map(flavor.data, "spec", "nodeLabels").items():
            if seen.pod.spec.node_selector.get(key) == value and (key, value) not in there:
                said = f"flavor {flavor.name} makes its pods select {key}={value}, which no node is labelled with"
                return Finding("KUEUE_FLAVOR_MISMATCH", said, (), ("SELECTOR_MISMATCH",), FLAVOR_REMEDY)
    return None


FLAVOR_REMEDY = "label the nodes, or correct the flavor's nodeLabels"
GPU_SHORTAGE_CODES = ("GPU_FULL", "GPU_FRAGMENTED", "REQUEST_EXCEEDS_CLUSTER", "DEVICE_UNHEALTHY")
"""Causes that say that GPUs are lacking, where there might be more than meet the eye."""


def _under_repair(finding: Finding, seen: SchedulingAnalysis) -> Finding | None:
    """A node that takes no pods because the GPU operator is at work on it."""
    if finding.code != "NODE_UNSCHEDULABLE":
        return None
    down = [one.node for one in seen.candidates if finding.code in one.permanent_codes]
    return next((found for node in down for found in gpu_stack.label_findings(node)), None)


def _scaling(
    evidence: Evidence, finding: Finding, seen: SchedulingAnalysis, item: ClusterObject | None
) -> Finding | None:
    if item is None or finding.code not in FIXED_BY_NEW_NODE:
        return None
    device = next(iter(seen.devices), "")
    return autoscaler.autoscaler_finding(evidence, item, device, bool(seen.candidates))


def _broken_gpus(evidence: Evidence, finding: Finding, seen: SchedulingAnalysis) -> Finding | None:
    """A candidate offers fewer GPUs than it has, and its kernel says why."""
    if finding.code not in GPU_SHORTAGE_CODES:
        return None
    for one in seen.candidates:
        if any(_gone(one.node, name) for name in seen.devices):
            for sighting in log_patterns.find_matches(
                gpu_stack.host_log_lines(evidence, one.node.name), log_patterns.HOST
            ):
                if sighting.code == "GPU_HW_FAULT":
                    return gpu_stack.match_finding(sighting)
    return None


def _gone(node: Node, resource: str) -> int:
    """GPUs that the node had when it was labelled, or has in its capacity, and does not offer."""
    count, replicas = (node.labels.get(f"nvidia.com/gpu.{key}", "") for key in ("count", "replicas"))
    had = int(count) * (int(replicas) if replicas.isdigit() else 1) if count.isdigit() else 0
    missing = had - nodes.gpu_resources(node).get(resource, 0) if resource == "nvidia.com/gpu" else 0
    return max(missing, nodes.unhealthy_device_count(node, resource), 0)


def _shares_not_in_force(evidence: Evidence, finding: Finding, seen: SchedulingAnalysis) -> Finding | None:
    """The GPUs would do for more pods if they were shared as the plugin's configuration says."""
    if finding.code not in GPU_SHORTAGE_CODES or not evidence.of_kind("ConfigMap"):
        return None
    for one in seen.candidates:
        for name in seen.devices:
            for found in sharing_findings(evidence, one.node, name):
                return found
    return None


def _preempted_in_vain(evidence: Evidence, subject: Subject, finding: Finding) -> Finding | None:
    """Others went so that it could start, and what they left lies apart."""
    promised = queue.is_admitted(subject) or any(
        unstructured.nested_string(pod.data, "status", "nominatedNodeName") for pod in subject.pods
    )
    if finding.code != "GPU_FRAGMENTED" or not promised:
        return None
    victims = queue.victims_of(evidence, subject)
    if not victims:
        return None
    said = f"{len(victims)} workload(s) were preempted ({', '.join(victims[:3])}), and what they left is no use to it"
    return Finding("PREEMPTION_INEFFECTIVE", f"{said}: {finding.headline}")


def _oversold(
    evidence: Evidence, subject: Subject, finding: Finding, seen: SchedulingAnalysis
) -> Finding | None:
    """Its queue has admitted it on quota that no hardware stands behind."""
    if finding.code not in ("GPU_FULL", "REQUEST_EXCEEDS_CLUSTER") or not queue.is_admitted(subject):
        return None
    for name in seen.devices:
        promised = queue.total_nominal_quota(evidence, name)
        there = sum(nodes.gpu_resources(node).get(name, 0) for node in evidence.nodes.values())
        if promised > there:
            said = f"the queues promise {promised} {name}, and the nodes have {there}"
            return Finding("KUEUE_QUOTA_MISCONFIGURED", f"{said}: it was admitted, and none is free")
    return None


def _silent_node(evidence: Evidence, finding: Finding, seen: SchedulingAnalysis, now: int) -> Finding | None:
    """The advertised GPUs are full, while a GPU node of the cluster advertises none."""
    if finding.code not in ("GPU_FULL", "GPU_FRAGMENTED", "REQUEST_EXCEEDS_CLUSTER"):
        return None
    name = next(iter(seen.devices), "")
    silent = [node for node in gpu_nodes(evidence) if not nodes.gpu_resources(node)]
    for node in silent:
        for found in gpu_stack.node_findings(evidence, node, now, name):
            more = _besides(seen, node.name)
            return msgspec.structs.replace(found, contributing=(*found.contributing, *more))
    return None


def _besides(seen: SchedulingAnalysis, node: str) -> list[str]:
    """What would keep the pod off the node even if it advertised its GPUs."""
    for one in seen.never_candidates:
        if one.node.name == node:
            return [code for code in one.permanent_codes if code != "REQUEST_EXCEEDS_CLUSTER"]
    return []
