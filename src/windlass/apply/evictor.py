"""Evicts the victims of a preemptor, all or none: a dry run of every eviction comes before the first real one.

`apply.executor` hands over the victims of one preemptor; a workload that is stopped on its own account, such as for
its duration, is its own preemptor. If a PodDisruptionBudget refuses one eviction in the dry run, no victim is evicted,
and the next decision respects the refusal. A refusal after the dry run is retried until it succeeds: a gang that has
lost some of its pods is useless. Budgets that yield to this preemption by the configuration refuse nothing; the plan
breaks them only where nothing else helps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from windlass.apply.audit import DONE
from windlass.apply.kueue import eviction_message
from windlass.kube.backoff import Backoff
from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, Conflict, NotFound, NotSent, ServerUnavailable, TooManyRequests
from windlass.kube.events import Event, EventRecorder, EventRegarding
from windlass.kube.write_requests import delete_pod, evict_pod
from windlass.queueing.outcome import (
    IN_CLUSTER_QUEUE,
    IN_COHORT_FAIR_SHARING,
    IN_COHORT_RECLAIM_WHILE_BORROWING,
    IN_COHORT_RECLAMATION,
    PRIORITY,
)

log = logging.getLogger(__name__)

RETRY_SECONDS = 15.0
"""Pause after a refusal or an error, for the same preemptor with the same victims."""
STOP_COOLDOWN_SECONDS = 10.0
"""A victim is not stopped again within this time, while its pods terminate."""

AsyncAction = Callable[[], Awaitable[None]]
OnRefused = Callable[[str, str, str], None]
"""Called with preemptor, pod and the server's message when an eviction is refused."""
BUDGET_CAUSE = "DisruptionBudget"
MULTIPLE_BUDGETS_MESSAGE = "more than one PodDisruptionBudget"
"""Part of the server's message when it can't evict at all; it answers with code 500."""


PREEMPTORS = {
    PRIORITY: "work of higher priority",
    IN_CLUSTER_QUEUE: "work of higher priority in its ClusterQueue",
    IN_COHORT_RECLAMATION: "work of the queue whose quota it borrowed",
    IN_COHORT_RECLAIM_WHILE_BORROWING: "work of higher priority in its cohort",
    IN_COHORT_FAIR_SHARING: "work of a queue that has less of its fair share",
}
"""Reason of a preemption → the work that it is for."""


class Victim(msgspec.Struct, frozen=True):
    workload: str
    pods: tuple[tuple[str, str], ...]
    """Key and uid."""
    reason: str
    stop: AsyncAction | None = None
    """Stops the workload instead of evicting its pods: a queued Job is suspended."""
    record_eviction: AsyncAction | None = None
    """Counts the eviction on the owner, before the pods are evicted."""
    overrides_budgets: bool = False
    """PodDisruptionBudgets yield to it."""
    detail: str = ""
    """What its owner should know beyond the reason."""
    on_result: Callable[[str], None] = lambda result: None
    """Called when it has been stopped, with `done`; or with the error, and then some of its pods may be evicted."""


class Evictor:
    def __init__(
        self,
        client: KubeClient,
        recorder: EventRecorder,
        may_write: Callable[[], bool],
        on_evicted: Callable[[int], None],
        on_refused: OnRefused = lambda preemptor, pod, message: None,
    ) -> None:
        self._client, self._recorder, self._may_write, self._on_evicted = (
            client,
            recorder,
            may_write,
            on_evicted,
        )
        self._on_refused = on_refused
        self._running: dict[str, asyncio.Task[None]] = {}
        """Preemptor → its evictions under way."""
        self._preemptor_of: dict[str, str] = {}
        """Victim of an eviction under way → its preemptor. Two preemptors may name the same victim."""
        self._not_before: dict[tuple[str, ...], float] = {}
        """Preemptor and victims → time of the next attempt (monotonic seconds, as below)."""
        self._stopped_at: dict[str, float] = {}
        """Victim → when it was stopped."""
        self.refusals = 0

    def evict(self, preemptor: str, victims: Sequence[Victim]) -> None:
        """Starts to evict the victims, unless that is under way or the same was just refused."""
        now = time.monotonic()
        if preemptor in self._running or now < self._not_before.get(_attempt_key(preemptor, victims), 0.0):
            return
        self._not_before = {key: at for key, at in self._not_before.items() if at > now}
        self._stopped_at = {key: at for key, at in self._stopped_at.items() if at + STOP_COOLDOWN_SECONDS > now}
        under_way = self._stopped_at.keys() | self._preemptor_of.keys()
        victims = [victim for victim in victims if victim.workload not in under_way]
        if not victims:
            return
        self._preemptor_of.update((victim.workload, preemptor) for victim in victims)
        task = asyncio.create_task(self._run(preemptor, victims))
        self._running[preemptor] = task
        task.add_done_callback(lambda _: self._finish(preemptor))

    def _finish(self, preemptor: str) -> None:
        del self._running[preemptor]
        self._preemptor_of = {victim: other for victim, other in self._preemptor_of.items() if other != preemptor}

    async def drain(self) -> None:
        while self._running:
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _run(self, preemptor: str, victims: Sequence[Victim]) -> None:
        try:
            refusals = await self._dry_run(victims)
            if refusals:
                self.refusals += 1
                self._not_before[_attempt_key(preemptor, victims)] = time.monotonic() + RETRY_SECONDS
                for pod, message in refusals.items():
                    log.info("no pods are evicted for %s: eviction of %s refused: %s", preemptor, pod, message)
                    self._on_refused(preemptor, pod, message)
                return
            for victim in victims:
                await self._stop(victim)
        except (ApiError, ServerUnavailable, NotSent) as error:
            self._not_before[_attempt_key(preemptor, victims)] = time.monotonic() + RETRY_SECONDS
            log.warning("evictions for %s failed and will be decided again: %s", preemptor, error)

    async def _dry_run(self, victims: Sequence[Victim]) -> dict[str, str]:
        """Pods whose eviction the server refuses → its message."""
        pods = [(key, uid, victim.overrides_budgets) for victim in victims for key, uid in victim.pods]
        requests = (self._client.send(evict_pod(key, uid, is_dry_run=True)) for key, uid, _ in pods)
        answers = await asyncio.gather(*requests, return_exceptions=True)
        refusals: dict[str, str] = {}
        for (key, _, overrides_budgets), answer in zip(pods, answers, strict=True):
            if isinstance(answer, NotFound | Conflict):
                continue  # deleted already, or replaced by another pod of the name
            if overrides_budgets and isinstance(answer, ApiError) and _is_of_budget(answer):
                continue
            if isinstance(answer, ApiError) and _is_refusal(answer):
                refusals[key] = answer.status.message or str(answer)
            elif isinstance(answer, BaseException):
                raise answer
        return refusals

    async def _stop(self, victim: Victim) -> None:
        try:
            if victim.stop is not None:
                await victim.stop()
            else:
                await self._record_eviction(victim)
                await asyncio.gather(*(self._evict(key, uid, victim.overrides_budgets) for key, uid in victim.pods))
        except BaseException as error:
            victim.on_result(str(error) or type(error).__name__)
            raise
        victim.on_result(DONE)
        self._stopped_at[victim.workload] = time.monotonic()
        self._on_evicted(len(victim.pods))
        for key, uid in victim.pods:
            regarding = EventRegarding("Pod", key, uid)
            message = eviction_message(victim.reason, victim.detail)
            if message:
                self._recorder.record(Event(regarding, "Evicted", message, "Evicting"))
            else:
                work = PREEMPTORS.get(victim.reason, "other work")
                after = (
                    "it is queued again"
                    if victim.stop is not None
                    else "its controller or its owner has to create it again"
                )
                note = f"Preempted ({victim.reason}) for {work}: {after}"
                self._recorder.record(Event(regarding, "Preempted", note, "Preempting"))

    async def _record_eviction(self, victim: Victim) -> None:
        if victim.record_eviction is None:
            return
        try:
            await victim.record_eviction()
        except ApiError as error:  # the eviction matters more than the count
            log.warning("can't record the eviction of %s: %s", victim.workload, error)

    async def _evict(self, key: str, uid: str, overrides_budgets: bool) -> None:
        backoff = Backoff(first=1.0, most=10.0)
        while True:  # until the lease is lost: `send` raises then
            try:
                await self._client.send(evict_pod(key, uid), self._may_write)
                return
            except (NotFound, Conflict):
                return
            except ApiError as error:
                if overrides_budgets and _is_of_budget(error):
                    with contextlib.suppress(NotFound, Conflict):
                        await self._client.send(delete_pod(key, uid), self._may_write)
                    return
                if not isinstance(error, TooManyRequests):
                    raise
                log.warning("eviction of pod %s: %s; trying again", key, error)
                await asyncio.sleep(backoff.next(error.retry_after))
            except ServerUnavailable as error:
                log.warning("eviction of pod %s: %s; trying again", key, error)
                await asyncio.sleep(backoff.next())


def _attempt_key(preemptor: str, victims: Sequence[Victim]) -> tuple[str, ...]:
    return preemptor, *sorted(victim.workload for victim in victims)


def _is_of_budget(error: ApiError) -> bool:
    """Whether it is a PodDisruptionBudget that refuses; the server's other 429 say that it has too much to do."""
    details = error.status.details
    causes = details.causes if details is not None else ()
    return any(cause.reason == BUDGET_CAUSE for cause in causes) or MULTIPLE_BUDGETS_MESSAGE in error.status.message


def _is_refusal(error: ApiError) -> bool:
    """A PodDisruptionBudget refuses with 429; webhooks and policies refuse with any permanent error."""
    return isinstance(error, TooManyRequests) or error.is_permanent or MULTIPLE_BUDGETS_MESSAGE in error.status.message
