"""Writes asks on running work, and takes them back: annotations on the owner and its pods, with events.

`apply.executor` calls it with the asks of every plan. An ask is in every plan until it is over, so writing is repeated
until the objects say what the plan says: whatever a scheduler that was killed has left, the next one completes. All
state is in the annotations (`model.leaving`).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Iterable, Mapping, Sequence

from windlass.apply.admission import AdmissionWriter
from windlass.apply.cluster_cache import ClusterCache
from windlass.apply.evictor import PREEMPTORS
from windlass.apply.owners import ANNOTATED_KINDS, SUSPEND_FIELDS, annotate
from windlass.apply.workload_writer import WorkloadWriter
from windlass.cluster.snapshot import Snapshot
from windlass.kube.events import Event, EventRecorder, EventRegarding
from windlass.kube.resources import PODS, Resource
from windlass.model.decision import Ask, Evict, WithdrawAsk
from windlass.model.leaving import Move, Request, read_answers, read_request, refusal_of, write
from windlass.model.names.windlass import ASK_ANNOTATION, ASK_ANSWER_ANNOTATION, LAST_MOVE_ANNOTATION
from windlass.model.pod import Pod
from windlass.model.times import format_timestamp
from windlass.model.workload import Workload

log = logging.getLogger(__name__)

UNSEEN_SECONDS = 30.0
"""So long the watch may take to show what was written, before it is written again."""

MAX_REMEMBERED = 10_000

Changes = Mapping[str, str | None]
Target = tuple[Resource, str, str]
"""Resource, key and uid."""


def request_of(ask: Ask) -> Request:
    """What is written on the objects: it names the preemptor only within its namespace."""
    if ask.notice:
        asked, until = format_timestamp(ask.asked_at), format_timestamp(ask.until)
        return Request(ask.id, asked, until, ask.reason, notice=ask.notice)
    namespace = ask.workload.partition("/")[0]
    is_own = ask.for_workload.partition("/")[0] == namespace
    whom = ask.for_workload if is_own else PREEMPTORS.get(ask.reason, "other work")
    return Request(ask.id, format_timestamp(ask.asked_at), format_timestamp(ask.until), ask.reason, whom)


def move_of(pods: Iterable[Pod], now: int) -> Move | None:
    """The stamps of work that is evicted now, from the annotations of its pods; None where it was not asked."""
    metadata = [pod.metadata for pod in pods]
    request = read_request(metadata)
    if request is None:
        return None
    answers, _ = read_answers(metadata, request)
    answer = next((answer for answer in answers if not refusal_of(answer)), None)
    evicted = format_timestamp(now)
    if answer is None:
        return Move(request.id, request.asked, evicted=evicted)
    answered = format_timestamp(answer.answered_at)
    return Move(request.id, request.asked, answered, answer.checkpoint, evicted)


class AskWriter:
    def __init__(
        self, cache: ClusterCache, writer: WorkloadWriter, admissions: AdmissionWriter, recorder: EventRecorder
    ) -> None:
        self._cache, self._writer, self._admissions, self._recorder = cache, writer, admissions, recorder
        self._written: dict[str, float] = {}
        """Object (uid) → when an ask was written on it that the watch may not have shown yet (monotonic seconds)."""
        self._recorded: set[str] = set()
        """Asks whose stamps were written on the owner."""
        self._deadlines: dict[str, asyncio.TimerHandle] = {}
        """Ask → the decision that is requested at its deadline."""

    def execute(self, asks: Sequence[Ask], withdrawals: Sequence[WithdrawAsk], snapshot: Snapshot) -> None:
        workloads = {workload.key: workload for workload in snapshot.workloads}
        for ask in asks:
            with self._writer.guard.step(f"the ask of {ask.workload}"):
                if not self._admissions.is_left_to_kueue(Evict(ask.workload, (), ask.for_workload, ask.reason)):
                    self._ask(ask, workloads.get(ask.workload))
        for withdrawal in withdrawals:
            with self._writer.guard.step(f"the withdrawal of the ask of {withdrawal.workload}"):
                self._withdraw(withdrawal, workloads.get(withdrawal.workload))
        self._watch_deadlines(asks)

    def record_eviction(self, evict: Evict, workload: Workload | None) -> None:
        """Writes on the owner when it was asked, answered and evicted: its pods are about to go."""
        pods = [self._cache.pods[key] for key in evict.pods if key in self._cache.pods]
        move = move_of(pods, int(time.time()))
        if move is None or move.id in self._recorded:
            return
        if len(self._recorded) >= MAX_REMEMBERED:
            self._recorded.clear()  # a stamp that is written twice stays the same
        self._recorded.add(move.id)
        for resource, key, uid in self._owner(workload):
            changes = {LAST_MOVE_ANNOTATION: write(move)}
            action = functools.partial(self._writer.write, annotate(resource, key, uid, changes))
            self._writer.start_after_previous(
                f"ask of {evict.workload}",
                functools.partial(self._writer.run_with_backoff, f"stamps of {evict.workload}", action),
            )

    def _ask(self, ask: Ask, workload: Workload | None) -> None:
        text, now = write(request_of(ask)), time.monotonic()
        pods = [self._cache.pods[key] for key in ask.pods if key in self._cache.pods]
        missing = [pod for pod in pods if not self._has(pod, ask.id) and not pod.metadata.deletion_timestamp]
        missing = [
            pod for pod in missing if now - self._written.get(pod.metadata.uid, -UNSEEN_SECONDS) >= UNSEEN_SECONDS
        ]
        if not missing:
            return
        targets = [*self._owner(workload), *_targets(missing)]
        if self._start(ask.workload, targets, {ASK_ANNOTATION: text, ASK_ANSWER_ANNOTATION: None}):
            self._written = {uid: at for uid, at in self._written.items() if now - at < UNSEEN_SECONDS}
            why = f"to make room for {request_of(ask).for_whom} ({ask.reason})"
            why = f"since {ask.notice}" if ask.notice else why
            note = (
                f"Asked to write a checkpoint until {format_timestamp(ask.until)}, {why}; it is evicted when it has "
                "answered, and then at the latest"
            )
            self._record(targets[0], "AskedForCheckpoint", note)

    def _withdraw(self, withdrawal: WithdrawAsk, workload: Workload | None) -> None:
        pods = [self._cache.pods[key] for key in withdrawal.pods if key in self._cache.pods]
        targets = [*self._owner(workload), *_targets(pods)]
        if not targets or not self._start(
            withdrawal.workload, targets, {ASK_ANNOTATION: None, ASK_ANSWER_ANNOTATION: None}
        ):
            return
        if not withdrawal.has_left and pods:
            self._record(targets[0], "AskWithdrawn", "Not needed any more: it goes on running")

    def _start(self, workload: str, targets: Sequence[Target], changes: Changes) -> bool:
        async def write_all() -> None:
            """The owner first: what is on a pod is then known to be complete."""
            for resource, key, uid in targets:
                await self._writer.send(annotate(resource, key, uid, changes))
                self._written.pop(uid, None)
                if changes[ASK_ANNOTATION] is not None:
                    self._written[uid] = time.monotonic()

        return self._writer.start_once(f"ask of {workload}", write_all)

    def _owner(self, workload: Workload | None) -> list[Target]:
        """The object behind the workload, where its kind is one that Windlass may annotate."""
        if workload is None:
            return []
        found = self._admissions.owner_target(workload)
        return [found] if found is not None and found[0].kind in {*SUSPEND_FIELDS, *ANNOTATED_KINDS} else []

    def _record(self, target: Target, reason: str, note: str) -> None:
        resource, key, uid = target
        regarding = EventRegarding(resource.kind, key, uid, resource.api_version)
        self._recorder.record(Event(regarding, reason, note, "Preempting"))

    @staticmethod
    def _has(pod: Pod, request: str) -> bool:
        known = read_request([pod.metadata])
        return known is not None and known.id == request

    def _watch_deadlines(self, asks: Sequence[Ask]) -> None:
        """The loop decides on changes; that a deadline passes is none."""
        open_asks = {ask.id for ask in asks}
        for request in self._deadlines.keys() - open_asks:
            self._deadlines.pop(request).cancel()
        for ask in asks:
            if ask.id not in self._deadlines:
                seconds = max(0.0, ask.until - time.time())
                loop, decide = asyncio.get_running_loop(), self._cache.request_decision
                self._deadlines[ask.id] = loop.call_later(seconds, decide)


def _targets(pods: Iterable[Pod]) -> list[Target]:
    return [(PODS, pod.key, pod.metadata.uid) for pod in pods]
