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


def sees_all_pods(evidence: Evidence) -> bool:
    """Whether free resources are known: hidden pods use GPUs too."""
    return not any(hidden.startswith("pods") for hidden in evidence.hidden)
