"""Why a pod with a node does not work: refused by the kubelet, image not pulled, container not started or killed.

Called by `why`. Evidence in order: the pod's status and events, its program's log, the node's GPU stack and kernel log.
"""

from __future__ import annotations

import re

import msgspec

from windlass.diagnose import gpu_stack, log_patterns, nodes
from windlass.diagnose.contradictions import all_healthy, current_events, current_logs, doubt, is_ready, refutation
from windlass.diagnose.evidence import ClusterObject, Evidence, LogLines
from windlass.diagnose.finding import Finding, MissingEvidence
from windlass.diagnose.hypothesis import Conclusion, Hypothesis, conclude
from windlass.diagnose.log_patterns import PatternMatch
from windlass.diagnose.nvidia_smi import annotate_nvidia_smi_logs
from windlass.diagnose.stack_components import component_of
from windlass.diagnose.subject import node_of, phase_of
from windlass.diagnose.unstructured import nested_int, nested_map, nested_maps, nested_string
from windlass.model.node import Node
from windlass.model.times import parse_timestamp

PULL_PATIENCE = 120
"""Seconds after which an image pull counts as slow."""
PULL_FAILED = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
)


def startup_conclusion(evidence: Evidence, pod: ClusterObject, now: int) -> Conclusion | None:
    """Why a placed pod does not start or fails; None if it does neither."""
    status_lines = gpu_stack.pod_status_lines(evidence, pod)
    logs = annotate_nvidia_smi_logs(current_logs(evidence, pod))
    own = log_patterns.find_matches(logs, log_patterns.CONTAINER)
    kubelet = log_patterns.find_matches(status_lines, log_patterns.KUBELET, wrapped=True)
    node = evidence.nodes.get(node_of(pod))
    symptoms = [
        *_refused(pod, kubelet, node),
        *map(gpu_stack.match_finding, kubelet),
        *_pulling(evidence, pod, now),
        *_out_of_memory(pod),
        *_gpu_not_requested(pod, own),
        *_refused_requests(logs),
        *map(gpu_stack.match_finding, own),
    ]
    judged = [Hypothesis(found, refuted_by=refutation(evidence, found, node, pod)) for found in symptoms]
    symptom = next((hypothesis.finding for hypothesis in judged if not hypothesis.refuted_by), None)
    if symptom is None and (judged or _fails(pod)):
        symptom = _unexplained(evidence, pod, [hypothesis.finding for hypothesis in judged])
    if symptom is None:
        return None
    found = conclude(symptom, [*judged, *_below(evidence, pod, node, now)])
    is_untied = symptom.code == "APP_ERROR" and found.cause is not symptom and not _speaks_of_gpus(logs)
    is_certain = found.is_certain and not is_untied and not doubt(found.cause, node)
    return msgspec.structs.replace(found, is_certain=is_certain)


def _speaks_of_gpus(logs: list[LogLines]) -> bool:
    """Whether the program's own log ties its failure to GPUs; otherwise a fault of the node may be a coincidence."""
    return any(GPU_WORDS.search(line) for log in logs for line in log.lines)


GPU_WORDS = re.compile(r"cuda|nvidia|\bgpu|nvml|nccl", re.I)


def _below(evidence: Evidence, pod: ClusterObject, node: Node | None, now: int) -> list[Hypothesis]:
    """Faults of the node's host and GPU stack, for a pod that uses them."""
    if not node_of(pod) or not _uses_gpus(pod):
        return []
    lines = gpu_stack.host_log_lines(evidence, node_of(pod))
    found = [gpu_stack.match_finding(seen) for seen in log_patterns.find_matches(lines, log_patterns.HOST)]
    if node is not None and nodes.looks_like_gpu_node(node):
        found += gpu_stack.node_findings(evidence, node, now, "")
    return [Hypothesis(fault, refuted_by=refutation(evidence, fault, node)) for fault in found]


def _uses_gpus(pod: ClusterObject) -> bool:
    """Whether it depends on the node's GPUs: it requests devices, belongs to the GPU stack, or uses its runtime."""
    runtime = nested_string(pod.data, "spec", "runtimeClassName")
    return requests_devices(pod) or bool(component_of(pod)) or "nvidia" in runtime


def running_pod_finding(evidence: Evidence, pod: ClusterObject) -> Finding | None:
    """A running pod that sees GPUs without having requested any."""
    asks = requests_devices(pod)
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


def _refused(pod: ClusterObject, kubelet: list[PatternMatch], node: Node | None) -> list[Finding]:
    reason, message = (
        nested_string(pod.data, "status", "reason"),
        nested_string(pod.data, "status", "message"),
    )
    if reason == "TopologyAffinityError":
        return [Finding("TOPOLOGY_MANAGER_REFUSED", "", (message,))]
    if reason == "UnexpectedAdmissionError" or reason.startswith("OutOf"):
        code = kubelet[0].code if kubelet else "KUBELET_ADMISSION_RACE"
        if code == "DEVICE_UNHEALTHY" and node is not None and all_healthy(node):
            past = f"when it was admitted, the GPUs of node {node.name} were unhealthy or not registered; all are now"
            return [Finding("KUBELET_ADMISSION_RACE", past, (f"{reason}: {message}",), (code,))]
        return [Finding(code, "", (f"{reason}: {message}",))]
    return []


def _refused_requests(logs: list[LogLines]) -> list[Finding]:
    """A program that creates objects, and repeats the API server's refusal of one."""
    lines = [
        LogLines(log.origin, [line for line in log.lines if API_REFUSAL.search(line)]) for log in logs if log.lines
    ]
    return [gpu_stack.match_finding(seen) for seen in log_patterns.find_matches(lines, log_patterns.API)]


API_REFUSAL = re.compile(r"error from server|denied the request|is forbidden: |is invalid: ", re.I)


def _gpu_not_requested(pod: ClusterObject, own: list[PatternMatch]) -> list[Finding]:
    """A program that finds no GPU in a pod that requests none."""
    if not own or own[0].code != "RUNTIME_NOT_CONFIGURED" or requests_devices(pod) or component_of(pod):
        return []
    message = f"the program looks for a GPU, but {pod.title} requests none"
    remedy = "request one in resources.limits (nvidia.com/gpu: 1)"
    return [Finding("APP_ERROR", message, gpu_stack.match_finding(own[0]).evidence, remedy=remedy)]


def requests_devices(pod: ClusterObject) -> bool:
    return any(
        "/" in name or nested_maps(container, "resources", "claims")
        for container in nested_maps(pod.data, "spec", "containers")
        for name in (*nested_map(container, "resources", "limits"), "")
    )


def _states(pod: ClusterObject) -> list[tuple[str, str, dict[str, object]]]:
    """(container, state, details) of all containers; `lastState`, too, unless the pod is ready now."""
    found = []
    moments = ("state",) if is_ready(pod) else ("state", "lastState")
    for kind in ("initContainerStatuses", "containerStatuses"):
        for status in nested_maps(pod.data, "status", kind):
            for moment in moments:
                for name, details in nested_map(status, moment).items():
                    found.append((nested_string(status, "name"), name, nested_map({"d": details}, "d")))
    return found


def _pulling(evidence: Evidence, pod: ClusterObject, now: int) -> list[Finding]:
    for container, state, details in _states(pod):
        if state == "waiting" and nested_string(details, "reason") in PULL_FAILED:
            message = nested_string(details, "message")
            headline = f"the image of container {container} can't be pulled: {message}"
            return [Finding("IMAGE_PULL_FAILED", headline)]
    events = current_events(evidence, pod)
    pulling = [event for event in events if event.reason == "Pulling"]
    pulled = [event for event in events if event.reason in ("Pulled", "Started", "Created")]
    if pulling and len(pulled) < len(pulling) and phase_of(pod) in ("Pending", "Failed", ""):
        since = now - parse_timestamp(pulling[-1].last) if pulling[-1].last else PULL_PATIENCE
        if since >= PULL_PATIENCE or phase_of(pod) == "Failed":
            return [Finding("IMAGE_PULL_SLOW", f"{pulling[-1].message}, for {since} s", (pulling[-1].message,))]
    deadline = [event for event in events if "ull" in event.message and "deadline" in event.message.lower()]
    return [Finding("IMAGE_PULL_SLOW", "", (deadline[-1].message,))] if deadline else []


def _out_of_memory(pod: ClusterObject) -> list[Finding]:
    for container, state, details in _states(pod):
        if state == "terminated" and nested_string(details, "reason") == "OOMKilled":
            return [Finding("CONTAINER_OOM", f"container {container} exceeded its memory limit and was killed")]
    return []


def _fails(pod: ClusterObject) -> bool:
    if phase_of(pod) == "Failed":
        return True
    return any(
        (state == "waiting" and nested_string(details, "reason") not in ("", "ContainerCreating", "PodInitializing"))
        or (state == "terminated" and nested_int(details, "exitCode") != 0)
        for _, state, details in _states(pod)
    )


def _unexplained(evidence: Evidence, pod: ClusterObject, doubted: list[Finding]) -> Finding:
    """A failing pod whose status and log name no cause that holds."""
    codes = [
        f"container {container} exited with {nested_int(details, 'exitCode')}"
        for container, state, details in _states(pod)
        if state == "terminated" and nested_int(details, "exitCode")
    ]
    logs = evidence.logs_of(pod)
    if doubted:
        message = f"it says {doubted[0].code}, but other evidence rules that out"
        missing = (
            MissingEvidence("what the container sees", f"kubectl exec -n {pod.namespace} {pod.name} -- nvidia-smi"),
        )
        return Finding("UNKNOWN", message, doubted[0].evidence, missing=missing)
    if not logs:
        missing = (MissingEvidence("the container's log", f"kubectl logs -n {pod.namespace} {pod.name} --previous"),)
        return Finding(
            "UNKNOWN", codes[0] if codes else "it failed, and its log is not in the evidence", missing=missing
        )
    last = [f"{log.origin}: {log.lines[-1]}" for log in logs if log.lines]
    return Finding("APP_ERROR", codes[0] if codes else "", tuple(last[:2]))
