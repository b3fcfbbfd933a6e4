"""What a pod is told about its waiting: the condition's reason and message, made from the verdict.

`apply.conditions` writes them. Autoscalers buy nodes for the reason `Unschedulable`, so it is said exactly where the
cluster lacks something that a node could bring; every other wait has a reason of its own.
"""

from __future__ import annotations

import re

import msgspec

from windlass.model.verdict import Verdict

UNSCHEDULABLE = "Unschedulable"
WAITING_FOR_QUOTA = "WaitingForQuota"
WAITING_FOR_GANG = "WaitingForGang"
WAITING_BEHIND_PLAN = "WaitingBehindPlan"
WAITING_FOR_VICTIMS = "WaitingForVictims"
WAITING_FOR_VOLUME = "WaitingForVolume"
SUSPENDED = "Suspended"
MISCONFIGURED = "Misconfigured"
NOT_IMPLEMENTED = "NotImplemented"

_REASONS = {
    "KUEUE_QUOTA_INSUFFICIENT": WAITING_FOR_QUOTA,
    "RESOURCE_QUOTA_EXCEEDED": WAITING_FOR_QUOTA,
    "REQUEUE_BACKOFF": WAITING_FOR_QUOTA,
    "QUEUE_BEHIND_HEAD": WAITING_FOR_QUOTA,
    "GANG_INCOMPLETE": WAITING_FOR_GANG,
    "RESERVED_FOR_OTHERS": WAITING_BEHIND_PLAN,
    "WAITING_FOR_PREEMPTION": WAITING_FOR_VICTIMS,
    "KUEUE_QUEUE_MISSING": MISCONFIGURED,
    "KUEUE_QUOTA_MISCONFIGURED": MISCONFIGURED,
    "KUEUE_FLAVOR_MISMATCH": MISCONFIGURED,
    "INVALID_OBJECT": MISCONFIGURED,
    "POLICY_DENIED": MISCONFIGURED,
    "JOB_SUSPENDED": SUSPENDED,
    "NOT_IMPLEMENTED": NOT_IMPLEMENTED,
    "NODE_NOT_UNDERSTOOD": MISCONFIGURED,
}
"""Code → reason; whatever is not named lacks capacity."""
STORAGE_INSUFFICIENT = "STORAGE_INSUFFICIENT"
SCHEDULING_GATED = "SCHEDULING_GATED"
"""The API server itself says of a gated pod that it is gated."""
LONGEST_MESSAGE = 4096
_CODE = re.compile(r" \(([A-Z][A-Z0-9_]+)\)$")
NODES_AVAILABLE, NO_NODES = "nodes are available", "no nodes available"


def condition_reason(verdict: Verdict) -> str:
    if verdict.code == STORAGE_INSUFFICIENT and not verdict.counts:
        return WAITING_FOR_VOLUME  # its claim is missing or has no volume, whatever node there is
    return _REASONS.get(verdict.code, UNSCHEDULABLE)


def condition_message(verdict: Verdict) -> str:
    """kube-scheduler's form first, since people and programs look for it, then our own sentence, then the cause's
    code, by which the plan and `why` know the hold, too."""
    code = f" ({verdict.code})"
    return _sentence(verdict)[: LONGEST_MESSAGE - len(code)] + code


def code_of_message(message: str) -> str:
    """The code that a message of ours ends with; empty where it isn't one of ours."""
    found = _CODE.search(message)
    return found[1] if found else ""


def _sentence(verdict: Verdict) -> str:
    said = verdict.public_message
    if NODES_AVAILABLE in said or NO_NODES in said:
        return said
    if verdict.counts:
        counted = msgspec.structs.replace(verdict, detail="").kube_message
        return f"{counted} {said}"
    return f"0/{verdict.nodes} {NODES_AVAILABLE}: {said}"
