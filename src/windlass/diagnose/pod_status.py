"""What a pod's own status and events say: refused by the kubelet, image not pulled, container killed or failing.

`pod_startup` reads it of the pods of a question, `workload_faults` of the pods that these depend on.
"""

from __future__ import annotations

from windlass.diagnose.contradictions import all_healthy, current_events, is_ready
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.log_patterns import PatternMatch
from windlass.diagnose.subject import phase_of
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
STARTING = ("", "ContainerCreating", "PodInitializing")
"""Reasons of waiting containers that are still starting."""


def container_states(pod: ClusterObject) -> list[tuple[str, str, dict[str, object]]]:
    """(container, state, details) of all containers; `lastState`, too, unless the pod is ready now."""
    found = []
    moments = ("state",) if is_ready(pod) else ("state", "lastState")
    for kind in ("initContainerStatuses", "containerStatuses"):
        for status in nested_maps(pod.data, "status", kind):
            for moment in moments:
                for name, details in nested_map(status, moment).items():
                    found.append((nested_string(status, "name"), name, nested_map({"d": details}, "d")))
    return found


def is_failing(pod: ClusterObject) -> bool:
    """Whether it has failed, or one of its containers has."""
    if phase_of(pod) == "Failed":
        return True
    return any(
        (state == "waiting" and nested_string(details, "reason") not in STARTING)
        or (state == "terminated" and nested_int(details, "exitCode") != 0)
        for _, state, details in container_states(pod)
    )


def admission_findings(pod: ClusterObject, kubelet: list[PatternMatch], node: Node | None) -> list[Finding]:
    """The kubelet has refused the pod."""
    reason, message = (nested_string(pod.data, "status", field) for field in ("reason", "message"))
    if reason == "TopologyAffinityError":
        return [Finding("TOPOLOGY_MANAGER_REFUSED", "", (message,))]
    if reason == "UnexpectedAdmissionError" or reason.startswith("OutOf"):
        code = kubelet[0].code if kubelet else "KUBELET_ADMISSION_RACE"
        if code == "DEVICE_UNHEALTHY" and node is not None and all_healthy(node):
            past = (
                f"when it was admitted, GPUs of node {node.name} were unhealthy or not registered; all are healthy now"
            )
            return [Finding("KUBELET_ADMISSION_RACE", past, (f"{reason}: {message}",), (code,))]
        return [Finding(code, "", (f"{reason}: {message}",))]
    return []


def pull_findings(evidence: Evidence, pod: ClusterObject, now: int) -> list[Finding]:
    """An image that can't be pulled, or is still being pulled."""
    for container, state, details in container_states(pod):
        if state == "waiting" and nested_string(details, "reason") in PULL_FAILED:
            message = nested_string(details, "message") or nested_string(details, "reason")
            said = [event.message for event in current_events(evidence, pod) if event.reason == "Failed"]
            headline = f"the image of container {container} can't be pulled: {message}"
            return [Finding("IMAGE_PULL_FAILED", headline, tuple(said[-1:]))]
    events = current_events(evidence, pod)
    pulling = [event for event in events if event.reason == "Pulling"]
    pulled = [event for event in events if event.reason in ("Pulled", "Started", "Created")]
    if pulling and len(pulled) < len(pulling) and phase_of(pod) in ("Pending", "Failed", ""):
        since = now - parse_timestamp(pulling[-1].last) if pulling[-1].last else PULL_PATIENCE
        if since >= PULL_PATIENCE or phase_of(pod) == "Failed":
            return [Finding("IMAGE_PULL_SLOW", f"{pulling[-1].message}, for {since} s so far", (pulling[-1].message,))]
    deadline = [event for event in events if "ull" in event.message and "deadline" in event.message.lower()]
    return [Finding("IMAGE_PULL_SLOW", "", (deadline[-1].message,))] if deadline else []


def memory_findings(pod: ClusterObject) -> list[Finding]:
    for container, state, details in container_states(pod):
        if state == "terminated" and nested_string(details, "reason") == "OOMKilled":
            return [Finding("CONTAINER_OOM", f"container {container} exceeded its memory limit and was killed")]
    return []


def early_end_findings(pod: ClusterObject) -> list[Finding]:
    """A container that ends well, and is started again for ever."""
    for status in nested_maps(pod.data, "status", "containerStatuses"):
        container, last = nested_string(status, "name"), nested_map(status, "lastState", "terminated")
        waits = nested_string(status, "state", "waiting", "reason") == "CrashLoopBackOff"
        if waits and last.get("exitCode") == 0:
            message = f"container {container} ends with exit code 0 again and again, and the pod restarts it"
            remedy = "give it a command that keeps running, or make it a Job"
            return [Finding("APP_ERROR", message, remedy=remedy)]
    return []


def config_findings(pod: ClusterObject) -> list[Finding]:
    """A container that can't be created since its spec names what does not exist."""
    for container, state, details in container_states(pod):
        if state == "waiting" and nested_string(details, "reason") == "CreateContainerConfigError":
            message = nested_string(details, "message") or "its configuration is wrong"
            remedy = "create what the message names, or correct the name in the pod's template"
            return [Finding("INVALID_OBJECT", f"container {container} can't be created: {message}", remedy=remedy)]
    return []


def with_mounted_memory(pod: ClusterObject, found: Finding) -> Finding:
    """Too little shared memory, though a volume is mounted at /dev/shm: its size is the cause, not the default's."""
    size = mounted_memory(pod.data) if found.code == "SHM_TOO_SMALL" else None
    if size is None:
        return found
    volume, limit = size
    bound = f"has a sizeLimit of {limit}" if limit else "has no sizeLimit, so that the pod's memory limit bounds it"
    message = f"volume {volume} is mounted at /dev/shm and {bound}; the program needs more shared memory"
    remedy = f"raise the sizeLimit of volume {volume}, and the memory limit, which its contents count against"
    return Finding("SHM_TOO_SMALL", message, found.evidence, found.contributing, remedy)


def mounted_memory(data: dict[str, object]) -> tuple[str, str] | None:
    """(name, sizeLimit) of the emptyDir that a container mounts at /dev/shm; None if none does."""
    volumes = {nested_string(volume, "name"): volume for volume in nested_maps(data, "spec", "volumes")}
    for container in nested_maps(data, "spec", "containers"):
        for mount in nested_maps(container, "volumeMounts"):
            name = nested_string(mount, "name")
            if nested_string(mount, "mountPath").rstrip("/") == "/dev/shm" and "emptyDir" in volumes.get(name, {}):
                return name, nested_string(volumes[name], "emptyDir", "sizeLimit")
    return None
