"""Why no node takes a pod: the engine's cause in words, with node names and numbers.

`why` calls `analyze_pod` and `explain_cause` for each waiting pod. The engine's rule (`placement.explain.cause`) names
the cause. This module adds what the engine does not count: unhealthy devices, and CPU used by pods without GPUs.
"""

from __future__ import annotations

import msgspec

from windlass.diagnose import nodes
from windlass.diagnose.conflict_names import SPLIT_REMEDY, port_conflict, split_claims, volume_conflict
from windlass.diagnose.evidence import Evidence
from windlass.diagnose.finding import Finding, NodeSummary
from windlass.diagnose.fit import FitChecker, NodeFit, capacity_and_allocatable
from windlass.diagnose.node_words import down_words
from windlass.model.fragmentation import describe_fragmentation
from windlass.model.names.kubernetes import DISK_PRESSURE_TAINT
from windlass.model.node import Node
from windlass.model.pod import Pod, TopologySpreadConstraint
from windlass.model.reasons import CAPACITY, HEALTH
from windlass.model.requests import format_amount, pod_requests
from windlass.model.taints import taint_code
from windlass.placement.explain.cause import CAUSE_ORDER, cause_rank
from windlass.placement.explain.node_reasons import TOO_SMALL_CODES

GPU_CAPACITY_CODES = ("GPU_FULL", "GPU_FRAGMENTED", "TOPOLOGY_MANAGER_REFUSED")
DEVICE_CODES = (*GPU_CAPACITY_CODES, "REQUEST_EXCEEDS_CLUSTER", "RESOURCE_NAME_MISMATCH", "DEVICE_UNHEALTHY")
"""Causes that unhealthy devices may explain."""


class Candidate(msgspec.Struct, frozen=True):
    """A node, and why it does not take the pod."""

    node: Node
    fit: NodeFit
    permanent_codes: tuple[str, ...]
    """Causes that stay if the node's pods end."""
    capacity_codes: tuple[str, ...]
    """Causes that go away if the node's pods end."""

    @property
    def codes(self) -> tuple[str, ...]:
        return (*self.permanent_codes, *self.capacity_codes)


class SchedulingAnalysis(msgspec.Struct, frozen=True):
    """What every node says about one waiting pod; `count` is the number of identical pods that wait."""

    pod: Pod
    count: int
    requests: dict[str, int]
    devices: dict[str, int]
    candidates: tuple[Candidate, ...]
    never_candidates: tuple[Candidate, ...]
    """Nodes that lack the requested devices altogether."""

    @property
    def feasible(self) -> list[str]:
        return [candidate.fit.node for candidate in self.candidates if not candidate.codes]


def analyze_pod(evidence: Evidence, fit: FitChecker, pod: Pod, count: int = 1) -> SchedulingAnalysis:
    """Raises `InputError` for a pod that can't be read."""
    requests = pod_requests(pod)
    devices = nodes.device_requests(requests)
    answers = [
        (evidence.nodes[node_fit.node], node_fit) for node_fit in fit.node_fits(pod) if node_fit.node in evidence.nodes
    ]
    if devices:
        chosen = [pair for pair in answers if _has_devices(pair[0], devices)]
    else:
        chosen = [pair for pair in answers if not _is_excluded(pair[1])] or answers
    names = {node.name for node, _ in chosen}
    judged = [Candidate(node, node_fit, *_causes(node, node_fit, pod)) for node, node_fit in answers]
    return SchedulingAnalysis(
        pod,
        count,
        requests,
        devices,
        tuple(candidate for candidate in judged if candidate.node.name in names),
        tuple(candidate for candidate in judged if candidate.node.name not in names),
    )


def _has_devices(node: Node, devices: dict[str, int]) -> bool:
    return all(capacity_and_allocatable(node)[0].get(name, 0) for name in devices)


def _is_excluded(node_fit: NodeFit) -> bool:
    return any(reason.name in ("NODE_AFFINITY", "NODE_NAME") for reason in node_fit.reasons)


def _causes(node: Node, node_fit: NodeFit, pod: Pod) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(permanent codes, capacity codes) of a `Candidate`."""
    permanent: list[str] = []
    capacity: list[str] = []
    for reason in node_fit.reasons:
        if reason.name == "TAINT":
            permanent += [taint_code(taint.key) for taint in nodes.blocking_taints(node, pod)]
        elif reason.kind in (CAPACITY, HEALTH):
            capacity.append(reason.code)
        else:
            permanent.append(reason.code)
    for name, lacking in node_fit.shortfall_when_empty.items():
        permanent.append(
            "DEVICE_UNHEALTHY"
            if nodes.unhealthy_device_count(node, name) >= lacking
            else TOO_SMALL_CODES.get(name, "REQUEST_EXCEEDS_CLUSTER")
        )
    # A cordoned node that the pod does not select is not a reason to uncordon it.
    if permanent and "SELECTOR_MISMATCH" not in permanent and nodes.unschedulable_reason(node):
        permanent.append("NODE_UNSCHEDULABLE")
    return tuple(dict.fromkeys(permanent)), tuple(dict.fromkeys(capacity))


def explain_cause(evidence: Evidence, fit: FitChecker, analysis: SchedulingAnalysis, code: str) -> Finding:
    """The engine's cause `code` with what the nodes show, or a deeper cause. No candidate may be feasible."""
    variant = _product_variant(analysis)
    if variant is not None:
        return variant
    unhealthy = _fits_without_faults(fit, analysis)
    if unhealthy and code in DEVICE_CODES:
        return _unhealthy(fit, unhealthy[0], analysis)
    if code in GPU_CAPACITY_CODES:
        return _gpu_capacity_finding(fit, analysis, code)
    # Codes are only capacity codes here: the node would take the pod once others have ended.
    usable = [candidate for candidate in analysis.candidates if not candidate.permanent_codes]
    usable = [candidate for candidate in usable if code in candidate.capacity_codes]
    if usable:
        return _shortfall_finding(evidence, analysis, usable, code)
    return _refused(evidence, analysis, code)


# Nodes that would take the pod if fewer pods ran on them


def _device(analysis: SchedulingAnalysis) -> tuple[str, int]:
    """(name, amount) of the device resource that most nodes lack; of several, that of which the pod requests most."""

    def rank(pair: tuple[str, int]) -> tuple[int, int]:
        usable = (candidate for candidate in analysis.candidates if not candidate.permanent_codes)
        return sum(pair[0] in candidate.fit.shortfall for candidate in usable), pair[1]

    return max(analysis.devices.items(), key=rank, default=("", 0))


def _fits_without_faults(fit: FitChecker, analysis: SchedulingAnalysis) -> list[Candidate]:
    """Nodes with enough devices by capacity, of which some are unhealthy. The engine counts allocatable only."""
    name, need = _device(analysis)
    return [
        candidate
        for candidate in analysis.candidates
        if set(candidate.permanent_codes) <= {"DEVICE_UNHEALTHY"}
        and nodes.unhealthy_device_count(candidate.node, name)
        and fit.free(candidate.node.name, name) + nodes.unhealthy_device_count(candidate.node, name) >= need
    ]


def _gpu_capacity_finding(fit: FitChecker, analysis: SchedulingAnalysis, code: str) -> Finding:
    name, need = _device(analysis)
    free = _free(fit, analysis)
    total, wanted, remedy = sum(free.values()), need * analysis.count, ""
    if not name:
        message = "no matching GPU has enough left for the requested share"
    elif code == "GPU_FULL":
        message = f"too few {name} are free: {total} on {len(free)} matching node{_plural(len(free))}, {wanted} needed"
        message += _free_beside(fit, analysis, name)
    elif max(free.values(), default=0) >= need:  # the node has enough: what is in the way lies inside it
        reasons = (reason for candidate in analysis.candidates for reason in candidate.fit.reasons)
        message = next((reason.message for reason in reasons if reason.code == code), "")
    elif total >= wanted:
        message = fragmentation_message(fit, analysis, 0)
    else:
        message = f"no GPU of {len(free)} matching node{_plural(len(free))} has free slices where {name} may begin"
        remedy = "ask for a smaller profile, or change the node's MIG layout (windlass plan mig)"
    return Finding(code, message, _free_by_node(free, name), _other_codes(analysis), remedy)


def _free_beside(fit: FitChecker, analysis: SchedulingAnalysis, name: str) -> str:
    """That the node's GPUs are free where another device is what is missing."""
    if nodes.is_gpu_name(name) and "gpu" in name:
        return ""
    usable = [candidate.node.name for candidate in analysis.candidates if not candidate.permanent_codes]
    for other in analysis.devices:
        left = sum(max(0, fit.free(node, other)) for node in usable)
        if other != name and left:
            return f"; {left} {other} are free beside"
    return ""


def fragmentation_message(fit: FitChecker, analysis: SchedulingAnalysis, fitting: int) -> str:
    """How the free devices are spread, where their total is enough; `fitting` of the pods find a node."""
    name, need = _device(analysis)
    return describe_fragmentation(_free(fit, analysis).values(), need, analysis.count, fitting, name)


def _free(fit: FitChecker, analysis: SchedulingAnalysis) -> dict[str, int]:
    """Free devices by node, of nodes without permanent causes."""
    name = _device(analysis)[0]
    usable = [candidate.node.name for candidate in analysis.candidates if not candidate.permanent_codes]
    return {node: max(0, fit.free(node, name)) for node in usable}


def _free_by_node(free: dict[str, int], name: str) -> tuple[str, ...]:
    if not any(free.values()):
        return ()
    listed = ", ".join(f"{node} {amount}" for node, amount in sorted(free.items(), key=lambda item: -item[1])[:6])
    return (f"free {name}: {listed}",)


def _unhealthy(fit: FitChecker, candidate: Candidate, analysis: SchedulingAnalysis) -> Finding:
    node, (name, need) = candidate.node, _device(analysis)
    count, total = nodes.unhealthy_device_count(node, name), capacity_and_allocatable(node)[0].get(name, 0)
    free = max(0, fit.free(node.name, name))
    message = (
        f"{count} of the {total} {name} of node {node.name} {'is' if count == 1 else 'are'} unhealthy (capacity above "
        f"allocatable); {need} needed, {free} healthy and free"
    )
    remedy = "look for Xid messages in the node's kernel log, then reset or replace the GPU, or restart the plugin"
    if not free:
        remedy = "delete the pod on the unhealthy GPU or drain the node; look for Xid messages in its kernel log"
    return Finding("DEVICE_UNHEALTHY", message, (), _other_codes(analysis), remedy)


def _shortfall_finding(evidence: Evidence, analysis: SchedulingAnalysis, usable: list[Candidate], code: str) -> Finding:
    """CPU, memory, disk or pod slots of the nodes are used up, not devices."""

    def distance(candidate: Candidate) -> tuple[int, int, str]:
        shortfall = candidate.fit.shortfall
        return len(shortfall), sum(shortfall.values()), candidate.node.name

    best = min(usable, key=distance)
    short = {name: amount for name, amount in best.fit.shortfall.items() if name not in analysis.devices}
    others = _other_codes(analysis)
    if not short:
        return Finding(code, contributing=others)
    name = next(iter(short))
    what = ", ".join(f"{format_amount(resource, amount)} {resource}" for resource, amount in short.items())
    is_stranded = code == "CPU_MEM_INSUFFICIENT" and bool(analysis.devices)
    if is_stranded and _used_by_cpu_pods(evidence, best, name) >= short[name]:
        message = f"GPUs are free on {best.node.name}, but pods without GPUs use its {name}; the node lacks {what}"
        return Finding("GPU_STRANDED", message, contributing=others)
    where = f"node {best.node.name} has the GPUs, but" if analysis.devices else f"node {best.node.name}"
    if name == "pods":
        limit = capacity_and_allocatable(best.node)[1].get("pods", 0)
        return Finding(code, f"{where} has all the pods that its limit of {limit} allows", contributing=others)
    return Finding(code, f"{where} lacks {what}", contributing=others)


def _used_by_cpu_pods(evidence: Evidence, candidate: Candidate, resource: str) -> int:
    """How much of the resource is requested by pods without devices. DaemonSet pods can't move and don't count."""
    total = 0
    for item in evidence.pods_on(candidate.node.name):
        pod = item.decoded
        if isinstance(pod, Pod) and not pod.is_terminal and "DaemonSet" not in [kind for kind, _, _ in item.owners]:
            requests = pod_requests(pod)
            total += 0 if nodes.device_requests(requests) else requests.get(resource, 0)
    return total


def _other_codes(analysis: SchedulingAnalysis) -> tuple[str, ...]:
    """Permanent causes on nodes with enough free resources, and on nodes that take no pods."""
    codes = {
        code
        for candidate in analysis.candidates
        if not candidate.fit.shortfall or "NODE_UNSCHEDULABLE" in candidate.permanent_codes
        for code in candidate.permanent_codes
        if code in CAUSE_ORDER
    }
    return tuple(sorted(codes, key=cause_rank))


# Nodes that would not take the pod even when empty


def _refused(evidence: Evidence, analysis: SchedulingAnalysis, code: str) -> Finding:
    def distance(candidate: Candidate) -> tuple[bool, int, bool, int]:
        # Resources that the node lacks although its pods would leave enough if they ended.
        occupied = set(candidate.fit.shortfall) - set(candidate.fit.shortfall_when_empty)
        devices = sum(candidate.fit.shortfall_when_empty.get(name, 0) for name in analysis.devices)
        return code not in candidate.codes, len(set(candidate.permanent_codes)), bool(occupied), devices

    example = min(analysis.candidates, key=distance)
    elsewhere = {code for candidate in analysis.candidates for code in candidate.codes} - {"GPU_FULL"}
    others = tuple(sorted({*example.codes, *elsewhere} - {code}, key=cause_rank))
    message = _refusal_message(code, example, analysis)
    if code == "HOST_PORT_CONFLICT":
        message = port_conflict(evidence, example.node, analysis.pod)
    remedy = nodes.down_remedy(example.node) if code == "NODE_UNSCHEDULABLE" else REMEDIES.get(code, "")
    if code == "STORAGE_INSUFFICIENT":
        split = split_claims(evidence, analysis.pod)
        message, remedy = split or volume_conflict(evidence, example.node, analysis.pod), SPLIT_REMEDY if split else ""
    proof = down_words(evidence, example.node) if code == "NODE_UNSCHEDULABLE" else ()
    finding = Finding(code, message, proof, others, remedy)
    return _beside_spread(finding, analysis) if code == "NODE_UNSCHEDULABLE" else finding


def spread_exclusion(analysis: SchedulingAnalysis) -> str:
    """That nodes with enough free are excluded by a spread constraint alone; empty if none is."""
    names = [
        candidate.node.name
        for candidate in analysis.candidates
        if candidate.codes == ("POD_SPREAD_CONFLICT",) and not candidate.fit.shortfall
    ]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    listed = ", ".join(names[:3])
    return f"its topology spread constraint alone excludes {listed}{more}, where enough is free" if names else ""


def _beside_spread(finding: Finding, analysis: SchedulingAnalysis) -> Finding:
    """Nodes that take no pods, and beside them nodes with enough free that only a spread constraint excludes."""
    excluded = spread_exclusion(analysis)
    if not excluded:
        return finding
    return Finding(
        finding.code,
        f"{finding.headline}; {excluded}",
        contributing=finding.contributing,
        remedy=f"{finding.remedy}; or relax the constraint: {SPREAD_REMEDY}",
    )


SPREAD_REMEDY = "raise maxSkew, use ScheduleAnyway, or set nodeTaintsPolicy: Honor, which leaves cordoned nodes out"


def _plural(count: int) -> str:
    return "" if count == 1 else "s"


REMEDIES = {
    "REQUEST_EXCEEDS_CLUSTER": "ask for no more per pod than the largest node has, and use more pods",
    "CPU_MEM_INSUFFICIENT": "ask for no more than the matching nodes have",
}


def _required_spreads(pod: Pod) -> list[TopologySpreadConstraint]:
    return [rule for rule in pod.spec.topology_spread_constraints if rule.when_unsatisfiable == "DoNotSchedule"]


def _refusal_message(code: str, example: Candidate, analysis: SchedulingAnalysis) -> str:
    node = example.node.name
    count = sum(code in candidate.permanent_codes for candidate in analysis.candidates)
    if code == "TAINT_NOT_TOLERATED":
        taints = ", ".join(map(nodes.format_taint, nodes.blocking_taints(example.node, analysis.pod)))
        return f"the pod does not tolerate the taint {taints} of {count} node{_plural(count)} (nearest: {node})"
    if code == "SELECTOR_MISMATCH":
        misses = (
            "; ".join(nodes.selector_mismatches(example.node, analysis.pod))
            or "no term of the required node affinity matches"
        )
        return f"no node matches the pod's selector or affinity; on {node}, {misses}"
    if code == "NODE_UNSCHEDULABLE":
        why = nodes.unschedulable_reason(example.node)
        return f"{count} matching node{_plural(count)} {'takes' if count == 1 else 'take'} no pods: {node} is {why}"
    if code == "POD_SPREAD_CONFLICT":
        rules = ", ".join(f"{rule.topology_key} (maxSkew {rule.max_skew})" for rule in _required_spreads(analysis.pod))
        return f"the pod's spread over {rules} excludes {count} matching node{_plural(count)} (nearest: {node})"
    if code == "DEVICE_UNHEALTHY":
        counts = {name: nodes.unhealthy_device_count(example.node, name) for name in analysis.devices}
        return f"node {node} has {', '.join(f'{count} unhealthy {name}' for name, count in counts.items())}"
    if code == "GFD_LABELS_MISSING":
        return f"no label of node {node} says how its GPUs are shared, and the pod asks for a share of one GPU"
    if code == "EPHEMERAL_STORAGE":
        under_pressure = any(taint.key == DISK_PRESSURE_TAINT for taint in example.node.spec.taints)
        return f"node {node} has DiskPressure: it is short of disk and takes no new pods" if under_pressure else ""
    if code in ("REQUEST_EXCEEDS_CLUSTER", "CPU_MEM_INSUFFICIENT"):
        what = ", ".join(
            f"{format_amount(name, analysis.requests[name])} {name} (the node has "
            f"{format_amount(name, analysis.requests[name] - amount)})"
            for name, amount in example.fit.shortfall_when_empty.items()
        )
        return f"no matching node is large enough even when empty; nearest is {node}, requested: {what}"
    return ""


VARIANT_REMEDY = "sharing and MIG lengthen the product label; list both values, or select by gpu.family or memory"


def _product_variant(analysis: SchedulingAnalysis) -> Finding | None:
    """A label value that sharing or MIG has lengthened: `Tesla-T4` is `Tesla-T4-SHARED` there."""
    for candidate in analysis.candidates:
        if candidate.permanent_codes != ("SELECTOR_MISMATCH",) or candidate.fit.shortfall:
            continue
        selected = [*analysis.pod.spec.node_selector.items()]
        selected += [
            (key, value)
            for key, values, operator in nodes.required_labels(analysis.pod)
            if operator == "In"
            for value in values
        ]
        for key, value in selected:
            has = candidate.node.labels.get(key, "")
            if has != value and has.startswith((f"{value}-SHARED", f"{value}-MIG-")):
                message = f"the selector asks for {key}={value}, but node {candidate.node.name} is labelled {has}"
                return Finding("SELECTOR_MISMATCH", message, remedy=VARIANT_REMEDY)
    return None


def node_summaries(fit: FitChecker, analysis: SchedulingAnalysis, code: str) -> tuple[NodeSummary, ...]:
    """Every candidate with its numbers: fewest causes first, and among equals those with the cause `code`."""

    def rank(candidate: Candidate) -> tuple[int, int, bool, str]:
        causes, permanent = set(candidate.codes), len(candidate.permanent_codes)
        return len(causes), permanent, bool(causes) and code not in causes, candidate.node.name

    ordered = sorted(analysis.candidates, key=rank)
    return tuple(
        nodes.node_summary(fit, candidate.fit, candidate.node, analysis.pod, analysis.requests, True, candidate.codes)
        for candidate in ordered
    )
