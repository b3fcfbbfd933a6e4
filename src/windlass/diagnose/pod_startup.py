"""Why a pod with a node does not work: refused by the kubelet, image not pulled, container not started or killed.

Called by `why`. Evidence in order: the pod's status and events, its program's log, the node's GPU stack and kernel log.
"""

from __future__ import annotations

import re

import msgspec

from windlass.diagnose import gpu_stack, log_patterns, nodes
from windlass.diagnose.contradictions import current_logs, doubt, is_ready, refutation, stale_device_findings
from windlass.diagnose.evidence import ClusterObject, Evidence, LogLines
from windlass.diagnose.finding import Finding, MissingEvidence
from windlass.diagnose.hypothesis import Conclusion, Hypothesis, conclude
from windlass.diagnose.kubelet_reasons import layer_findings, refusal_findings
from windlass.diagnose.log_patterns import PatternMatch, match_finding
from windlass.diagnose.message_names import kubelet_finding
from windlass.diagnose.nvidia_smi import annotate_nvidia_smi_logs
from windlass.diagnose.pod_status import (
    admission_findings,
    config_findings,
    early_end_findings,
    end_findings,
    end_texts,
    entry_point_findings,
    exit_texts,
    is_failing,
    memory_findings,
    probe_findings,
    pull_findings,
    runtime_findings,
    system_memory_findings,
    uncreated,
    with_mounted_memory,
)
from windlass.diagnose.program_words import full_disk_findings, still_holding
from windlass.diagnose.reports import COMPLAINS
from windlass.diagnose.resource_claims import gone_device_finding, with_daemon, with_driver
from windlass.diagnose.stack_components import component_of
from windlass.diagnose.subject import node_of
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string
from windlass.model.node import Node


def startup_conclusion(evidence: Evidence, pod: ClusterObject, now: int) -> Conclusion | None:
    """Why a placed pod does not start or fails; None if it does neither."""
    status_lines = gpu_stack.pod_status_lines(evidence, pod)
    logs = annotate_nvidia_smi_logs(current_logs(evidence, pod))
    own = still_holding(pod, log_patterns.find_matches(logs, log_patterns.CONTAINER), logs)
    kubelet = log_patterns.find_matches(status_lines, log_patterns.KUBELET, wrapped=True)
    node = evidence.nodes.get(node_of(pod))
    own_faults = [*entry_point_findings([*status_lines, *_first_lines(logs)], node), *end_findings(pod)]
    symptoms = [
        *admission_findings(pod, kubelet, node),
        *refusal_findings(pod),
        *stale_device_findings(evidence, pod, status_lines),
        *_gone_claim(evidence, pod),
        *(kubelet_finding(evidence, pod, seen) for seen in kubelet),
        *(runtime_findings(pod) if not kubelet else ()),
        *pull_findings(evidence, pod, now),
        *memory_findings(pod),
        *system_memory_findings(evidence, pod),
        *config_findings(pod),
        *own_faults,
        *early_end_findings(pod),
        *full_disk_findings(pod, logs),
        *_gpu_not_requested(pod, own),
        *_refused_requests(logs),
        *map(match_finding, own),
        *probe_findings(evidence, pod),
        *layer_findings(evidence, pod),
    ]
    judged = [Hypothesis(found, refuted_by=refutation(evidence, found, node, pod)) for found in symptoms]
    symptom = next((hypothesis.finding for hypothesis in judged if not hypothesis.refuted_by), None)
    if symptom is None and (judged or is_failing(pod)):
        symptom = _unexplained(evidence, pod, [hypothesis.finding for hypothesis in judged])
    if symptom is None:
        return None
    below = [] if symptom in own_faults else _below(evidence, pod, node, now)  # no device explains these
    found = conclude(symptom, [*judged, *below])
    is_untied = symptom.code == "APP_ERROR" and found.cause is not symptom and not _speaks_of_gpus(logs)
    is_alone = is_ready(pod) and found.cause.evidence in [match_finding(seen).evidence for seen in own]
    is_certain = found.is_certain and not is_untied and not is_alone and not doubt(found.cause, node)
    cause = with_daemon(evidence, with_mounted_memory(pod, found.cause), pod)
    cause = with_driver(evidence, cause, pod, now)
    return msgspec.structs.replace(found, cause=cause, is_certain=is_certain)


def _gone_claim(evidence: Evidence, pod: ClusterObject) -> list[Finding]:
    found = gone_device_finding(evidence, pod) if not is_ready(pod) else None
    return [found] if found is not None else []


def _first_lines(logs: list[LogLines]) -> list[LogLines]:
    """Where a program could not be executed, that is all that its log has."""
    return [LogLines(log.origin, log.lines) for log in logs if len(log.lines) <= FEW_LINES]


FEW_LINES = 2


def _speaks_of_gpus(logs: list[LogLines]) -> bool:
    """Whether the program's own log ties its failure to GPUs; otherwise a fault of the node may be a coincidence."""
    return any(GPU_WORDS.search(line) for log in logs for line in log.lines)


def _is_own_fault(pod: ClusterObject, logs: list[LogLines]) -> bool:
    """Whether its log says what is wrong, and no error speaks of devices, which may be another layer's fault."""
    errors = [line for log in logs for line in log.lines if COMPLAINS.search(line)]
    is_told = any(SAYS_WHAT.search(line) for line in errors)
    if component_of(pod):
        return False  # a component of the GPU stack fails for what lies below it
    return is_told and not (requests_devices(pod) and any(map(DEVICE_WORDS.search, errors)))


SAYS_WHAT = re.compile(
    r"(error|exception|panic|fatal|failed|abort)\w*\W.{0,80}?:\s*\S|errno|refused|no such|not found|denied|invalid"
    r"|missing|timed? ?out|reset by peer|unreachable",
    re.I,
)
"""An error with what it is about, not only that there was one."""
DEVICE_WORDS = re.compile(r"cuda|nvidia|\bgpu|nvml|nccl|device|accelerator|driver", re.I)
GPU_WORDS = re.compile(r"cuda|nvidia|\bgpu|nvml|nccl", re.I)


def _below(evidence: Evidence, pod: ClusterObject, node: Node | None, now: int) -> list[Hypothesis]:
    """Faults of the node's host and GPU stack, for a pod that uses them."""
    if not node_of(pod) or not _uses_gpus(pod):
        return []
    lines = gpu_stack.host_log_lines(evidence, node_of(pod))
    found = [match_finding(seen) for seen in log_patterns.find_matches(lines, log_patterns.HOST)]
    if node is not None and nodes.looks_like_gpu_node(node):
        found += gpu_stack.node_findings(evidence, node, now, "")
    return [Hypothesis(fault, refuted_by=refutation(evidence, fault, node)) for fault in found]


def _uses_gpus(pod: ClusterObject) -> bool:
    """Whether it depends on the node's GPUs: it requests devices, belongs to the GPU stack, or uses its runtime."""
    runtime = nested_string(pod.data, "spec", "runtimeClassName")
    return requests_devices(pod) or bool(component_of(pod)) or "nvidia" in runtime


def running_pod_finding(evidence: Evidence, pod: ClusterObject) -> Finding | None:
    """A running pod that sees GPUs without having requested any; components of the GPU stack have to."""
    asks = requests_devices(pod) or bool(component_of(pod))
    for container in nested_maps(pod.data, "spec", "containers"):
        for variable in nested_maps(container, "env"):
            if (
                nested_string(variable, "name") == "NVIDIA_VISIBLE_DEVICES"
                and nested_string(variable, "value") == "all"
                and not asks
            ):
                name = nested_string(container, "name")
                message = f"container {name} sets NVIDIA_VISIBLE_DEVICES=all without requesting a GPU"
                return Finding("GPU_VISIBLE_UNREQUESTED", message)
    return None


def _refused_requests(logs: list[LogLines]) -> list[Finding]:
    """A program that creates objects, and repeats the API server's refusal of one."""
    lines = [
        LogLines(log.origin, [line for line in log.lines if API_REFUSAL.search(line)]) for log in logs if log.lines
    ]
    return [match_finding(seen) for seen in log_patterns.find_matches(lines, log_patterns.API)]


API_REFUSAL = re.compile(r"error from server|denied the request|is forbidden: |is invalid: ", re.I)


def _gpu_not_requested(pod: ClusterObject, own: list[PatternMatch]) -> list[Finding]:
    """A program that finds no GPU in a pod that requests none."""
    if not own or own[0].code != "RUNTIME_NOT_CONFIGURED" or requests_devices(pod) or component_of(pod):
        return []
    message = f"the program looks for a GPU, but {pod.title} requests none"
    remedy = "request one in resources.limits (nvidia.com/gpu: 1)"
    return [Finding("APP_ERROR", message, match_finding(own[0]).evidence, remedy=remedy)]


def requests_devices(pod: ClusterObject) -> bool:
    return any(
        "/" in name or nested_maps(container, "resources", "claims")
        for container in nested_maps(pod.data, "spec", "containers")
        for name in (*nested_map(container, "resources", "limits"), "")
    )


def _unexplained(evidence: Evidence, pod: ClusterObject, doubted: list[Finding]) -> Finding:
    """A failing pod whose status and log name no cause that holds."""
    codes = exit_texts(pod)
    logs = evidence.logs_of(pod)
    if doubted:
        message = f"its log shows {doubted[0].code}, but the state of its node contradicts that"
        missing = (
            MissingEvidence("what the container sees", f"kubectl exec -n {pod.namespace} {pod.name} -- nvidia-smi"),
        )
        return Finding("UNKNOWN", message, doubted[0].evidence, missing=missing)
    missing = (MissingEvidence("the container's log", f"kubectl logs -n {pod.namespace} {pod.name} --previous"),)
    if (said := uncreated(pod)) is not None:
        hosts = MissingEvidence("the logs of its kubelet and runtime", f"windlass doctor node {node_of(pod)}")
        return Finding("UNKNOWN", f"container {said[0]} can't be created: {said[1]}", missing=(hosts,))
    if not logs:
        ends = [*end_texts(pod), *codes, "it failed, and the evidence has no log of it"]
        return Finding("UNKNOWN", ends[0], missing=missing)
    last = [f"{log.origin}: {log.lines[-1]}" for log in logs if log.lines]
    told = () if _is_own_fault(pod, logs) else missing
    return Finding("APP_ERROR", codes[0] if codes else "", tuple(last[:2]), missing=told)
