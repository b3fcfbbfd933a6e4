"""Root causes behind what the nodes show: GPUs that are not advertised, missing labels, the autoscaler.

`why` calls `root_cause` with the finding of `unschedulable`. It returns that finding, or the root cause with the other
as contributing.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from windlass.diagnose import autoscaler, gpu_stack, log_patterns, nodes, queue
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.resource_quota import namespace_key_finding
from windlass.diagnose.sharing_config import sharing_findings
from windlass.diagnose.stack_components import gpu_nodes
from windlass.diagnose.subject import Subject
from windlass.diagnose.unschedulable import SchedulingAnalysis
from windlass.diagnose.unstructured import nested_map, nested_string
from windlass.model.digits import is_digits
from windlass.model.names.nvidia import GPU_RESOURCE
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
"""Causes that a new node would remove: what the autoscaler reports takes precedence over them."""


def no_candidate_finding(evidence: Evidence, analysis: SchedulingAnalysis, now: int) -> Finding:
    """No node has the requested devices: looks for GPU nodes that advertise none, else reports the name."""
    advertised = sorted({key for node in evidence.nodes.values() for key in nodes.gpu_resources(node)})
    name = next((device for device in analysis.devices if device not in advertised), next(iter(analysis.devices), ""))
    for node in gpu_nodes(evidence):
        found = gpu_stack.node_findings(evidence, node, now, name)
        if found:
            first = found[0]
            more = [*(finding.code for finding in found[1:]), *_permanent_codes_on(analysis, node.name)]
            return msgspec.structs.replace(first, contributing=(*first.contributing, *more))
    detail = f"; the cluster has {', '.join(advertised)}" if advertised else ", and none looks like a GPU node"
    also = min(
        (_permanent_codes_on(analysis, candidate.node.name) for candidate in analysis.never_candidates),
        key=len,
        default=[],
    )
    return Finding("RESOURCE_NAME_MISMATCH", f"no node advertises {name}{detail}", contributing=tuple(also))


def root_cause(
    evidence: Evidence,
    subject: Subject,
    finding: Finding,
    analysis: SchedulingAnalysis,
    item: ClusterObject | None,
    now: int,
) -> Finding:
    """The cause behind `finding`, or `finding` itself."""
    if finding.code == "SELECTOR_MISMATCH":
        labels = gpu_stack.missing_labels_finding(evidence, analysis.pod) or _flavor_labels(evidence, subject, analysis)
        if labels is not None:
            return labels
    deeper = next(
        (
            deeper_finding
            for deeper_finding in _deeper(evidence, subject, finding, analysis, item, now)
            if deeper_finding is not None
        ),
        None,
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
    analysis: SchedulingAnalysis,
    item: ClusterObject | None,
    now: int,
) -> Iterator[Finding | None]:
    """Candidates for the root cause, deepest first. Lazy, since some of them look at every node."""
    yield _under_repair(finding, analysis)
    yield _unadvertised_gpus(evidence, finding, analysis, now)
    yield _broken_gpus(evidence, finding, analysis)
    yield _sharing_not_applied(evidence, finding, analysis)
    yield _scaling(evidence, finding, analysis, item)
    yield _ineffective_preemption(evidence, subject, finding)
    yield _quota_above_capacity(evidence, subject, finding, analysis)


def _flavor_labels(evidence: Evidence, subject: Subject, analysis: SchedulingAnalysis) -> Finding | None:
    """Labels that the flavor of its queue added to the node selector, and that no node has."""
    if not queue.is_admitted(subject):
        return None
    node_labels = {(key, value) for node in evidence.nodes.values() for key, value in node.labels.items()}
    for flavor in evidence.of_kind("ResourceFlavor"):
        for key, value in nested_map(flavor.data, "spec", "nodeLabels").items():
            if analysis.pod.spec.node_selector.get(key) == value and (key, value) not in node_labels:
                message = f"flavor {flavor.name} selects nodes by {key}={value}, and no node has that label"
                return Finding("KUEUE_FLAVOR_MISMATCH", message, (), ("SELECTOR_MISMATCH",), FLAVOR_REMEDY)
    return None


FLAVOR_REMEDY = "label the nodes, or correct the flavor's nodeLabels"
GPU_SHORTAGE_CODES = ("GPU_FULL", "GPU_FRAGMENTED", "REQUEST_EXCEEDS_CLUSTER", "DEVICE_UNHEALTHY")
"""Causes of too few GPUs, where a node may have more than it advertises."""


def _under_repair(finding: Finding, analysis: SchedulingAnalysis) -> Finding | None:
    """A node that takes no pods because the GPU operator reconfigures it."""
    if finding.code != "NODE_UNSCHEDULABLE":
        return None
    down = [candidate.node for candidate in analysis.candidates if finding.code in candidate.permanent_codes]
    return next((found for node in down for found in gpu_stack.label_findings(node)), None)


def _scaling(
    evidence: Evidence, finding: Finding, analysis: SchedulingAnalysis, item: ClusterObject | None
) -> Finding | None:
    if item is None or finding.code not in FIXED_BY_NEW_NODE:
        return None
    device = next(iter(analysis.devices), "")
    return autoscaler.autoscaler_finding(evidence, item, device, bool(analysis.candidates))


def _broken_gpus(evidence: Evidence, finding: Finding, analysis: SchedulingAnalysis) -> Finding | None:
    """A candidate advertises fewer GPUs than it has, and its kernel log has a hardware fault."""
    if finding.code not in GPU_SHORTAGE_CODES:
        return None
    for candidate in analysis.candidates:
        if any(_missing_devices(candidate.node, name) for name in analysis.devices):
            for sighting in log_patterns.find_matches(
                gpu_stack.host_log_lines(evidence, candidate.node.name), log_patterns.HOST
            ):
                if sighting.code == "GPU_HW_FAULT":
                    return gpu_stack.match_finding(sighting)
    return None


def _missing_devices(node: Node, resource: str) -> int:
    """How many devices its labels or its capacity count beyond what is advertised or allocatable."""
    count, replicas = (node.labels.get(f"nvidia.com/gpu.{key}", "") for key in ("count", "replicas"))
    had = int(count) * (int(replicas) if is_digits(replicas) else 1) if is_digits(count) else 0
    missing = had - nodes.gpu_resources(node).get(resource, 0) if resource == GPU_RESOURCE else 0
    return max(missing, nodes.unhealthy_device_count(node, resource), 0)


def _sharing_not_applied(evidence: Evidence, finding: Finding, analysis: SchedulingAnalysis) -> Finding | None:
    """The sharing configuration promises more devices than the node advertises."""
    if finding.code not in GPU_SHORTAGE_CODES or not evidence.of_kind("ConfigMap"):
        return None
    for candidate in analysis.candidates:
        for name in analysis.devices:
            for found in sharing_findings(evidence, candidate.node, name):
                return found
    return None


def _ineffective_preemption(evidence: Evidence, subject: Subject, finding: Finding) -> Finding | None:
    """Workloads were preempted for it, but the freed GPUs are fragmented."""
    promised = queue.is_admitted(subject) or any(
        nested_string(pod.data, "status", "nominatedNodeName") for pod in subject.pods
    )
    if finding.code != "GPU_FRAGMENTED" or not promised:
        return None
    victims = queue.victims_of(evidence, subject)
    if not victims:
        return None
    named = ", ".join(victims[:3])
    message = f"{len(victims)} workload(s) were preempted ({named}), but what they freed does not fit it"
    return Finding("PREEMPTION_INEFFECTIVE", f"{message}: {finding.headline}")


def _quota_above_capacity(
    evidence: Evidence, subject: Subject, finding: Finding, analysis: SchedulingAnalysis
) -> Finding | None:
    """It was admitted, but the queues have more quota than the nodes have devices."""
    if finding.code not in ("GPU_FULL", "REQUEST_EXCEEDS_CLUSTER") or not queue.is_admitted(subject):
        return None
    for name in analysis.devices:
        promised = queue.total_nominal_quota(evidence, name)
        capacity = sum(nodes.gpu_resources(node).get(name, 0) for node in evidence.nodes.values())
        if promised > capacity:
            message = f"the nominal quota of all queues is {promised} {name}, but the nodes have {capacity}"
            return Finding("KUEUE_QUOTA_MISCONFIGURED", f"{message}; it was admitted, and none is free")
    return None


def _unadvertised_gpus(evidence: Evidence, finding: Finding, analysis: SchedulingAnalysis, now: int) -> Finding | None:
    """All advertised GPUs are in use, but another GPU node advertises none."""
    if finding.code not in ("GPU_FULL", "GPU_FRAGMENTED", "REQUEST_EXCEEDS_CLUSTER"):
        return None
    name = next(iter(analysis.devices), "")
    for node in (node for node in gpu_nodes(evidence) if not nodes.gpu_resources(node)):
        for found in gpu_stack.node_findings(evidence, node, now, name):
            more = _permanent_codes_on(analysis, node.name)
            return msgspec.structs.replace(found, contributing=(*found.contributing, *more))
    return None


def _permanent_codes_on(analysis: SchedulingAnalysis, node: str) -> list[str]:
    """Causes that would keep the pod off the node even if it advertised its GPUs."""
    for candidate in analysis.never_candidates:
        if candidate.node.name == node:
            return [code for code in candidate.permanent_codes if code != "REQUEST_EXCEEDS_CLUSTER"]
    return []
