"""The pod's PodScheduled condition and FailedScheduling events, as evidence.

`why` falls back on them if the caller may not see all nodes and pods. Windlass ends its message with the code of the
cause. The text of another scheduler is only repeated: no cause is derived from it, except for storage.
"""

from __future__ import annotations

import re

from windlass.apply.messages import code_of_message
from windlass.diagnose.causes import CAUSES
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding, MissingEvidence
from windlass.diagnose.unstructured import find_condition, nested_string

REASONS = {
    "WaitingForQuota": "KUEUE_QUOTA_INSUFFICIENT",
    "WaitingForGang": "GANG_INCOMPLETE",
    "WaitingBehindPlan": "RESERVED_FOR_OTHERS",
    "WaitingForVictims": "WAITING_FOR_PREEMPTION",
}
NODES_AND_PODS_MISSING = (
    MissingEvidence("the nodes", "kubectl get nodes -o json"),
    MissingEvidence("all pods", "kubectl get pods -A -o json"),
)


CLAIMS_MISSING = (
    MissingEvidence("claims and slices", "kubectl get resourceclaims,resourceclaimtemplates -A -o json"),
    MissingEvidence("published devices", "kubectl get resourceslices,deviceclasses -o json"),
)


def condition_finding(
    evidence: Evidence,
    pod: ClusterObject,
    unknown_message: str,
    needed: tuple[MissingEvidence, ...] = NODES_AND_PODS_MISSING,
) -> Finding:
    """The cause that the scheduler named; else UNKNOWN with its message and the missing evidence."""
    condition = find_condition(pod.data, "PodScheduled")
    message, reason = (nested_string(condition, "message"), nested_string(condition, "reason"))
    code = code_of_message(message) or REASONS.get(reason, "")
    if nested_string(condition, "status") == "False" and code in CAUSES:
        return Finding(code, message.rstrip("."), (f"{pod.title}: {reason}: {message}",))
    events = [event.message for event in evidence.events_of(pod) if event.reason == "FailedScheduling"]
    messages = [message] if message else events[-1:]
    proof = tuple(f"its scheduler says: {message}" for message in messages if message)
    return Finding("UNKNOWN", unknown_message, proof, missing=needed)


STORAGE = re.compile(
    r"enough free storage|exceed max volume count|unbound immediate PersistentVolumeClaims|volume zone"
    r"|volume node affinity conflict|persistent volumes? to bind|persistentvolumeclaim \S+ not found",
    re.I,
)


def storage_finding(evidence: Evidence, pod: ClusterObject) -> Finding | None:
    """Storage problems, which only the scheduler knows: no object says how much a storage driver has left."""
    messages = [event.message for event in evidence.events_of(pod) if event.reason == "FailedScheduling"][-1:]
    messages = messages or [nested_string(find_condition(pod.data, "PodScheduled"), "message")]
    if not STORAGE.search(messages[0]):
        return None
    return Finding("STORAGE_INSUFFICIENT", "", (f"its scheduler says: {messages[0]}",))


FILTERS = (
    (
        "NODE_UNSCHEDULABLE",
        re.compile(r"were unschedulable|node\.kubernetes\.io/(unreachable|not-ready|unschedulable)", re.I),
    ),
    ("EPHEMERAL_STORAGE", re.compile(r"Insufficient ephemeral-storage|disk-pressure", re.I)),
    ("TAINT_NOT_TOLERATED", re.compile(r"\btaint", re.I)),
    ("POD_AFFINITY_CONFLICT", re.compile(r"pod (anti-)?affinity|anti-affinity rules|existing pods", re.I)),
    ("SELECTOR_MISMATCH", re.compile(r"node affinity|node selector|affinity/selector", re.I)),
    ("POD_SPREAD_CONFLICT", re.compile(r"topology spread", re.I)),
    ("HOST_PORT_CONFLICT", re.compile(r"free ports", re.I)),
    ("STORAGE_INSUFFICIENT", STORAGE),
    ("POD_COUNT_LIMIT", re.compile(r"Too many pods", re.I)),
    ("CPU_MEM_INSUFFICIENT", re.compile(r"Insufficient (cpu|memory)", re.I)),
    ("GPU_FULL", re.compile(r"Insufficient [\w.-]+/\S", re.I)),
)
"""Code → kube-scheduler's words for it; each part of its message has one of them."""
SAME_WORDS = {
    "NODE_UNSCHEDULABLE": ("TAINT_NOT_TOLERATED",),
    **dict.fromkeys(("GPU_FRAGMENTED", "RESOURCE_NAME_MISMATCH", "DEVICE_UNHEALTHY"), ("GPU_FULL",)),
    "GPU_STRANDED": ("CPU_MEM_INSUFFICIENT", "POD_COUNT_LIMIT", "GPU_FULL"),
    "REQUEST_EXCEEDS_CLUSTER": ("GPU_FULL", "CPU_MEM_INSUFFICIENT", "POD_COUNT_LIMIT", "EPHEMERAL_STORAGE"),
}
"""Code → codes of the words that kube-scheduler has for it, where these are others."""
COUNTED_NODES = re.compile(r"(?:^|: )0/(\d+) nodes are available")


def codes_of_message(message: str) -> list[str]:
    """The reasons that kube-scheduler's message counts nodes by; empty for any other text."""
    counted = COUNTED_NODES.search(message)
    if counted is None:
        return []
    reasons = re.split(r"\.? preemption: |\. no new claims", message[counted.end() :].removeprefix(": "))[0]
    found = []
    for reason in re.split(r", (?=\d+ )", reasons):
        found += [code for code, pattern in FILTERS if pattern.search(reason)][:1]
    return list(dict.fromkeys(found))


def latest_words(evidence: Evidence, pod: ClusterObject) -> str:
    """What a scheduler has said last about the pod."""
    events = [event for event in evidence.events_of(pod) if event.reason in ("FailedScheduling", "Unschedulable")]
    return events[-1].message if events else nested_string(find_condition(pod.data, "PodScheduled"), "message")


def disagreement(evidence: Evidence, pod: ClusterObject, code: str) -> str:
    """How kube-scheduler's own words speak against the cause on the nodes; empty if they do not."""
    message = latest_words(evidence, pod)
    counted = COUNTED_NODES.search(message)
    if counted is None:
        return ""
    if int(counted[1]) > len(evidence.nodes):
        return f"its scheduler counts {counted[1]} nodes, and the evidence has {len(evidence.nodes)}"
    said, known = codes_of_message(message), {code for code, _ in FILTERS} | set(SAME_WORDS)
    if code in known and said and not {code, *SAME_WORDS.get(code, ())} & set(said):
        return f"its scheduler says something else: {message}"
    return ""


def sees_all_pods(evidence: Evidence) -> bool:
    """Whether free resources are known: hidden pods use GPUs too."""
    return not any(hidden.startswith("pods") for hidden in evidence.hidden)
