"""Hypotheses about what lies behind the nodes' answer: faulty nodes, missing labels, the autoscaler, preemption.

`why` calls `collect_hypotheses` with what the nodes show (`unschedulable`) and concludes from them. A node that lacks
devices is examined, and the engine is asked whether it would take the pod if they were there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from windlass.diagnose import autoscaler, gpu_stack, log_patterns, nodes, queue
from windlass.diagnose.contradictions import refutation
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.explanations import ADMINISTRATORS, FIXED_BY_NEW_NODE, NO_ROOM, USERS
from windlass.diagnose.finding import Finding
from windlass.diagnose.gang import replaced_pods
from windlass.diagnose.hypothesis import Hypothesis
from windlass.diagnose.lost_gpus import fewer_than_its_type, lost_gpus, of_its_type
from windlass.diagnose.mended_nodes import gained_devices, missing_devices, other_refusals, would_take
from windlass.diagnose.node_pools import unready_pool_finding
from windlass.diagnose.node_words import down_words
from windlass.diagnose.promised_devices import promised_by_configs, promised_instances, sharing_findings
from windlass.diagnose.quotas import namespace_key_finding
from windlass.diagnose.stack_components import COMPONENTS, gpu_nodes
from windlass.diagnose.subject import Subject
from windlass.diagnose.unschedulable import SPREAD_REMEDY, Candidate, SchedulingAnalysis, spread_exclusion
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string
from windlass.diagnose.workload_faults import (
    daemonset_exclusion,
    discovery_faults,
    exclusion_finding,
    plugin_faults,
    workload_fault,
)
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.requests import pod_requests

MAX_SUSPECTS = 50
"""Nodes that are examined: the answer names one, and logs of thousands would take seconds."""


def no_candidate_finding(evidence: Evidence, analysis: SchedulingAnalysis) -> Finding:
    """No node has the requested devices."""
    advertised = sorted({key for node in evidence.nodes.values() for key in nodes.gpu_resources(node)})
    name = next((device for device in analysis.devices if device not in advertised), next(iter(analysis.devices), ""))
    detail = f"; the cluster has {', '.join(advertised)}" if advertised else ", and none looks like a GPU node"
    if name in advertised:  # each on some node, but all of them on none
        name, detail = " together with ".join(analysis.devices), ""
    also = min((other_refusals(candidate, ()) for candidate in analysis.never_candidates), key=len, default=[])
    return Finding("RESOURCE_NAME_MISMATCH", f"no node advertises {name}{detail}", contributing=tuple(also))


def collect_hypotheses(
    evidence: Evidence,
    subject: Subject,
    finding: Finding,
    analysis: SchedulingAnalysis,
    item: ClusterObject | None,
    now: int,
) -> list[Hypothesis]:
    """What may lie behind `finding`, faults of nodes first."""
    found = list(_faulty_nodes(evidence, finding, analysis, now))
    if finding.code == "RESOURCE_NAME_MISMATCH" and not gpu_nodes(evidence):
        doubt = "no node is known to have GPUs"
        found += [Hypothesis(fault, doubt=doubt) for fault in discovery_faults(evidence, now)]
    if finding.code == "SELECTOR_MISMATCH":
        labels = gpu_stack.missing_labels_finding(evidence, analysis.pod) or _flavor_labels(evidence, subject, analysis)
        found += [Hypothesis(labels)] if labels is not None else []
    if finding.code == "TAINT_NOT_TOLERATED" and (excluded := spread_exclusion(analysis)):
        found.append(Hypothesis(_empty_domain(excluded, finding), would_run=True))
    if finding.code == "TAINT_NOT_TOLERATED":
        found += _startup_taints(evidence, analysis)
        found += [Hypothesis(other)] if (other := _other_devices(analysis)) is not None else []
    quota = _quota_above_capacity(evidence, subject, finding, analysis)
    found += [Hypothesis(quota)] if quota is not None else []
    if finding.code == "RESOURCE_NAME_MISMATCH":
        found += [Hypothesis(fault) for name in analysis.devices for fault in plugin_faults(evidence, name, now)]
    return [*found, *_scaling(evidence, finding, analysis, item, now)]


def with_contributing(evidence: Evidence, subject: Subject, finding: Finding, analysis: SchedulingAnalysis) -> Finding:
    """The finding, with what is true beside it: a quota key without effect, and preemption that did not help.

    Neither is a cause: without it, the pod would wait all the same.
    """
    keys = namespace_key_finding(evidence, analysis.pod)
    preempted = _ineffective_preemption(evidence, subject, finding)
    more = [found for found in (keys, preempted) if found is not None]
    proof = (preempted.headline,) if preempted is not None else ()
    return msgspec.structs.replace(
        finding,
        contributing=(*finding.contributing, *(found.code for found in more)),
        evidence=(*finding.evidence, *proof),
    )


def with_rollout(
    evidence: Evidence, finding: Finding, analysis: SchedulingAnalysis, item: ClusterObject | None
) -> Finding:
    """The finding as that of a rollout, if the nodes have too few devices for the old pods and the new ones together.

    The old pods stay until the new ones are ready, so that waiting does not help.
    """
    old = replaced_pods(evidence, item) if item is not None and finding.code in NO_ROOM else []
    able = [candidate.node for candidate in analysis.candidates if not candidate.permanent_codes]
    for name, need in analysis.devices.items() if old else ():
        held = sum(pod_requests(pod.decoded).get(name, 0) for pod in old if isinstance(pod.decoded, Pod))
        total = sum(nodes.gpu_resources(node).get(name, 0) for node in able)
        wanted = held + need * analysis.count
        if held and wanted > total:
            message = (
                f"the rollout needs {wanted} {name} at the same time, and the matching nodes have {total} in all: "
                f"{old[0].title} of the same Deployment holds {held} until the new pods are ready"
            )
            remedy = "set the Deployment's strategy to Recreate, or maxSurge: 0 and maxUnavailable: 1"
            return msgspec.structs.replace(finding, headline=message, remedy=remedy, changed_by=USERS)
    return finding


def _empty_domain(excluded: str, taint: Finding) -> Finding:
    """A node that the pod may not use, which counts as an empty domain and so keeps it off those that it may use."""
    message = f"{excluded}: a node whose taint it does not tolerate counts as an empty domain"
    remedy = f"{SPREAD_REMEDY.replace('cordoned', 'such')}; or tolerate the taint, if the pod may run there"
    return Finding("POD_SPREAD_CONFLICT", message, (taint.message,), remedy=remedy, explains=("TAINT_NOT_TOLERATED",))


def are_others(analysis: SchedulingAnalysis) -> bool:
    """Whether the tainted nodes are those of others: they are full as well, and the taint does not stand for GPUs.

    With a toleration the pod would wait all the same, so that the taint is not what has to be changed.
    """
    tainted = [candidate for candidate in analysis.candidates if "TAINT_NOT_TOLERATED" in candidate.permanent_codes]
    keys = [taint.key for candidate in tainted for taint in nodes.blocking_taints(candidate.node, analysis.pod)]
    stands_for_gpus = any(GPU_KEY.search(key) for key in keys)
    return bool(analysis.devices) and not stands_for_gpus and all(candidate.fit.shortfall for candidate in tainted)


GPU_KEY = re.compile(r"gpu|nvidia|amd\.com|accelerator", re.I)


def _other_devices(analysis: SchedulingAnalysis) -> Finding | None:
    """The pod may use a GPU node that has devices of another name, and those with its own are for others, and full."""
    usable = [
        candidate.node
        for candidate in analysis.never_candidates
        if nodes.gpu_resources(candidate.node) and not other_refusals(candidate, ())
    ]
    if not usable or not are_others(analysis):
        return None
    name, node = next(iter(analysis.devices)), usable[0]
    has = ", ".join(nodes.gpu_resources(node))
    message = f"node {node.name}, which the pod may use, has {has} and no {name}; nodes with {name} are kept for others"
    return Finding("RESOURCE_NAME_MISMATCH", message, explains=("TAINT_NOT_TOLERATED",))


def _startup_taints(evidence: Evidence, analysis: SchedulingAnalysis) -> Iterator[Hypothesis]:
    """A taint that a NodePool puts on its new nodes until something takes it off; it is not to be tolerated."""
    pools = [(item, nested_maps(item.data, "spec", "template", "spec", "startupTaints")) for item in _pools(evidence)]
    for candidate in analysis.candidates:
        keys = {taint.key for taint in nodes.blocking_taints(candidate.node, analysis.pod)}
        is_alone = candidate.permanent_codes == ("TAINT_NOT_TOLERATED",)
        pool = next((pool for pool, rows in pools if is_alone and keys <= {row.get("key") for row in rows}), None)
        if pool is not None:
            subject, named = f"node {candidate.node.name}", ", ".join(sorted(keys))
            message = f"{subject} still has the taint {named}, with which {pool.title} starts nodes"
            remedy = "repair or install what should take the taint off, or drop it from startupTaints"
            fault = Finding("NODE_UNSCHEDULABLE", message, remedy=remedy, explains=("TAINT_NOT_TOLERATED",))
            yield Hypothesis(fault, subject, not candidate.capacity_codes)
            return


def _pools(evidence: Evidence) -> list[ClusterObject]:
    return [*evidence.of_kind("NodePool"), *evidence.of_kind("Provisioner")]


# Nodes that would do if they were not faulty


def _faulty_nodes(evidence: Evidence, finding: Finding, analysis: SchedulingAnalysis, now: int) -> Iterator[Hypothesis]:
    """Faults of nodes that could have the devices, each with the engine's answer: would the node take the pod?"""
    if not analysis.devices:
        return
    gpu_node_names, wanted = {node.name for node in gpu_nodes(evidence)}, analysis.devices
    suspects = [
        candidate
        for candidate in (*analysis.candidates, *analysis.never_candidates)
        if (
            candidate.node.name in gpu_node_names or any(nodes.is_labelled_for(candidate.node, name) for name in wanted)
        )
        and _is_suspect(evidence, candidate, analysis, finding)
    ]
    suspects.sort(key=lambda candidate: len(other_refusals(candidate, NODE_FAULTS)))
    is_mostly_down = _most_are_down(finding, analysis)
    for candidate in suspects[:MAX_SUSPECTS]:
        for hypothesis in _of_node(evidence, finding, analysis, candidate, now):
            if hypothesis.code != "NODE_UNSCHEDULABLE" or is_mostly_down:  # else the engine's own rule has weighed it
                yield hypothesis


NODE_FAULTS = ("NODE_UNSCHEDULABLE", "DEVICE_UNHEALTHY")


def _most_are_down(finding: Finding, analysis: SchedulingAnalysis) -> bool:
    """Whether of the nodes that match, those that take no pods are at least as many as those that are full.

    With many nodes, some are always down, and what is missing is room on the others.
    """
    if finding.code == "RESOURCE_NAME_MISMATCH":
        return True
    down = sum(set(candidate.permanent_codes) == {"NODE_UNSCHEDULABLE"} for candidate in analysis.candidates)
    up = sum(not candidate.permanent_codes for candidate in analysis.candidates)
    return finding.code in NO_ROOM and down >= up


def _is_suspect(evidence: Evidence, candidate: Candidate, analysis: SchedulingAnalysis, finding: Finding) -> bool:
    """Whether the node offers fewer of the devices than it has, or takes no pods."""
    node = candidate.node
    if nodes.unschedulable_reason(node) or not nodes.gpu_resources(node):
        return True
    if finding.code == "RESOURCE_NAME_MISMATCH":
        return True  # the devices are asked for under another name than all nodes advertise: see why
    if lost_gpus(evidence, node) or fewer_than_its_type(evidence, node) is not None:
        return True
    promised = promised_instances(node)
    return any(
        missing_devices(node, name) or sharing_findings(evidence, node, name) or name in promised
        for name in analysis.devices
    )


def _of_node(
    evidence: Evidence, finding: Finding, analysis: SchedulingAnalysis, candidate: Candidate, now: int
) -> Iterator[Hypothesis]:
    node, subject = candidate.node, f"node {candidate.node.name}"
    promised = promised_by_configs(evidence, node) | promised_instances(node) | _lost(evidence, node)
    gained = gained_devices(candidate, analysis.devices, promised)
    mended = would_take(candidate, analysis.pod, gained, uncordoned=True)
    guess = fewer_than_its_type(evidence, node) if not lost_gpus(evidence, node) else None
    if guess is not None and mended:
        yield Hypothesis(guess, subject, True, doubt="only the other machines of its type say that it has more GPUs")
    for fault in _faults(evidence, candidate, analysis, finding.code, now):
        if fault.code == finding.code:
            continue  # the engine's own rule has weighed it
        left = other_refusals(candidate, NODE_FAULTS)
        headline = fault.headline or f"on {subject}, {fault.message}"
        shown = msgspec.structs.replace(fault, headline=headline, contributing=(*fault.contributing, *left))
        untrue = refutation(evidence, fault, node)
        if untrue:
            yield Hypothesis(shown, subject, refuted_by=untrue)
        elif mended or finding.code == "RESOURCE_NAME_MISMATCH":
            yield Hypothesis(shown, subject, mended)
        elif fault.code == "SHARING_CONFIG_NOT_APPLIED" and fault.contributing:
            yield Hypothesis(shown, subject)  # it would have to ask for another name, too
        else:
            still = ", ".join(dict.fromkeys([*left, *candidate.capacity_codes])) or "too little room"
            by = f"{subject} would not take the pod without it either ({still})"
            yield Hypothesis(shown, subject, False, refuted_by=by)


def _lost(evidence: Evidence, node: Node) -> dict[str, int]:
    """Whole GPUs that the machine has and its node does not offer."""
    missing = lost_gpus(evidence, node)
    if not missing and fewer_than_its_type(evidence, node) is not None:
        missing = of_its_type(evidence, node)[0] - nodes.gpu_resources(node)[GPU_RESOURCE]
    return {GPU_RESOURCE: missing} if missing else {}


def _faults(
    evidence: Evidence, candidate: Candidate, analysis: SchedulingAnalysis, symptom: str, now: int
) -> Iterator[Finding]:
    """What is wrong with the node, from objects, logs and host."""
    node, name = candidate.node, next(iter(analysis.devices))
    yield from _agent_faults(evidence, node, now)
    if name not in nodes.gpu_resources(node):
        yield from _blocked_plugin(evidence, candidate, analysis)
        yield from gpu_stack.node_findings(evidence, node, now, name)
        return
    if lost_gpus(evidence, node):
        yield from _broken_gpus(evidence, candidate)
    elif any(missing_devices(node, device) for device in analysis.devices):
        yield from _broken_gpus(evidence, candidate)
        yield from gpu_stack.lost_plugin_findings(evidence, node, now)
        if symptom == "SELECTOR_MISMATCH":  # it is matched by this node, which only lacks healthy devices
            yield from _unhealthy_gpus(candidate, analysis)
    for device in analysis.devices:
        yield from sharing_findings(evidence, node, device)
    down = nodes.unschedulable_reason(node)
    if down:
        message = f"node {node.name} would take the pod, but is {down}"
        yield Finding("NODE_UNSCHEDULABLE", message, down_words(evidence, node), remedy=nodes.down_remedy(node))
        yield from gpu_stack.label_findings(evidence, node)
    if nodes.not_ready_reason(node):
        yield from gpu_stack.down_findings(evidence, node)


def _agent_faults(evidence: Evidence, node: Node, now: int) -> Iterator[Finding]:
    """Why the agent that should take a startup taint off the node does not: it may not run there, or fails."""
    key = nodes.startup_taint(node)
    words = set(re.findall(r"\w{3,}", key.rpartition("/")[0])) - COMMON_WORDS
    for daemon in evidence.of_kind("DaemonSet"):
        if not any(word in daemon.name for word in words):
            continue
        fault = exclusion_finding(daemon, node) or workload_fault(evidence, daemon, now, node.name)
        if fault is not None:
            message = f"{daemon.title}, which takes the taint {key} off node {node.name}, does not run there"
            shown = msgspec.structs.replace(fault, headline=f"{message}: {fault.message}", changed_by=ADMINISTRATORS)
            yield msgspec.structs.replace(shown, explains=("NODE_UNSCHEDULABLE",))
            return


COMMON_WORDS = {"node", "com", "aws", "k8s", "kubernetes", "karpenter"}
"""Words of a taint's domain that name no agent."""


def _blocked_plugin(evidence: Evidence, candidate: Candidate, analysis: SchedulingAnalysis) -> Iterator[Finding]:
    """A taint that keeps both the pod and the device plugin off the node."""
    if nodes.gpu_resources(candidate.node):
        return  # a device plugin works there
    own = [nodes.format_taint(taint) for taint in nodes.blocking_taints(candidate.node, analysis.pod)]
    for daemon in evidence.of_kind("DaemonSet"):
        if not own or not COMPONENTS["device plugin"].search(daemon.name):
            continue
        why = daemonset_exclusion(daemon, candidate.node)
        if any(why == f"taint {taint} is not tolerated" for taint in own):
            message = (
                f"neither the pod nor the device plugin ({daemon.title}) tolerates the taint {', '.join(own)} of GPU "
                f"node {candidate.node.name}"
            )
            yield Finding("TAINT_NOT_TOLERATED", message)
            return


def _unhealthy_gpus(candidate: Candidate, analysis: SchedulingAnalysis) -> Iterator[Finding]:
    node = candidate.node
    for name in analysis.devices:
        ill, total = nodes.unhealthy_device_count(node, name), nodes.gpu_resources(node).get(name, 0)
        if ill:
            message = f"{ill} of the {total} {name} of node {node.name} {'is' if ill == 1 else 'are'} unhealthy"
            yield Finding("DEVICE_UNHEALTHY", message)


def _broken_gpus(evidence: Evidence, candidate: Candidate) -> Iterator[Finding]:
    """The kernel log of a node that advertises fewer GPUs than it has shows a hardware fault."""
    lines = gpu_stack.host_log_lines(evidence, candidate.node.name)
    for seen in log_patterns.find_matches(lines, log_patterns.HOST):
        if seen.code == "GPU_HW_FAULT":
            yield log_patterns.match_finding(seen)


# Behind the nodes


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


def _scaling(
    evidence: Evidence, finding: Finding, analysis: SchedulingAnalysis, item: ClusterObject | None, now: int
) -> Iterable[Hypothesis]:
    """What the autoscaler says. That no group matches can't be true where a node matches: then only room is missing."""
    is_matched = item is not None and autoscaler.has_triggered(evidence, item)
    if item is not None and finding.code == "TAINT_NOT_TOLERATED" and are_others(analysis):
        yield from _scaling_beside_others(evidence, finding, analysis, item, now)
        return
    if item is None or not (is_matched or finding.code in FIXED_BY_NEW_NODE):
        return
    broken = autoscaler.loop_failure(evidence, item)
    if broken is not None and finding.code in FIXED_BY_NEW_NODE:
        yield Hypothesis(broken)
    device = next(iter(analysis.devices), "")
    found = autoscaler.autoscaler_finding(evidence, item, device, bool(analysis.candidates))
    if found is None:
        coming = autoscaler.coming_node_finding(evidence, item, now)
        if coming is not None:
            yield Hypothesis(coming, would_run=True)
        unready = unready_pool_finding(evidence, bool(analysis.devices))
        if coming is None and unready is not None:
            yield Hypothesis(unready)
        return
    matching = [candidate.node.name for candidate in analysis.candidates if not candidate.permanent_codes]
    if found.code == "AUTOSCALER_NO_MATCHING_GROUP" and matching:
        yield Hypothesis(found, refuted_by=f"node {matching[0]} matches the pod; it only lacks room")
    elif is_matched and found.code != "AUTOSCALER_NO_MATCHING_GROUP":
        yield Hypothesis(found, would_run=True)  # the autoscaler has tried it on a node of the group
    elif finding.code in FIXED_BY_NEW_NODE:
        yield Hypothesis(found)


def _scaling_beside_others(
    evidence: Evidence, finding: Finding, analysis: SchedulingAnalysis, item: ClusterObject, now: int
) -> Iterator[Hypothesis]:
    """The same where all nodes with the devices are kept for others: a node of its own is what the pod waits for."""
    own = msgspec.structs.replace(finding, code="RESOURCE_NAME_MISMATCH")
    alone = msgspec.structs.replace(analysis, candidates=())
    for hypothesis in _scaling(evidence, own, alone, item, now):
        found = hypothesis.finding
        if not any("taint" in line or "tolerat" in line for line in found.evidence):
            explains = (*found.explains, "TAINT_NOT_TOLERATED")
            yield msgspec.structs.replace(hypothesis, finding=msgspec.structs.replace(found, explains=explains))


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
    freed = "workload was preempted" if len(victims) == 1 else "workloads were preempted"
    message = f"{len(victims)} {freed} ({named}), but it does not fit in the room"
    return Finding("PREEMPTION_INEFFECTIVE", message)


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
            remedy = "lower the quota to what the nodes have, or add nodes"
            return Finding("KUEUE_QUOTA_MISCONFIGURED", f"{message}; it was admitted, and none is free", remedy=remedy)
    return None
