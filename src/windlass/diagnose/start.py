"""A pod that has a node and does not run as it should: refused by the kubelet, not pulled, not started, killed.

Fed by `why`. The pod's status and events come first, then what its program wrote, then the node's stack and kernel.
"""

from __future__ import annotations

from windlass.diagnose import nodes, signs, stack, tree
from windlass.diagnose.evidence import Evidence, Item
from windlass.diagnose.finding import Finding, Missing
from windlass.diagnose.signs import Sighting
from windlass.diagnose.smi import with_sentences
from windlass.diagnose.subject import node_of, phase_of
from windlass.model.times import seconds_of

PULL_PATIENCE = 120
"""Seconds of pulling from which on an image counts as slow."""
PULL_FAILED = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
)


def start_finding(evidence: Evidence, pod: Item, now: int) -> Finding | None:
    """What keeps a placed pod from working; None where nothing does."""
    words = stack.status_words(evidence, pod)
    node = node_of(pod)
    own = signs.look(with_sentences(evidence.logs_of(pod)), signs.CONTAINER)
    kubelet = signs.look(words, signs.KUBELET)
    host = _host_signs(evidence, node)
    for found in (
        _stale(kubelet, own),
        _refused(pod, kubelet),
        _first(kubelet),
        _pulling(evidence, pod, now),
        _memory(pod),
        _broken_device(evidence, pod, own, host),
        _unasked(pod, own),
        _first(own),
    ):
        if found is not None:
            return found
    if _fails(pod):
        return _deeper(evidence, pod, node, host, now)
    return None


def running_note(evidence: Evidence, pod: Item) -> Finding | None:
    """A pod that runs and yet has a GPU problem that its environment shows."""
    asks = asks_for_devices(pod)
    for container in tree.rows(pod.data, "spec", "containers"):
        for variable in tree.rows(container, "env"):
            if (
                tree.text(variable, "name") == "NVIDIA_VISIBLE_DEVICES"
                and tree.text(variable, "value") == "all"
                and not asks
            ):
                name = tree.text(container, "name")
                said = f"container {name} sets NVIDIA_VISIBLE_DEVICES=all without asking for a GPU"
                return Finding("GPU_VISIBLE_UNREQUESTED", said)
    return None


def _host_signs(evidence: Evidence, node: str) -> list[Sighting]:
    return signs.look(stack.host_lines(evidence, node), signs.HOST) if node else []


def _stale(kubelet: list[Sighting], own: list[Sighting]) -> Finding | None:
    for seen in (*kubelet, *own):
        if seen.code == "DEVICE_ID_STALE":
            return stack.sighting_finding(seen)
    return None


def _refused(pod: Item, kubelet: list[Sighting]) -> Finding | None:
    reason, message = tree.text(pod.data, "status", "reason"), tree.text(pod.data, "status", "message")
    if reason == "TopologyAffinityError":
        return Finding("TOPOLOGY_MANAGER_REFUSED", "", (message,))
    if reason == "UnexpectedAdmissionError" or reason.startswith("OutOf"):
        code = kubelet[0].code if kubelet else "KUBELET_ADMISSION_RACE"
        return Finding(code, "", (f"{reason}: {message}",))
    return None


def _first(seen: list[Sighting]) -> Finding | None:
    return stack.sighting_finding(seen[0]) if seen else None


def _unasked(pod: Item, own: list[Sighting]) -> Finding | None:
    """A program that finds no GPU, in a pod that asks for none."""
    if not own or own[0].code != "RUNTIME_NOT_CONFIGURED" or asks_for_devices(pod):
        return None
    said = f"the program looks for a GPU, and {pod.title} asks for none"
    remedy = "ask for one under resources.limits (nvidia.com/gpu: 1)"
    return Finding("APP_ERROR", said, stack.sighting_finding(own[0]).evidence, remedy=remedy)


def asks_for_devices(pod: Item) -> bool:
    return any(
        "/" in name or tree.rows(container, "resources", "claims")
        for container in tree.rows(pod.data, "spec", "containers")
        for name in (*tree.table(container, "resources", "limits"), "")
    )


def _states(pod: Item) -> list[tuple[str, str, dict[str, object]]]:
    """(container, state, details) of all containers, the last state too."""
    found = []
    for kind in ("initContainerStatuses", "containerStatuses"):
        for status in tree.rows(pod.data, "status", kind):
            for moment in ("state", "lastState"):
                for name, details in tree.table(status, moment).items():
                    found.append((tree.text(status, "name"), name, tree.table({"d": details}, "d")))
    return found


def _pulling(evidence: Evidence, pod: Item, now: int) -> Finding | None:
    for container, state, details in _states(pod):
        if state == "waiting" and tree.text(details, "reason") in PULL_FAILED:
            said = f"the image of container {container} can't be pulled: {tree.text(details, 'message')}"
            return Finding("IMAGE_PULL_FAILED", said)
    events = evidence.events_of(pod)
    pulling = [event for event in events if event.reason == "Pulling"]
    pulled = [event for event in events if event.reason in ("Pulled", "Started", "Created")]
    if pulling and len(pulled) < len(pulling) and phase_of(pod) in ("Pending", "Failed", ""):
        since = now - seconds_of(pulling[-1].last) if pulling[-1].last else PULL_PATIENCE
        if since >= PULL_PATIENCE or phase_of(pod) == "Failed":
            return Finding("IMAGE_PULL_SLOW", f"{pulling[-1].message}, for {since} s", (pulling[-1].message,))
    deadline = [event for event in events if "ull" in event.message and "deadline" in event.message.lower()]
    return Finding("IMAGE_PULL_SLOW", "", (deadline[-1].message,)) if deadline else None


def _memory(pod: Item) -> Finding | None:
    for container, state, details in _states(pod):
        if state == "terminated" and tree.text(details, "reason") == "OOMKilled":
            return Finding("CONTAINER_OOM", f"container {container} was killed for its memory limit")
    return None


def _broken_device(
    evidence: Evidence, pod: Item, own: list[Sighting], host: list[Sighting]
) -> Finding | None:
    """A kernel line about the hardware explains whatever the program says of its GPU."""
    fault = next(
        (seen for seen in host if seen.code in ("GPU_HW_FAULT", "DRIVER_LIB_MISMATCH", "FABRIC_NOT_READY")),
        None,
    )
    if fault is not None and (own or _fails(pod)):
        return stack.sighting_finding(fault)
    return None


def _fails(pod: Item) -> bool:
    if phase_of(pod) == "Failed":
        return True
    return any(
        (
            state == "waiting"
            and tree.text(details, "reason") not in ("", "ContainerCreating", "PodInitializing")
        )
        or (state == "terminated" and tree.number(details, "exitCode") != 0)
        for _, state, details in _states(pod)
    )


def _deeper(evidence: Evidence, pod: Item, node: str, host: list[Sighting], now: int) -> Finding | None:
    """It fails, and neither its status nor its log says why: the node's stack may, else it is the program's own."""
    if host:
        return stack.sighting_finding(host[0])
    known = evidence.nodes.get(node)
    if known is not None and nodes.looks_like_gpu_node(known):
        found = stack.node_findings(evidence, known, now, "")
        if found:
            return found[0]
    codes = [
        f"container {container} exited with {tree.number(details, 'exitCode')}"
        for container, state, details in _states(pod)
        if state == "terminated" and tree.number(details, "exitCode")
    ]
    logs = evidence.logs_of(pod)
    if not logs:
        missing = (Missing("the container's log", f"kubectl logs -n {pod.namespace} {pod.name} --previous"),)
        return Finding("UNKNOWN", codes[0] if codes else "it failed, and no log is at hand", missing=missing)
    last = [f"{log.origin}: {log.lines[-1]}" for log in logs if log.lines]
    return Finding("APP_ERROR", codes[0] if codes else "", tuple(last[:2]))
