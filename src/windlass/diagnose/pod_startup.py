"""Why a pod with a node does not work: refused by the kubelet, image not pulled, container not started or killed.

Called by `why`. Evidence in order: the pod's status and events, its program's log, the node's GPU stack and kernel log.
"""

from __future__ import annotations

from windlass.diagnose import gpu_stack, log_patterns, nodes
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding, MissingEvidence
from windlass.diagnose.log_patterns import PatternMatch
from windlass.diagnose.nvidia_smi import annotate_nvidia_smi_logs
from windlass.diagnose.subject import node_of, phase_of
from windlass.diagnose.unstructured import nested_int, nested_map, nested_maps, nested_string
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


def startup_finding(evidence: Evidence, pod: ClusterObject, now: int) -> Finding | None:
    """Why a placed pod does not start or fails; None if it does neither."""
    status_lines = gpu_stack.pod_status_lines(evidence, pod)
    node = node_of(pod)
    own = log_patterns.find_matches(annotate_nvidia_smi_logs(evidence.logs_of(pod)), log_patterns.CONTAINER)
    kubelet = log_patterns.find_matches(status_lines, log_patterns.KUBELET)
    host = _host_matches(evidence, node)
    for found in (
        _stale(kubelet, own),
        _refused(pod, kubelet),
        _first(kubelet),
        _pulling(evidence, pod, now),
        _out_of_memory(pod),
        _broken_device(evidence, pod, own, host),
        _gpu_not_requested(pod, own),
        _first(own),
    ):
        if found is not None:
            return found
    if _fails(pod):
        return _deeper(evidence, pod, node, host, now)
    return None


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


def _host_matches(evidence: Evidence, node: str) -> list[PatternMatch]:
    return log_patterns.find_matches(gpu_stack.host_log_lines(evidence, node), log_patterns.HOST) if node else []


def _stale(kubelet: list[PatternMatch], own: list[PatternMatch]) -> Finding | None:
    for seen in (*kubelet, *own):
        if seen.code == "DEVICE_ID_STALE":
            return gpu_stack.match_finding(seen)
    return None


def _refused(pod: ClusterObject, kubelet: list[PatternMatch]) -> Finding | None:
    reason, message = (
        nested_string(pod.data, "status", "reason"),
        nested_string(pod.data, "status", "message"),
    )
    if reason == "TopologyAffinityError":
        return Finding("TOPOLOGY_MANAGER_REFUSED", "", (message,))
    if reason == "UnexpectedAdmissionError" or reason.startswith("OutOf"):
        code = kubelet[0].code if kubelet else "KUBELET_ADMISSION_RACE"
        return Finding(code, "", (f"{reason}: {message}",))
    return None


def _first(matches: list[PatternMatch]) -> Finding | None:
    return gpu_stack.match_finding(matches[0]) if matches else None


def _gpu_not_requested(pod: ClusterObject, own: list[PatternMatch]) -> Finding | None:
    """A program that finds no GPU in a pod that requests none."""
    if not own or own[0].code != "RUNTIME_NOT_CONFIGURED" or requests_devices(pod):
        return None
    message = f"the program looks for a GPU, but {pod.title} requests none"
    remedy = "request one in resources.limits (nvidia.com/gpu: 1)"
    return Finding("APP_ERROR", message, gpu_stack.match_finding(own[0]).evidence, remedy=remedy)


def requests_devices(pod: ClusterObject) -> bool:
    return any(
        "/" in name or nested_maps(container, "resources", "claims")
        for container in nested_maps(pod.data, "spec", "containers")
        for name in (*nested_map(container, "resources", "limits"), "")
    )


def _states(pod: ClusterObject) -> list[tuple[str, str, dict[str, object]]]:
    """(container, state, details) of all containers, `lastState` included."""
    found = []
    for kind in ("initContainerStatuses", "containerStatuses"):
        for status in nested_maps(pod.data, "status", kind):
            for moment in ("state", "lastState"):
                for name, details in nested_map(status, moment).items():
                    found.append((nested_string(status, "name"), name, nested_map({"d": details}, "d")))
    return found


def _pulling(evidence: Evidence, pod: ClusterObject, now: int) -> Finding | None:
    for container, state, details in _states(pod):
        if state == "waiting" and nested_string(details, "reason") in PULL_FAILED:
            message = nested_string(details, "message")
            headline = f"the image of container {container} can't be pulled: {message}"
            return Finding("IMAGE_PULL_FAILED", headline)
    events = evidence.events_of(pod)
    pulling = [event for event in events if event.reason == "Pulling"]
    pulled = [event for event in events if event.reason in ("Pulled", "Started", "Created")]
    if pulling and len(pulled) < len(pulling) and phase_of(pod) in ("Pending", "Failed", ""):
        since = now - parse_timestamp(pulling[-1].last) if pulling[-1].last else PULL_PATIENCE
        if since >= PULL_PATIENCE or phase_of(pod) == "Failed":
            return Finding("IMAGE_PULL_SLOW", f"{pulling[-1].message}, for {since} s", (pulling[-1].message,))
    deadline = [event for event in events if "ull" in event.message and "deadline" in event.message.lower()]
    return Finding("IMAGE_PULL_SLOW", "", (deadline[-1].message,)) if deadline else None


def _out_of_memory(pod: ClusterObject) -> Finding | None:
    for container, state, details in _states(pod):
        if state == "terminated" and nested_string(details, "reason") == "OOMKilled":
            return Finding("CONTAINER_OOM", f"container {container} exceeded its memory limit and was killed")
    return None


def _broken_device(
    evidence: Evidence, pod: ClusterObject, own: list[PatternMatch], host: list[PatternMatch]
) -> Finding | None:
    """A hardware fault in the kernel log, which takes precedence over the program's own errors."""
    fault = next(
        (seen for seen in host if seen.code in ("GPU_HW_FAULT", "DRIVER_LIB_MISMATCH", "FABRIC_NOT_READY")),
        None,
    )
    if fault is not None and (own or _fails(pod)):
        return gpu_stack.match_finding(fault)
    return None


def _fails(pod: ClusterObject) -> bool:
    if phase_of(pod) == "Failed":
        return True
    return any(
        (state == "waiting" and nested_string(details, "reason") not in ("", "ContainerCreating", "PodInitializing"))
        or (state == "terminated" and nested_int(details, "exitCode") != 0)
        for _, state, details in _states(pod)
    )


def _deeper(evidence: Evidence, pod: ClusterObject, node: str, host: list[PatternMatch], now: int) -> Finding | None:
    """For a failing pod whose status and log say nothing: the node's GPU stack, else the program itself."""
    if host:
        return gpu_stack.match_finding(host[0])
    known = evidence.nodes.get(node)
    if known is not None and nodes.looks_like_gpu_node(known):
        found = gpu_stack.node_findings(evidence, known, now, "")
        if found:
            return found[0]
    codes = [
        f"container {container} exited with {nested_int(details, 'exitCode')}"
        for container, state, details in _states(pod)
        if state == "terminated" and nested_int(details, "exitCode")
    ]
    logs = evidence.logs_of(pod)
    if not logs:
        missing = (MissingEvidence("the container's log", f"kubectl logs -n {pod.namespace} {pod.name} --previous"),)
        return Finding(
            "UNKNOWN", codes[0] if codes else "it failed, and its log is not in the evidence", missing=missing
        )
    last = [f"{log.origin}: {log.lines[-1]}" for log in logs if log.lines]
    return Finding("APP_ERROR", codes[0] if codes else "", tuple(last[:2]))
