"""Empties a node or a device: waits for pods that may end by themselves, then evicts, gangs as a whole.

Used by changes and repairs. Evictions respect PodDisruptionBudgets; what refuses one is named. Pods that opted in to
being asked are told when they have to be gone: Windlass' scheduler asks them for a checkpoint and evicts them before.
What is left then is evicted here. Of work that a queue has admitted the Workload is deactivated instead, and
activated again when its pods are gone (`decide.stopped_work`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.model.notices import LeaveRequest
from windlass.model.times import format_timestamp, parse_timestamp
from windlass.operator.decide.pool import Pool
from windlass.operator.kinds.base import seconds_of
from windlass.operator.kinds.reasons import Reason
from windlass.operator.pods import PodView
from windlass.operator.queued_work import QueuedWork
from windlass.operator.writes import EvictPods, StopWorkload, TellPods

SHOWN_PODS = 3
SCHEDULER_SECONDS = 30
"""So long after that time the scheduler may take to evict what it has asked."""
DRAIN_CAUSES = ("change ", "repair ")
"""How the causes begin that are given here: what people have told a pod is not taken back."""


class Drained(msgspec.Struct, frozen=True):
    is_done: bool
    reason: str = Reason.Done
    message: str = ""


def drain(pool: Pool, node: str, holders: Sequence[PodView], since: str, wait: str, reason: str) -> Drained:
    """Evicts what holds GPUs of the node, once `wait` has passed since the drain began."""
    if not holders:
        return Drained(True)
    names = ", ".join(pod.key for pod in holders[:SHOWN_PODS])
    names += f" and {len(holders) - SHOWN_PODS} more" if len(holders) > SHOWN_PODS else ""
    until = parse_timestamp(since) + seconds_of(wait)
    if pool.now < until:
        pool.wake(until)
        return Drained(False, Reason.WaitingForCompletion, f"until {format_timestamp(until)}: {names}")
    stopping: set[str] = set()
    evicted: list[PodView] = []
    for group, members in _groups(pool, holders).items():
        work = pool.work_of(members[0])
        if _is_told(pool, members, until, reason):
            continue
        if work is not None and not work.is_active:
            stopping.add(work.key)
        elif work is not None and work.is_admitted:
            # Another node's drain may have asked for it in this decision.
            evicted += _stop(pool, work, reason) if work.key not in pool.stopped else members
            stopping.add(work.key)
        else:
            gone = members if group == members[0].key else gang_members(pool, group)
            pool.writes.append(EvictPods(_names(gone), reason))
            evicted += gone
    pool.stopped |= stopping
    refusals = pool.observed.refusals
    refused = next((f"{pod.key}: {refusals[pod.key]}" for pod in evicted if pod.key in refusals), "")
    if refused:
        return Drained(False, Reason.DrainBlocked, refused)
    queued = f"; stopped in its queue: Workload {', '.join(sorted(stopping)[:SHOWN_PODS])}" if stopping else ""
    return Drained(False, Reason.Draining, f"{len(holders)} pods hold GPUs: {names}{queued}")


def _groups(pool: Pool, holders: Sequence[PodView]) -> dict[str, list[PodView]]:
    """Pods that go together: of one Workload, of one gang, or each alone."""
    groups: dict[str, list[PodView]] = {}
    for pod in holders:
        if not pod.is_deleting:
            work = pool.work_of(pod)
            groups.setdefault(work.key if work is not None else pod.gang or pod.key, []).append(pod)
    return groups


def _stop(pool: Pool, work: QueuedWork, reason: str) -> list[PodView]:
    """Its pods, on any node: a budget of one of them keeps all."""
    pods = [pod for pods in pool.observed.pods.values() for pod in pods if pool.work_of(pod) == work]
    pool.writes.append(StopWorkload(work.key, work.uid, work.api_version, _names(pods), reason))
    return pods


def _names(pods: Sequence[PodView]) -> tuple[tuple[str, str], ...]:
    return tuple((pod.key, pod.uid) for pod in pods)


def _is_told(pool: Pool, members: Sequence[PodView], since: int, reason: str) -> bool:
    """Tells those that opted in to being asked when they have to leave; whether there is time until then."""
    seconds = max(pod.ask_seconds for pod in members)
    if not seconds:
        return False
    leave = LeaveRequest(format_timestamp(since + seconds), reason)
    untold = tuple((pod.key, pod.uid) for pod in members if pod.leave != leave)
    if untold:
        pool.writes.append(TellPods(untold, msgspec.json.encode(leave).decode()))
    pool.told.update(pod.key for pod in members)
    end = since + seconds + SCHEDULER_SECONDS
    pool.wake(end)
    return pool.now < end


def take_back_notices(pool: Pool) -> None:
    """From pods that no drain of this decision is waiting for any more."""
    for name in pool.nodes:
        stale = tuple(
            (pod.key, pod.uid)
            for pod in pool.pods_on(name)
            if pod.leave is not None and pod.leave.cause.startswith(DRAIN_CAUSES) and pod.key not in pool.told
        )
        if stale:
            pool.writes.append(TellPods(stale, None))


def gang_members(pool: Pool, gang: str) -> list[PodView]:
    """All of its pods, on any node: a gang that loses one of them is useless."""
    return [pod for pods in pool.observed.pods.values() for pod in pods if pod.gang == gang and not pod.is_deleting]
