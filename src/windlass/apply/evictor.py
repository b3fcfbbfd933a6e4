"""Evictions carried out, all of one cause or none: every victim is asked for with dry-run before the first one goes.

The scheduler hands over the victims that one workload needs gone. A budget that refuses one of them keeps all of them,
and the scheduler hears of it, so that the next decision names others. One that refuses halfway, after the question was
answered with yes, is asked again until it agrees, since what is left of a gang is of no use to anybody.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from windlass.apply.kueue import NON_PREEMPTION_MESSAGES
from windlass.kube.backoff import Backoff
from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, Conflict, LeaseLost, NotFound, ServerUnavailable, TooManyRequests
from windlass.kube.events import Event, EventRecorder, EventRegarding
from windlass.kube.write_requests import evict_pod

log = logging.getLogger(__name__)

RETRY_SECONDS = 15.0
"""After a refusal or an error the same victims of the same cause are left alone for so long."""
STOP_COOLDOWN_SECONDS = 10.0
"""A victim that was stopped is not stopped again within this time: its pods take a moment to go."""

AsyncAction = Callable[[], Awaitable[None]]
OnRefused = Callable[[str, str, str], None]
"""Told of an eviction that the server refuses: the cause, the pod, and the server's words."""
MULTIPLE_BUDGETS_MESSAGE = "more than one PodDisruptionBudget"
"""The server's words where it can't evict at all; its code for that is 500."""


class Victim(msgspec.Struct, frozen=True):
    """A workload that has to go."""

    workload: str
    pods: tuple[tuple[str, str], ...]
    """Key and uid."""
    reason: str
    stop: AsyncAction | None = None
    """How it is stopped, where that is not by evicting its pods: a queued Job is suspended."""
    record_eviction: AsyncAction | None = None
    """How it is written down, before its pods go, that they had to."""


class Evictor:
    def __init__(
        self,
        client: KubeClient,
        recorder: EventRecorder,
        may_write: Callable[[], bool],
        on_evicted: Callable[[int], None],
        on_refused: OnRefused = lambda cause, pod, message: None,
    ) -> None:
        self._client, self._recorder, self._may_write, self._done = client, recorder, may_write, on_evicted
        self._refused = on_refused
        self._busy: dict[str, asyncio.Task[None]] = {}
        """Cause → its evictions under way."""
        self._leaving: dict[str, str] = {}
        """Victim → the cause that it goes for just now: two causes may name the same one."""
        self._not_before: dict[tuple[str, ...], float] = {}
        """Cause and victims → until when they are left alone."""
        self._stopped: dict[str, float] = {}
        """Victim → when it was stopped."""
        self.refusals = 0

    def evict(self, cause: str, victims: Sequence[Victim]) -> None:
        """Start on the victims of one cause, unless that is under way or the same was just refused."""
        now = time.monotonic()
        if cause in self._busy or now < self._not_before.get(_name(cause, victims), 0.0):
            return
        self._not_before = {name: at for name, at in self._not_before.items() if at > now}
        self._stopped = {name: at for name, at in self._stopped.items() if at + STOP_COOLDOWN_SECONDS > now}
        known = self._stopped.keys() | self._leaving.keys()
        victims = [one for one in victims if one.workload not in known]
        if not victims:
            return
        self._leaving.update((one.workload, cause) for one in victims)
        task = asyncio.create_task(self._run(cause, victims))
        self._busy[cause] = task
        task.add_done_callback(lambda _: self._ended(cause))

    def _ended(self, cause: str) -> None:
        del self._busy[cause]
        self._leaving = {victim: of for victim, of in self._leaving.items() if of != cause}

    async def drain(self) -> None:
        while self._busy:
            await asyncio.gather(*self._busy.values(), return_exceptions=True)

    async def _run(self, cause: str, victims: Sequence[Victim]) -> None:
        try:
            refusals = await self._ask(victims)
            if refusals:
                self.refusals += 1
                self._not_before[_name(cause, victims)] = time.monotonic() + RETRY_SECONDS
                for pod, message in refusals.items():
                    log.info("nobody is evicted for %s: pod %s: %s", cause, pod, message)
                    self._refused(cause, pod, message)
                return
            for victim in victims:
                await self._stop(victim)
        except (ApiError, ServerUnavailable, LeaseLost) as error:
            self._not_before[_name(cause, victims)] = time.monotonic() + RETRY_SECONDS
            log.warning("evictions for %s stopped halfway and will be decided again: %s", cause, error)

    async def _ask(self, victims: Sequence[Victim]) -> dict[str, str]:
        """Pods of the victims that may not go → why."""
        pods = [key for victim in victims for key, _ in victim.pods]
        questions = (
            self._client.send(evict_pod(key, uid, is_dry_run=True))
            for one in victims
            for key, uid in one.pods
        )
        found: dict[str, str] = {}
        for key, answer in zip(pods, await asyncio.gather(*questions, return_exceptions=True), strict=True):
            if isinstance(answer, NotFound | Conflict):
                continue  # gone already
            if isinstance(answer, ApiError) and _is_refusal(answer):
                found[key] = answer.status.message or str(answer)
            elif isinstance(answer, BaseException):
                raise answer
        return found

    async def _stop(self, victim: Victim) -> None:
        if victim.stop is not None:
            await victim.stop()
        else:
            await self._write_down(victim)
            await asyncio.gather(*(self._evict(key, uid) for key, uid in victim.pods))
        self._stopped[victim.workload] = time.monotonic()
        self._done(len(victim.pods))
        for key, uid in victim.pods:
            about, own = EventRegarding("Pod", key, uid), NON_PREEMPTION_MESSAGES.get(victim.reason, "")
            if own:
                self._recorder.record(Event(about, "Evicted", own, "Evicting"))
            else:
                note = f"Preempted to make room ({victim.reason})"
                self._recorder.record(Event(about, "Preempted", note, "Preempting"))

    async def _write_down(self, victim: Victim) -> None:
        if victim.record_eviction is None:
            return
        try:
            await victim.record_eviction()
        except ApiError as error:  # the count of its evictions is not worth keeping what has to go
            log.warning("%s: that it was evicted could not be written down: %s", victim.workload, error)

    async def _evict(self, key: str, uid: str) -> None:
        backoff = Backoff(first=1.0, most=10.0)
        while self._may_write():
            try:
                await self._client.send(evict_pod(key, uid), self._may_write)
                return
            except (NotFound, Conflict):
                return
            except (TooManyRequests, ServerUnavailable) as error:
                log.warning("eviction of %s: %s; asking again", key, error)
                await asyncio.sleep(backoff.next(getattr(error, "retry_after", 0.0)))


def _name(cause: str, victims: Sequence[Victim]) -> tuple[str, ...]:
    return cause, *sorted(one.workload for one in victims)


def _is_refusal(error: ApiError) -> bool:
    """A budget's no is 429; a webhook's or a policy's is any other that asking again won't change."""
    return (
        isinstance(error, TooManyRequests)
        or error.is_permanent
        or MULTIPLE_BUDGETS_MESSAGE in error.status.message
    )
