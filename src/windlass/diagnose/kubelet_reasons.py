"""What the kubelet's own reasons say, whatever the words beside them: why it refused a pod, or for what it waits.

`pod_startup` asks it after all messages have been read: a reason names the layer, a message what is wrong there.
"""

from __future__ import annotations

import re

from windlass.diagnose.contradictions import current_events
from windlass.diagnose.evidence import ClusterObject, Event, Evidence
from windlass.diagnose.finding import Finding, MissingEvidence
from windlass.diagnose.nested_errors import innermost
from windlass.diagnose.pod_status import STARTING, container_states
from windlass.diagnose.reports import COMPLAINS
from windlass.diagnose.subject import node_of, phase_of
from windlass.diagnose.unstructured import nested_maps, nested_string

REFUSALS = {
    "SysctlForbidden": (
        "POLICY_DENIED",
        "drop the sysctl from securityContext.sysctls, or have it allowed on the node (kubelet "
        "--allowed-unsafe-sysctls)",
    ),
    "AppArmor": ("POLICY_DENIED", "load the profile on the node, or drop it from the pod"),
    "PodOSNotSupported": ("SELECTOR_MISMATCH", "select nodes of the operating system in spec.os"),
    "PodOSSelectorNodeLabelDoesNotMatch": ("SELECTOR_MISMATCH", "select nodes of the operating system in spec.os"),
    "VolumeAttachmentLimitExceeded": ("STORAGE_INSUFFICIENT", "use fewer volumes on that node, or another node"),
    "NodePorts": ("HOST_PORT_CONFLICT", ""),
    "TaintToleration": ("TAINT_NOT_TOLERATED", ""),
    "PodFeatureUnsupported": ("INVALID_OBJECT", "take the field out that the message names, or upgrade the node"),
}
"""Reason of a pod that the kubelet has refused → (code, remedy)."""
LAYERS = {
    **dict.fromkeys(("FailedMount", "FailedAttachVolume", "FailedMapVolume"), "STORAGE_INSUFFICIENT"),
    "FailedPrepareDynamicResources": "DEVICE_PLUGIN_FAILING",
}
"""Reason of an event about a pod that does not start → code of the layer that it waits for."""


def refusal_findings(pod: ClusterObject) -> list[Finding]:
    """The kubelet has refused the pod for a reason that says enough."""
    reason, message = (nested_string(pod.data, "status", field) for field in ("reason", "message"))
    if phase_of(pod) != "Failed" or reason not in REFUSALS:
        return []
    code, remedy = REFUSALS[reason]
    said = f": {message}" if message else ""
    refused = f"the kubelet of node {node_of(pod)} refused {pod.title}{said}"
    return [Finding(code, refused, (f"{reason}: {message}",), remedy=remedy)]


def layer_findings(evidence: Evidence, pod: ClusterObject) -> list[Finding]:
    """The layer that the kubelet complains of last, while none of the pod's containers has been started."""
    if not _is_being_created(pod):
        return []
    warnings = [event for event in current_events(evidence, pod) if event.warning]
    if warnings and (handler := _failing_handler(pod, warnings[-1])) is not None:
        return [handler]
    code = LAYERS.get(warnings[-1].reason, "") if warnings else ""
    return [_of_layer(evidence, pod, code, warnings[-1])] if code else []


def _failing_handler(pod: ClusterObject, event: Event) -> Finding | None:
    """The runtime that the pod's class names can't start its sandbox, and the network is not what it lacks."""
    name = nested_string(pod.data, "spec", "runtimeClassName")
    if event.reason != "FailedCreatePodSandBox" or not name or not RUNTIME_WORDS.search(event.message):
        return None
    message = f"the runtime {name} of node {node_of(pod)} can't start the sandbox of {pod.title}"
    missing = MissingEvidence("the logs of the runtime", f"windlass doctor node {node_of(pod)}")
    quote = f"event of {pod.title}: {event.message}"
    remedy = f"see the runtime's log on the node, and whether {name} is installed there as its class needs it"
    said = f"{message}: {innermost(event.message)}"
    return Finding("RUNTIME_NOT_CONFIGURED", said, (quote,), remedy=remedy, missing=(missing,))


RUNTIME_WORDS = re.compile(r"\bshim\b|containerd task|OCI runtime|\b(runc|crun|kata|runsc|vsock|qemu)\b", re.I)


def _is_being_created(pod: ClusterObject) -> bool:
    states = container_states(pod)
    waits = (state == "waiting" and nested_string(details, "reason") in STARTING for _, state, details in states)
    return phase_of(pod) == "Pending" and bool(node_of(pod)) and all(waits)


def _of_layer(evidence: Evidence, pod: ClusterObject, code: str, event: Event) -> Finding:
    proof = (f"event of {pod.title}: {event.message}",)
    essence = innermost(event.message)
    if code == "STORAGE_INSUFFICIENT":
        message = f"a volume of {pod.title} can't be mounted on node {node_of(pod)}: {essence}"
        return Finding(
            code, message, proof, remedy=f"mend what the message names; {pod.title} is tried again by itself"
        )
    claims = ", ".join(claim for claim in _claims(pod) if claim in event.message)
    of = f" of claim {claims}" if claims else ""
    message = f"the driver's kubelet plugin can't prepare the devices{of} on node {node_of(pod)}: {essence}"
    return Finding(code, message, (*proof, *_plugin_words(evidence, pod, essence)), remedy=PLUGIN_REMEDY)


PLUGIN_REMEDY = "read the log of the driver's kubelet plugin on that node; see what it finds on the host"


def _claims(pod: ClusterObject) -> list[str]:
    made = nested_maps(pod.data, "status", "resourceClaimStatuses")
    names = [
        nested_string(row, "resourceClaimName") for row in (*made, *nested_maps(pod.data, "spec", "resourceClaims"))
    ]
    return [name for name in dict.fromkeys(names) if name]


def _plugin_words(evidence: Evidence, pod: ClusterObject, essence: str) -> tuple[str, ...]:
    """What the plugin on the pod's node said just before, in the log that repeats the error."""
    for other in evidence.pods_on(node_of(pod)):
        for log in evidence.logs_of(other):
            places = [place for place, line in enumerate(log.lines) if essence in line]
            before = log.lines[max(0, places[-1] - 3) : places[-1]] if places else []
            warned = [line for line in before if COMPLAINS.search(line) or line.startswith("W")]
            if places:
                return tuple(f"{log.origin}: {line.strip()[:200]}" for line in warned[-1:])
    return ()
