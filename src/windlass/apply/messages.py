"""Reason and message of a waiting pod's condition, made from its verdict.

Used by `apply.executor`, `apply.admission` and `scheduler.unreadable_reporter`. Cluster autoscalers add nodes for the
reason `Unschedulable`, so it is used only where more nodes could help; every other wait has its own reason.
"""

from __future__ import annotations

import msgspec

from windlass.model.decision import Ask
from windlass.model.message_code import CODE_AT_END, shorten_message
from windlass.model.times import format_timestamp
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
SCHEDULER_ERROR = "SchedulerError"

_REASONS = {
    "KUEUE_QUOTA_INSUFFICIENT": WAITING_FOR_QUOTA,
    "RESOURCE_QUOTA_EXCEEDED": WAITING_FOR_QUOTA,
    "REQUEUE_BACKOFF": WAITING_FOR_QUOTA,
    "QUEUE_BEHIND_HEAD": WAITING_FOR_QUOTA,
    "GANG_INCOMPLETE": WAITING_FOR_GANG,
    "RESERVED_FOR_OTHERS": WAITING_BEHIND_PLAN,
    "WAITING_FOR_PREEMPTION": WAITING_FOR_VICTIMS,
    "ADMISSION_DEFERRED": WAITING_FOR_QUOTA,
    "QUEUE_LIMIT_REACHED": WAITING_FOR_QUOTA,
    "SCHEDULING_GATED": WAITING_FOR_QUOTA,
    "KUEUE_QUEUE_MISSING": MISCONFIGURED,
    "KUEUE_QUOTA_MISCONFIGURED": MISCONFIGURED,
    "KUEUE_FLAVOR_MISMATCH": MISCONFIGURED,
    "INVALID_OBJECT": MISCONFIGURED,
    "POLICY_DENIED": MISCONFIGURED,
    "JOB_SUSPENDED": SUSPENDED,
    "DURATION_EXCEEDED": SUSPENDED,
    "NOT_IMPLEMENTED": NOT_IMPLEMENTED,
    "NODE_NOT_UNDERSTOOD": MISCONFIGURED,
    "INTERNAL_ERROR": SCHEDULER_ERROR,
}
"""Code → reason; for all other codes more nodes could help."""
STORAGE_INSUFFICIENT = "STORAGE_INSUFFICIENT"
SCHEDULING_GATED = "SCHEDULING_GATED"
"""The API server writes the condition of gated pods itself; others are held by a gate on their owner's admission."""
MAX_MESSAGE_LENGTH = 4096
WAITING_FOR_PREEMPTION = "WAITING_FOR_PREEMPTION"
NODES_AVAILABLE, NO_NODES = "nodes are available", "no nodes available"


def condition_reason(verdict: Verdict) -> str:
    if verdict.code == STORAGE_INSUFFICIENT and not verdict.counts:
        return WAITING_FOR_VOLUME  # its claim is missing or unbound: no node could help
    return _REASONS.get(verdict.code, UNSCHEDULABLE)


def condition_message(verdict: Verdict) -> str:
    """kube-scheduler's "0/N nodes are available", which people and programs look for, then our own sentence, then the
    cause's code, which `why` reads back with `code_of_message`."""
    return shorten_message(f"{_sentence(verdict)} ({verdict.code})", MAX_MESSAGE_LENGTH)


def waiting_for_victims_message(nodes: int, node: str, ask: Ask | None = None) -> str:
    """For a pod that has a node as soon as the pods preempted for it have ended; first, where there is an ask, they
    may write a checkpoint. Names no work of other namespaces."""
    waits = f"waiting for preempted pods on {node} to terminate"
    if ask is not None:
        is_own = ask.for_workload.partition("/")[0] == ask.workload.partition("/")[0]
        victim = ask.workload if is_own else f"preempted work on {node}"
        until = format_timestamp(ask.until)
        waits = f"waiting until {until} for {victim} to write a checkpoint, then for its pods to terminate"
    return f"0/{nodes} {NODES_AVAILABLE}: {waits} ({WAITING_FOR_PREEMPTION})"


def code_of_message(message: str) -> str:
    """The code at the end of a message of ours; empty for other schedulers' messages."""
    found = CODE_AT_END.search(message)
    return found[1] if found else ""


def _sentence(verdict: Verdict) -> str:
    message = verdict.public_message
    if NODES_AVAILABLE in message or NO_NODES in message:
        return message
    if verdict.counts:
        counted = msgspec.structs.replace(verdict, detail="").kube_message
        return f"{counted} {message}"
    return f"0/{verdict.nodes} {NODES_AVAILABLE}: {message}"
