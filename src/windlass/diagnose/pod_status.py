"""What a pod's own status and events say: refused by the kubelet, image not pulled, container killed or failing.

`pod_startup` reads it of the pods of a question, `workload_faults` of the pods that these depend on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf

from windlass.diagnose.contradictions import all_healthy, current_events, is_ready
from windlass.diagnose.evidence import ClusterObject, Event, Evidence, LogLines
from windlass.diagnose.finding import Finding, MissingEvidence
from windlass.diagnose.log_patterns import LONG_LINE, PatternMatch
from windlass.diagnose.nested_errors import innermost
from windlass.diagnose.subject import node_of, phase_of
from windlass.diagnose.unstructured import find_condition, nested, nested_int, nested_map, nested_maps, nested_string
from windlass.model.node import Node
from windlass.model.times import format_duration, parse_timestamp

PULL_PATIENCE = 120
"""Seconds after which an image pull counts as slow."""
PULL_FAILED = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
    "ImageInspectError",
    "SignatureValidationFailed",
)
PULL_REASON = re.compile(r"(?<=Failed to pull image )\"?\S+: .+", re.S)
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
        refused = f"the kubelet of node {node_of(pod)} refused {pod.title}, which the scheduler had placed there"
        headline = f"{refused}: {message}" if code == "KUBELET_ADMISSION_RACE" and message else ""
        if code == "REQUEST_EXCEEDS_CLUSTER":
            headline = f"{refused}: {innermost(message.removesuffix(', which is unexpected'))}"
        return [Finding(code, headline, (f"{reason}: {message}",))]
    return []


def pull_findings(evidence: Evidence, pod: ClusterObject, now: int) -> list[Finding]:
    """An image that can't be pulled, or is still being pulled."""
    for container, state, details in container_states(pod):
        if state == "waiting" and nested_string(details, "reason") in PULL_FAILED:
            message = nested_string(details, "message") or nested_string(details, "reason")
            said = [event.message for event in current_events(evidence, pod) if event.reason == "Failed"]
            reasons = [found[0] for text in said if (found := PULL_REASON.search(text)) is not None]
            if reasons and message.startswith("Back-off"):
                message = reasons[-1]  # the status only says that the kubelet waits
            headline = f"the image of container {container} can't be pulled: {message}"
            remedy = _secret_remedy(evidence, pod)
            return [Finding("IMAGE_PULL_FAILED", headline, tuple(said[-1:]), remedy=remedy)]
    events = current_events(evidence, pod)
    pulling = [event for event in events if event.reason == "Pulling" and _is_unfinished(pod, event, events)]
    if pulling and phase_of(pod) in ("Pending", "Failed", ""):
        since = now - parse_timestamp(pulling[-1].last) if pulling[-1].last else PULL_PATIENCE
        if since >= PULL_PATIENCE or phase_of(pod) == "Failed":
            return [Finding("IMAGE_PULL_SLOW", f"{pulling[-1].message}, for {since} s so far", (pulling[-1].message,))]
    deadline = [event for event in events if "ull" in event.message and "deadline" in event.message.lower()]
    return [Finding("IMAGE_PULL_SLOW", "", (deadline[-1].message,))] if deadline else []


def _secret_remedy(evidence: Evidence, pod: ClusterObject) -> str:
    """What to do about pull secrets that the kubelet does not find; empty if it finds them."""
    events = [event for event in current_events(evidence, pod) if event.reason == "FailedToRetrieveImagePullSecret"]
    names = events[-1].message.partition("(")[2].partition(")")[0] if events else ""
    where = f"in namespace {pod.namespace}, which the kubelet does not find"
    return f"create the pull secret {names} {where}, or correct its name in the pod's template" if names else ""


def _is_unfinished(pod: ClusterObject, pull: Event, events: Sequence[Event]) -> bool:
    """Whether an image is still being pulled: nothing says that it is there, and its container waits."""
    image = pull.message.partition('"')[2].partition('"')[0]
    if any(event.reason == "Pulled" and f'"{image}"' in event.message and event.last >= pull.last for event in events):
        return False
    lists = (nested_maps(pod.data, "status", field) for field in ("containerStatuses", "initContainerStatuses"))
    users = [status for statuses in lists for status in statuses if image and status.get("image") == image]
    if users:
        return any("waiting" in nested_map(status, "state") for status in users)
    progress = sum(event.reason in ("Pulled", "Started", "Created") for event in events)
    return progress < sum(event.reason == "Pulling" for event in events)


def memory_findings(pod: ClusterObject) -> list[Finding]:
    for container, state, details in container_states(pod):
        if state == "terminated" and nested_string(details, "reason") == "OOMKilled":
            limit = _memory_limit(pod, container)
            return [Finding("CONTAINER_OOM", f"container {container} exceeded its memory limit{limit} and was killed")]
    return []


def system_memory_findings(evidence: Evidence, pod: ClusterObject) -> list[Finding]:
    """A container that was killed while its node ran out of memory: the kernel does not ask whose fault that is."""
    killed = [
        (container, nested_string(details, "finishedAt"))
        for container, state, details in container_states(pod)
        if state == "terminated" and nested_int(details, "exitCode") == SIGKILLED
    ]
    item = evidence.get("Node", "", node_of(pod))
    events = evidence.events_of(item) if item is not None else []
    for container, moment in killed:
        for event in events:
            is_then = (
                not moment or not event.last or abs(parse_timestamp(event.last) - parse_timestamp(moment)) < AT_ONCE
            )
            if event.reason == "SystemOOM" and is_then:
                message = f"node {node_of(pod)} ran out of memory, and the kernel killed container {container}"
                remedy = (
                    "request as much memory as it uses, with a limit, so that the node is not promised more than it has"
                )
                return [
                    Finding(
                        "CONTAINER_OOM", message, (f"event of node {node_of(pod)}: {event.message}",), remedy=remedy
                    )
                ]
    return []


SIGKILLED = 137
AT_ONCE = 300
"""Seconds between the end of a container and what explains it."""


def _memory_limit(pod: ClusterObject, container: str) -> str:
    """` of 16Gi`; empty where the container has none of its own."""
    for declared in (*nested_maps(pod.data, "spec", "initContainers"), *nested_maps(pod.data, "spec", "containers")):
        if nested_string(declared, "name") == container:
            limit = nested_string(declared, "resources", "limits", "memory")
            return f" of {limit}" if limit else ""
    return ""


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
            if "runAsNonRoot" in message:
                remedy = "set securityContext.runAsUser to a number that is not 0, or use an image with such a USER"
            elif "subPath" in message:
                remedy = "see the volume that the message names: whether it is mounted there, and has that path"
            return [Finding("INVALID_OBJECT", f"container {container} can't be created: {message}", remedy=remedy)]
    return []


def uncreated(pod: ClusterObject) -> tuple[str, str] | None:
    """(container, the runtime's words) of a container that the runtime can't create or start; None if there is none."""
    for container, state, details in container_states(pod):
        is_other = nested_string(details, "reason") not in (*STARTING, *PULL_FAILED, *TOLD_OTHERWISE)
        if state == "waiting" and is_other and details.get("message"):
            return container, nested_string(details, "message")
    return None


TOLD_OTHERWISE = ("CrashLoopBackOff", "CreateContainerConfigError")
"""Reasons of waiting containers whose message says nothing of the runtime's."""


def runtime_findings(pod: ClusterObject) -> list[Finding]:
    """A container that can't be created, by the fault of a part of NVIDIA's toolkit, in whatever words.

    That is sure; why that part fails is not, so other patterns come first.
    """
    container, said = uncreated(pod) or ("", "")
    part = TOOLKIT.search(said)
    if part is None:
        return []
    message = f"container {container} can't be created: {part[0]} fails on node {node_of(pod)}"
    missing = MissingEvidence("the logs of the runtime and the toolkit", f"windlass doctor node {node_of(pod)}")
    quote = (f"status of {pod.title}: {said[:LONG_LINE]}",)
    return [Finding("RUNTIME_NOT_CONFIGURED", message, quote, missing=(missing,))]


TOOLKIT = re.compile(r"nvidia-(container-(runtime|toolkit|cli)[\w.-]*|ctk|cdi-hook)|libnvidia-container")


# Started, but not as it should be


def entry_point_findings(said: list[LogLines], node: Node | None) -> list[Finding]:
    """The runtime can't execute the container's own program: a fault of its command or its image, not of the node.

    `said`: the runtime's words, in the pod's status, and the first words of the log, where the kernel's come through.
    """
    for log in said:
        for line in log.lines:
            found = ENTRY_POINT.search(line)
            program = found["program"] or "" if found is not None else ""
            if found is None or HOOK.search(line[: found.start()]) or program.startswith("nvidia"):
                continue  # a hook, or a program that NVIDIA's toolkit should have put there
            why, quote = found["why"].strip(), (f"{log.origin}: {line[:LONG_LINE]}",)
            if "format" in why:
                kind = node.labels.get(ARCH_LABEL, "") if node is not None else ""
                message = f"the entry point is built for another architecture than its node's {kind}".rstrip()
                return [Finding("APP_ERROR", message, quote, remedy="use an image for the node's architecture")]
            name = program or "that the image names"
            remedy = "these are arguments: put them into args, and leave command to the image's program"
            if not name.startswith("-"):
                remedy = "correct command, args or workingDir of the container, or its image"
            return [Finding("APP_ERROR", f"the entry point {name} can't be executed: {why}", quote, remedy=remedy)]
    return []


ENTRY_POINT = re.compile(
    r"exec(utable file)?:? (user process caused|[\"`]?(?P<program>[^\":`]*?)[\"`]?)\W+(stat [^:]+: )?"
    r"(?P<why>executable file not found[^:]*|not found in \$PATH|no such file or directory|permission denied"
    r"|is a directory|exec format error)",
    re.I,
)
"""As runc and as crun say it."""
HOOK = re.compile(r"\bhook\b|\bprobe\b|exec failed", re.I)
"""Words before a program that is another one than the container's own."""
ARCH_LABEL = "kubernetes.io/arch"


def probe_findings(evidence: Evidence, pod: ClusterObject) -> list[Finding]:
    """A container that the kubelet kills again and again, since its probe fails."""
    events = current_events(evidence, pod)
    for event in reversed(events):
        if event.reason == "Killing" and (killed := KILLED.search(event.message)) and is_failing(pod):
            container, probe = killed["container"], killed["probe"].lower()
            said = [other.message for other in events if other.reason == "Unhealthy" and probe in other.message.lower()]
            message = f"the kubelet kills container {container}, since its {probe} probe fails"
            remedy = (
                "if it is still loading then, give it longer (a startupProbe with a higher failureThreshold); "
                "else repair what the probe asks"
            )
            return [Finding("APP_ERROR", message, (event.message, *said[-1:]), remedy=remedy)]
    return []


KILLED = re.compile(r"container (?P<container>\S+) failed (?P<probe>liveness|startup) probe", re.I)


def end_findings(pod: ClusterObject) -> list[Finding]:
    """A pod that the kubelet or a controller has ended for a reason that its status names."""
    reason, message = (nested_string(pod.data, "status", field) for field in ("reason", "message"))
    node, quote = node_of(pod), (f"{reason}: {message}",)
    if phase_of(pod) != "Failed":
        return []
    low = LOW_ON.search(message) if reason == "Evicted" else None
    if low is not None and low[1].lower() in EVICTIONS:
        code, what, remedy = EVICTIONS[low[1].lower()]
        return [Finding(code, f"the kubelet evicted it, since node {node} was low on {what}", quote, remedy=remedy)]
    if reason == "DeadlineExceeded":
        remedy = "raise activeDeadlineSeconds, or save checkpoints"
        seconds = nested_int(pod.data, "spec", "activeDeadlineSeconds")
        limit = f" of {seconds}" if seconds else ""
        return [Finding("DURATION_EXCEEDED", f"it ran into its activeDeadlineSeconds{limit}", quote, remedy=remedy)]
    if reason == "NodeAffinity":
        headline = f"the kubelet refused it: node {node} no longer has the labels that it selects by"
        return [Finding("SELECTOR_MISMATCH", headline, quote)]
    disruption = find_condition(pod.data, "DisruptionTarget")
    cause = nested_string(disruption, "reason") if nested_string(disruption, "status") == "True" else ""
    if reason in NODE_ENDED or cause in NODE_ENDED:
        said = (f"{cause}: {nested_string(disruption, 'message')}",) if cause else quote
        remedy = f"its owner makes it again; see why node {node} went: kubectl describe node {node}"
        return [
            Finding(
                "NODE_UNSCHEDULABLE", f"node {node} was shut down or deleted, and the pod with it", said, remedy=remedy
            )
        ]
    return []


LOW_ON = re.compile(r"low on resource: \[?([a-z]+)", re.I)
_DISK = ("EPHEMERAL_STORAGE", "disk", "free the node's disk, request ephemeral-storage, and write to a volume instead")
EVICTIONS = {
    "memory": (
        "CPU_MEM_INSUFFICIENT",
        "memory",
        "request as much memory as it uses, so that the node is not promised more than it has",
    ),
    "pids": ("POD_COUNT_LIMIT", "process ids", "limit the processes of its pods (podPidsLimit), or use more nodes"),
    **dict.fromkeys(("nodefs", "imagefs", "containerfs", "inodes"), _DISK),
}
"""What the kubelet runs out of → (code, in words, remedy); ephemeral-storage is in `log_patterns`."""
NODE_ENDED = (
    *("NodeShutdown", "Shutdown", "NodeLost", "DeletionByTaintManager", "DeletionByPodGC", "TerminationByKubelet"),
    "Terminated",
)
SIGNALS = {
    126: "its command can't be executed",
    127: "its command was not found",
    132: "an instruction that this CPU does not have",
    134: "it aborted",
    135: "a bus error",
    137: "killed with SIGKILL",
    139: "a segmentation fault",
    143: "ended with SIGTERM",
}
"""Exit codes that mean the same for every program."""


def end_texts(pod: ClusterObject) -> list[str]:
    """That something ended it on purpose, in the words of its status: preempted, drained, evicted."""
    disruption = find_condition(pod.data, "DisruptionTarget")
    rows = [disruption] if nested_string(disruption, "status") == "True" else []
    rows += [nested_map(pod.data, "status")] if phase_of(pod) == "Failed" else []
    texts = [[nested_string(row, field) for field in ("reason", "message")] for row in rows]
    return [f"it was ended: {': '.join(filter(None, text))}" for text in texts if text[0]]


def ended_at(pod: ClusterObject) -> str:
    """When the first of its containers failed; empty if none did, or if that is not known."""
    ends = [
        nested_string(details, "finishedAt")
        for _, state, details in container_states(pod)
        if state == "terminated" and nested_int(details, "exitCode")
    ]
    return min((end for end in ends if end), default="")


def exit_texts(pod: ClusterObject) -> list[str]:
    """With which codes its containers ended, and what these mean."""
    return [
        f"container {container} exited with {code}" + (f" ({SIGNALS[code]})" if code in SIGNALS else "")
        for container, state, details in container_states(pod)
        if state == "terminated" and (code := nested_int(details, "exitCode"))
    ]


def with_mounted_memory(pod: ClusterObject, found: Finding) -> Finding:
    """Too little shared memory, though a volume is mounted at /dev/shm: its size is the cause, not the default's."""
    size = mounted_memory(pod.data) if found.code == "SHM_TOO_SMALL" else None
    if size is None:
        return found
    volume, limit = size
    bound = f"has a sizeLimit of {limit}" if limit else "has no sizeLimit, so that the pod's memory limit bounds it"
    message = f"volume {volume} is mounted at /dev/shm and {bound}; the program needs more shared memory"
    remedy = f"raise the memory limit, which bounds volume {volume}"
    if limit:
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


# Neither failing nor well


def stuck_finding(evidence: Evidence, pod: ClusterObject, now: int, patience: int) -> Finding | None:
    """A pod that has not been ready, or should have ended, for longer than `patience` seconds, for no known reason."""
    if _unready_since(pod) < now - patience:
        return _unready(evidence, pod, now)
    return _not_ending(pod, now) if _deleted_at(pod) < now - patience else None


def _unready_since(pod: ClusterObject) -> int | float:
    """Since when it runs without being ready; infinity if it does not, or if that is not known."""
    ready = find_condition(pod.data, "Ready")
    moment = nested_string(ready, "lastTransitionTime")
    is_unready = phase_of(pod) == "Running" and nested_string(ready, "status") == "False" and bool(moment)
    return parse_timestamp(moment) if is_unready else inf


def _unready(evidence: Evidence, pod: ClusterObject, now: int) -> Finding:
    since = format_duration(int(now - _unready_since(pod)))
    missing = (
        MissingEvidence("what its probe says", f"kubectl describe pod -n {pod.namespace} {pod.name}"),
        MissingEvidence("its log", f"kubectl logs -n {pod.namespace} {pod.name} --all-containers"),
    )
    warnings = [event.message for event in evidence.events_of(pod) if event.reason == "Unhealthy"]
    said = tuple(f"event of {pod.title}: {message}" for message in warnings[-1:])
    message = f"{pod.title} runs, but has not been ready for {since}"
    if not warnings:
        return Finding("UNKNOWN", message, said, missing=missing)
    return Finding("APP_ERROR", f"{message}: {warnings[-1]}", said, missing=missing, remedy=PROBE_REMEDY)


PROBE_REMEDY = "see in its log whether it still loads; compare the probe's port and path with what the program serves"


def _deleted_at(pod: ClusterObject) -> int | float:
    """When it should have ended, its grace period included; infinity if it was not deleted."""
    moment = nested_string(pod.data, "metadata", "deletionTimestamp")
    return parse_timestamp(moment) if moment else inf


def _not_ending(pod: ClusterObject, now: int) -> Finding:
    """A deleted pod on a working node that stays: a finalizer, or a program that can't be killed."""
    held = [name for name in nested(pod.data, "metadata", "finalizers") or [] if isinstance(name, str)]
    why = f"its finalizer {', '.join(held)} is not removed" if held else "its containers have not ended"
    message = f"{pod.title} should have ended {format_duration(int(now - _deleted_at(pod)))} ago: {why}"
    node = node_of(pod)
    missing = (
        MissingEvidence("what holds it", f"kubectl describe pod -n {pod.namespace} {pod.name}"),
        MissingEvidence("whether its program hangs in the driver", f"windlass doctor node {node}"),
    )
    return Finding("UNKNOWN", message, missing=missing)
