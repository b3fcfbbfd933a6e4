"""Asks before it evicts: victims that opted in get time for a checkpoint, and their preemptors wait for it.

`engine.decide` calls `with_asks` last, with the complete plan. An eviction whose victim has neither answered nor let
its deadline pass becomes an `Ask`; the binds and admissions behind it stay in the plan and wait (`after`), as they wait
for victims that terminate. Other victims of the same preemptor go together with the last of them. What is asked and no
longer needed is withdrawn.

An ask frees nothing: no capacity and no quota changes, so no decision differs because of it, but for one thing. What is
asked counts as losing only its restart, so that it stays the victim until it has left or is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from windlass.cluster.pod_accounting import MILLI_PER_GPU
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.workloads.pod_admission import start_time
from windlass.model.decision import Ask, Evict, WithdrawAsk
from windlass.model.leaving import (
    DEFAULT_ASK_SECONDS,
    MAX_ASK_SECONDS,
    Request,
    new_request,
    read_answers,
    read_request,
    refusal_of,
)
from windlass.model.names.windlass import ASK_ANNOTATION
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.model.workload import Workload
from windlass.placement.defrag.movable import held_gpu_milli
from windlass.queueing.outcome import ADMISSION_DEFERRED, LEAVE_NOTICE


class AskSettings(msgspec.Struct, frozen=True):
    seconds: int = DEFAULT_ASK_SECONDS
    """How long a victim gets that declares nothing."""
    max_seconds: int = MAX_ASK_SECONDS


def with_asks(
    plan: Plan,
    snapshot: Snapshot,
    settings: AskSettings,
    now: int,
    pod_rows: Callable[[], Mapping[str, int]],
    leave_by: Mapping[str, int],
) -> Plan:
    """The plan with asks instead of evictions of victims that have to be asked first. `leave_by`: workload → when its
    node goes, where that is known, so that no ask lasts longer."""
    if not snapshot.any_asks:
        return plan
    concerned = [known for known in snapshot.workloads if known.is_asked or known.ask_terms is not None]
    if not concerned:
        return plan
    return _AskStage(concerned, snapshot, settings, now, pod_rows(), leave_by).run(plan)


class _AskStage:
    def __init__(
        self,
        concerned: Sequence[Workload],
        snapshot: Snapshot,
        settings: AskSettings,
        now: int,
        pod_rows: Mapping[str, int],
        leave_by: Mapping[str, int],
    ) -> None:
        self._concerned, self._snapshot, self._settings = concerned, snapshot, settings
        self._now, self._rows, self._leave_by = now, pod_rows, leave_by
        self._workload_of = {pod: workload for workload in concerned for pod in _pod_keys(workload)}

    def run(self, plan: Plan) -> Plan:
        asks: list[Ask] = []
        evicts: list[Evict] = []
        for evict in plan.evicts:
            decision = self._ask_or_evict(evict)
            if isinstance(decision, Ask):
                asks.append(decision)
            else:
                evicts.append(decision)
        if asks:
            evicts = list(_together(plan, asks, evicts))
        needed = {pod for ask in asks for pod in ask.pods}.union(*(evict.pods for evict in evicts))
        withdrawals = tuple(self._withdrawals(plan, needed))
        return replace(plan, asks=tuple(asks), evicts=tuple(evicts), withdrawals=withdrawals)

    def _ask_or_evict(self, evict: Evict) -> Ask | Evict:
        workload = next((found for pod in evict.pods if (found := self._workload_of.get(pod)) is not None), None)
        is_announced = bool(evict.for_workload) or evict.reason == LEAVE_NOTICE
        if workload is None or workload.ask_terms is None or not is_announced:
            return evict
        seconds = workload.ask_terms.seconds(self._settings.seconds, self._settings.max_seconds)
        if not seconds:
            return evict
        pods = [self._pod(key) for key in evict.pods]
        metadata = [pod.metadata for pod in pods]
        request = read_request(metadata)
        if request is None:
            uid = workload.uid or pods[0].metadata.uid or evict.workload
            request = new_request(uid, self._now, self._now + seconds, evict.reason)
        # What is written there may have been changed since: no ask lasts longer than its terms.
        until = min(request.until_at, request.asked_at + seconds)
        until = min(until, self._leave_by.get(workload.key) or until)
        answers, refused = read_answers(metadata, request)
        for answer in answers:
            refused = refusal_of(answer, self._leaving_nodes(evict.pods))
            if not refused:
                return _with_message(evict, f"it answered with a checkpoint of {answer.checkpoint}")
        if until <= self._now:
            return self._unanswered(evict, workload, request, refused)
        return Ask(
            evict.workload,
            evict.pods,
            evict.for_workload,
            evict.reason,
            request.id,
            request.asked_at,
            until,
            refused,
            notice=evict.message if evict.reason == LEAVE_NOTICE else "",
        )

    def _unanswered(self, evict: Evict, workload: Workload, request: Request, refused: str) -> Evict:
        """With what it really loses: as long as it was asked, it counted as if it had answered."""
        lost = 0
        for key in evict.pods:
            row = self._rows[key]
            shape = self._snapshot.shapes[int(self._snapshot.pods.shape[row])]
            since = max(workload.checkpoint_at, start_time(self._snapshot.pods.objects[row]))
            milli = held_gpu_milli(shape, self._snapshot.pods.grants[row])
            lost += milli * max(0, self._now - since) // MILLI_PER_GPU
        why = f"its answer was refused: {refused}" if refused else f"it had not answered by {request.until}"
        evict = replace(evict, lost_gpu_seconds=evict.lost_gpu_seconds + lost, least_gpu_seconds=0)
        return _with_message(evict, why)

    def _leaving_nodes(self, pods: Iterable[str]) -> set[str]:
        """Of their nodes, those that are about to go."""
        nodes = self._snapshot.nodes
        rows = {int(self._snapshot.pods.node[self._rows[key]]) for key in pods}
        return {nodes.names[row] for row in rows if row in nodes.notices}

    def _withdrawals(self, plan: Plan, needed: set[str]) -> Iterator[WithdrawAsk]:
        """Of asks that are over, or not needed any more."""
        # The preemptor may be among what this decision has not considered: nothing is known then.
        deferred = any(hold.verdict.code == ADMISSION_DEFERRED for hold in plan.holds)
        for workload in self._concerned:
            if not workload.is_asked or workload.evicting:
                continue
            asked = [pod for pod in self._asked_pods(workload) if pod.key not in needed]
            leaving = needed.intersection(_pod_keys(workload))
            leaving.update(pod.key for pod in asked if pod.metadata.deletion_timestamp)
            asked = [pod for pod in asked if not pod.metadata.deletion_timestamp]
            if asked and not deferred:
                request = read_request(pod.metadata for pod in asked)
                yield WithdrawAsk(workload.key, tuple(pod.key for pod in asked), request.id if request else "")
            elif not asked and not leaving:
                yield WithdrawAsk(workload.key, (), "", has_left=workload.admission is None)

    def _asked_pods(self, workload: Workload) -> list[Pod]:
        pods = (self._pod(key) for key in _pod_keys(workload) if key in self._rows)
        return [pod for pod in pods if ASK_ANNOTATION in pod.metadata.annotations]

    def _pod(self, key: str) -> Pod:
        return self._snapshot.pods.objects[self._rows[key]]


def _together(plan: Plan, asks: Sequence[Ask], evicts: Sequence[Evict]) -> Iterator[Evict]:
    """The evictions; those that serve the same preemptors as an ask wait for it (`after`), since they would be in
    vain without it."""
    served: dict[str, set[str]] = {admit.workload: set(admit.after) for admit in plan.admits}
    victims_of = [(ask.for_workload, ask.workload) for ask in asks]
    for preemptor, victim in [*victims_of, *((evict.for_workload, evict.workload) for evict in evicts)]:
        if preemptor:
            served.setdefault(preemptor, set()).add(victim)
    waits: dict[str, set[str]] = {ask.workload: {ask.workload} for ask in asks}
    changed = True
    while changed:
        changed = False
        for victims in served.values():
            behind = set[str]().union(*(waits[key] for key in victims if key in waits))
            for key in victims if behind else ():
                if not behind <= waits.setdefault(key, set()):
                    waits[key] |= behind
                    changed = True
    asked = {ask.workload for ask in asks}
    for evict in evicts:
        after = waits.get(evict.workload, set()) & asked - {evict.workload}
        yield replace(evict, after=tuple(sorted(after))) if evict.for_workload and after else evict


def _with_message(evict: Evict, words: str) -> Evict:
    """What became of the ask, after the notice, where there was one."""
    return replace(evict, message=f"{evict.message}; {words}" if evict.reason == LEAVE_NOTICE else words)


def _pod_keys(workload: Workload) -> list[str]:
    return [key for pod_set in workload.pod_sets for key in pod_set.pod_keys]
