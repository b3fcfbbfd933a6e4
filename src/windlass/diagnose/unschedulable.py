"""Why no node takes a pod: the engine's cause, with the nodes that show it, and what is known beside it.

Fed by `why` with the pods that wait and the `FitChecker` of the cluster. Which cause it is says the engine's own rule
(`placement.explain.cause`); here it is put into words with names and numbers, and looked behind where nodes show more
than the engine counts: devices that are ill, CPU that pods without GPUs use.
"""

from __future__ import annotations

import msgspec

from windlass.diagnose import nodes
from windlass.diagnose.evidence import Evidence
from windlass.diagnose.finding import Finding, NodeSummary
from windlass.diagnose.fit import FitChecker, NodeFit, capacity_and_allocatable
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.requests import format_amount, pod_requests
from windlass.model.taints import DISK_PRESSURE, taint_code
from windlass.placement.explain.cause import CAUSE_ORDER, cause_rank
from windlass.placement.explain.node_refusals import TOO_SMALL_CODES

GPU_CAPACITY_CODES = ("GPU_FULL", "GPU_FRAGMENTED")
DEVICE_CODES = (*GPU_CAPACITY_CODES, "REQUEST_EXCEEDS_CLUSTER", "RESOURCE_NAME_MISMATCH", "DEVICE_UNHEALTHY")
"""Causes behind which devices may stand that are ill."""


class Candidate(msgspec.Struct, frozen=True):
    """A node that could be the place, and what keeps the pod off it."""

    node: Node
    fit: NodeFit
    permanent_codes: tuple[str, ...]
    """Causes that no freed room would cure."""
    capacity_codes: tuple[str, ...]
    """Causes that freed room would cure."""


class SchedulingAnalysis(msgspec.Struct, frozen=True):
    """All nodes' answers for one pod that waits, and for how many of its kind."""

    pod: Pod
    count: int
    requests: dict[str, int]
    devices: dict[str, int]
    candidates: tuple[Candidate, ...]
    never_candidates: tuple[Candidate, ...]
    """Nodes that could never be the place."""

    @property
    def feasible(self) -> list[str]:
        return [
            candidate.fit.node
            for candidate in self.candidates
            if not candidate.permanent_codes and not candidate.capacity_codes
        ]


def analyze_pod(evidence: Evidence, fit: FitChecker, pod: Pod, count: int = 1) -> SchedulingAnalysis:
    """Raises `InputError` for a pod that can't be read."""
    requests = pod_requests(pod)
    devices = nodes.device_requests(requests)
    answers = [
        (evidence.nodes[node_fit.node], node_fit)
        for node_fit in fit.node_fits(pod)
        if node_fit.node in evidence.nodes
    ]
    chosen = [(node, node_fit) for node, node_fit in answers if _could_be_the_place(node, node_fit, devices)]
    if not devices:
        chosen = [pair for pair in answers if not _excluded(pair[1])] or answers
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


def _could_be_the_place(node: Node, found: NodeFit, devices: dict[str, int]) -> bool:
    return not devices or all(capacity_and_allocatable(node)[0].get(name, 0) for name in devices)


def _excluded(found: NodeFit) -> bool:
    return any(reason.name in ("NODE_AFFINITY", "NODE_NAME") for reason in found.reasons)


def _causes(node: Node, found: NodeFit, pod: Pod) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What keeps the pod off the node for good, and what for as long as others use it."""
    fixed: list[str] = []
    room: list[str] = []
    for reason in found.reasons:
        if reason.name == "TAINT":
            fixed += [taint_code(taint.key) for taint in nodes.blocking_taints(node, pod)]
        elif reason.kube.startswith(("Insufficient ", "Too many pods")) or reason.name in _INSIDE_A_GPU:
            room.append(reason.code)
        else:
            fixed.append(reason.code)
    for name, lacking in found.shortfall_when_empty.items():
        fixed.append(
            "DEVICE_UNHEALTHY"
            if nodes.unhealthy_device_count(node, name) >= lacking
            else TOO_SMALL_CODES.get(name, "REQUEST_EXCEEDS_CLUSTER")
        )
    if (
        fixed
        and "SELECTOR_MISMATCH" not in fixed
        and nodes.unschedulable_reason(node)
        and "NODE_UNSCHEDULABLE" not in fixed
    ):
        fixed.append("NODE_UNSCHEDULABLE")
    return tuple(dict.fromkeys(fixed)), tuple(dict.fromkeys(room))


_INSIDE_A_GPU = ("GPU_DEVICE_ROOM", "MIG_NO_ROOM", "GPU_ISLAND", "GPU_UNHEALTHY")


def explain_cause(evidence: Evidence, fit: FitChecker, analysis: SchedulingAnalysis, code: str) -> Finding:
    """The engine's cause, `code`, with what the nodes show of it, or what stands behind it; where there are candidates
    and none of them takes the pod."""
    variant = _product_variant(analysis)
    if variant is not None:
        return variant
    unhealthy = _sick(fit, analysis)
    if unhealthy and code in DEVICE_CODES:
        return _unhealthy(unhealthy, _device(analysis)[0], _others(analysis))
    if code in GPU_CAPACITY_CODES:
        return _full(fit, analysis, code)
    hopeful = [
        candidate
        for candidate in analysis.candidates
        if not candidate.permanent_codes and code in candidate.capacity_codes
    ]
    if hopeful:
        return _taken_by_others(evidence, analysis, hopeful, code)
    return _refused(analysis, code)


# Nodes that would do if they were emptier


def _device(analysis: SchedulingAnalysis) -> tuple[str, int]:
    return max(analysis.devices.items(), key=lambda pair: pair[1], default=("", 0))


def _sick(fit: FitChecker, analysis: SchedulingAnalysis) -> list[Candidate]:
    """Nodes that would have enough if all their devices were well, by their capacity: the engine counts only what is
    allocatable."""
    name, need = _device(analysis)
    return [
        candidate
        for candidate in analysis.candidates
        if set(candidate.permanent_codes) <= {"DEVICE_UNHEALTHY"}
        and nodes.unhealthy_device_count(candidate.node, name)
        and fit.free(candidate.node.name, name) + nodes.unhealthy_device_count(candidate.node, name) >= need
    ]


def _full(fit: FitChecker, analysis: SchedulingAnalysis, code: str) -> Finding:
    name, need = _device(analysis)
    free = _free(fit, analysis)
    total, wanted = sum(free.values()), need * analysis.count
    if code == "GPU_FULL":
        message = f"all {name} that would do are in use: {total} free on {len(free)} node(s), {wanted} needed"
        message = message if name else "no GPU that would do has room for the share that it asks for"
    elif total >= wanted:
        message = describe_fragmentation(fit, analysis)
    else:
        message = "no GPU has room for the MIG profile where it may start"
    return Finding(code, message, _free_words(free, name), _others(analysis))


def describe_fragmentation(fit: FitChecker, analysis: SchedulingAnalysis) -> str:
    """What is free, in words, where there is enough in all and it is spread."""
    (name, need), free = _device(analysis), _free(fit, analysis)
    most = max(free.values(), default=0)
    return (
        f"{sum(free.values())} {name} are free, but at most {most} on one node, and each of {analysis.count} pod(s) "
        f"needs {need}"
    )


def _free(fit: FitChecker, analysis: SchedulingAnalysis) -> dict[str, int]:
    """By node that only room keeps it off."""
    name = _device(analysis)[0]
    hopeful = [candidate.node.name for candidate in analysis.candidates if not candidate.permanent_codes]
    return {node: max(0, fit.free(node, name)) for node in hopeful}


def _free_words(free: dict[str, int], name: str) -> tuple[str, ...]:
    if not any(free.values()):
        return ()
    listed = ", ".join(
        f"{node} {amount}" for node, amount in sorted(free.items(), key=lambda item: -item[1])[:6]
    )
    return (f"free {name}: {listed}",)


def _unhealthy(unhealthy: list[Candidate], name: str, others: tuple[str, ...]) -> Finding:
    node = unhealthy[0].node
    count = nodes.unhealthy_device_count(node, name)
    message = (
        f"node {node.name} has {count} unhealthy {name} (capacity above allocatable); the pods on them still count, so "
        "no healthy one is left"
    )
    remedy = (
        "delete the pod on the unhealthy GPU or drain the node, then look for Xid messages in its kernel log"
    )
    return Finding("DEVICE_UNHEALTHY", message, (), others, remedy)


def _taken_by_others(
    evidence: Evidence, analysis: SchedulingAnalysis, near: list[Candidate], code: str
) -> Finding:
    """Something of the nodes other than devices is used up."""
    best = min(
        near,
        key=lambda candidate: (
            len(candidate.fit.shortfall),
            sum(candidate.fit.shortfall.values()),
            candidate.node.name,
        ),
    )
    short = {name: amount for name, amount in best.fit.shortfall.items() if name not in analysis.devices}
    others = _others(analysis)
    if not short:
        return Finding(code, contributing=others)
    name = next(iter(short))
    what = ", ".join(f"{format_amount(resource, amount)} {resource}" for resource, amount in short.items())
    if (
        code == "CPU_MEM_INSUFFICIENT"
        and analysis.devices
        and _by_strangers(evidence, best, name) >= short[name]
    ):
        message = (
            f"GPUs are free on {best.node.name}, but pods without GPUs use its {name}; {what} more needed"
        )
        return Finding("GPU_STRANDED", message, contributing=others)
    where = f"node {best.node.name} has the GPUs, but" if analysis.devices else f"node {best.node.name}"
    return Finding(code, f"{where} lacks {what}", contributing=others)


def _by_strangers(evidence: Evidence, candidate: Candidate, resource: str) -> int:
    """How much of the resource pods without devices use there."""
    total = 0
    for item in evidence.pods_on(candidate.node.name):
        pod = item.decoded
        if (
            isinstance(pod, Pod)
            and not pod.is_terminal
            and "DaemonSet" not in [kind for kind, _, _ in item.owners]
        ):
            requests = pod_requests(pod)
            total += 0 if nodes.device_requests(requests) else requests.get(resource, 0)
    return total


def _others(analysis: SchedulingAnalysis) -> tuple[str, ...]:
    """Causes that keep the pod off further nodes that have room."""
    with_room = [
        candidate
        for candidate in analysis.candidates
        if candidate.permanent_codes and not candidate.fit.shortfall
    ]
    unschedulable = [
        candidate for candidate in analysis.candidates if "NODE_UNSCHEDULABLE" in candidate.permanent_codes
    ]
    codes = [
        code
        for candidate in [*with_room, *unschedulable]
        for code in candidate.permanent_codes
        if code in CAUSE_ORDER
    ]
    return tuple(sorted(set(codes), key=cause_rank))


# Nodes that would not do however empty they were


def _refused(analysis: SchedulingAnalysis, code: str) -> Finding:
    def distance(candidate: Candidate) -> tuple[bool, int, bool]:
        has_room = not candidate.fit.shortfall or set(candidate.fit.shortfall) <= set(
            candidate.fit.shortfall_when_empty
        )
        return (
            code not in (*candidate.permanent_codes, *candidate.capacity_codes),
            len(set(candidate.permanent_codes)),
            not has_room,
        )

    example = min(analysis.candidates, key=distance)
    elsewhere = {
        code
        for candidate in analysis.candidates
        for code in (*candidate.permanent_codes, *candidate.capacity_codes)
    } - {"GPU_FULL"}
    others = tuple(
        sorted({*example.permanent_codes, *example.capacity_codes, *elsewhere} - {code}, key=cause_rank)
    )
    return Finding(code, _words(code, example, analysis), (), others, _remedy(code, example, analysis))


def _words(code: str, example: Candidate, analysis: SchedulingAnalysis) -> str:
    node = example.node.name
    if code == "TAINT_NOT_TOLERATED":
        taints = ", ".join(
            nodes.format_taint(taint) for taint in nodes.blocking_taints(example.node, analysis.pod)
        )
        return (
            f"the pod does not tolerate the taint {taints} of {_how_many(code, analysis)} (nearest: {node})"
        )
    if code == "SELECTOR_MISMATCH":
        misses = "; ".join(nodes.selector_mismatches(example.node, analysis.pod)) or "its labels differ"
        return f"no node matches the pod's selector or affinity; on {node}, {misses}"
    if code == "NODE_UNSCHEDULABLE":
        why = nodes.unschedulable_reason(example.node)
        return f"{_how_many(code, analysis)} that would do take no pods: {node} is {why}"
    if code == "DEVICE_UNHEALTHY":
        unhealthy = {name: nodes.unhealthy_device_count(example.node, name) for name in analysis.devices}
        return (
            f"node {node} has {', '.join(f'{count} unhealthy {name}' for name, count in unhealthy.items())}"
        )
    if code == "EPHEMERAL_STORAGE" and any(taint.key == DISK_PRESSURE for taint in example.node.spec.taints):
        return f"node {node} is short of disk and takes no new pods"
    if code in ("REQUEST_EXCEEDS_CLUSTER", "CPU_MEM_INSUFFICIENT"):
        what = ", ".join(
            f"{format_amount(name, analysis.requests[name])} {name} (the node has "
            f"{format_amount(name, analysis.requests[name] - amount)})"
            for name, amount in example.fit.shortfall_when_empty.items()
        )
        return f"no node that would do is big enough even when empty; nearest is {node}, asked for {what}"
    return ""


def _remedy(code: str, example: Candidate, analysis: SchedulingAnalysis) -> str:
    if code == "REQUEST_EXCEEDS_CLUSTER":
        return "ask for no more per pod than the largest node has, and use more pods"
    if code == "CPU_MEM_INSUFFICIENT":
        return "ask for no more than the matching nodes have"
    return ""


def _how_many(code: str, analysis: SchedulingAnalysis) -> str:
    count = sum(code in candidate.permanent_codes for candidate in analysis.candidates)
    return f"{count} node(s)"


def _product_variant(analysis: SchedulingAnalysis) -> Finding | None:
    """A label value that sharing or MIG has lengthened: `Tesla-T4` is `Tesla-T4-SHARED` there."""
    for candidate in analysis.candidates:
        if candidate.permanent_codes != ("SELECTOR_MISMATCH",) or candidate.fit.shortfall:
            continue
        wishes = [*analysis.pod.spec.node_selector.items()]
        wishes += [
            (key, value)
            for key, values, operator in nodes.required_labels(analysis.pod)
            if operator == "In"
            for value in values
        ]
        for key, value in wishes:
            has = candidate.node.labels.get(key, "")
            if has != value and has.startswith((f"{value}-SHARED", f"{value}-MIG-")):
                message = (
                    f"the selector asks for {key}={value}, and node {candidate.node.name} is labelled {has}"
                )
                why = "sharing and MIG lengthen the product label; list both values, or select by gpu.family or memory"
                return Finding("SELECTOR_MISMATCH", message, remedy=why)
    return None


def node_summaries(fit: FitChecker, analysis: SchedulingAnalysis, code: str) -> tuple[NodeSummary, ...]:
    """Every candidate with its numbers, those first that lack the least, and of these those with the named cause."""

    def rank(candidate: Candidate) -> tuple[int, int, bool, str]:
        causes = {*candidate.permanent_codes, *candidate.capacity_codes}
        return (
            len(causes),
            len(candidate.permanent_codes),
            bool(causes) and code not in causes,
            candidate.node.name,
        )

    ordered = sorted(analysis.candidates, key=rank)
    return tuple(
        nodes.node_summary(
            fit,
            candidate.fit,
            candidate.node,
            analysis.pod,
            True,
            (*candidate.permanent_codes, *candidate.capacity_codes),
        )
        for candidate in ordered
    )
