"""Evictions carried out, all of one cause or none: every victim is asked for with dry-run before the first one goes.

The scheduler hands over the victims that one workload needs gone. A budget that refuses one of them keeps all of them;
one that refuses halfway, after the question was answered with yes, is asked again until it agrees, since what is left
of a gang is of no use to anybody.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from windlass.apply.kueue import FOR_NOBODY
from windlass.kube.backoff import Backoff
from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, Conflict, Fenced, NotFound, ServerAway, TooMany
from windlass.kube.events import Event, Recorder, Regarding
from windlass.kube.writes import evict_pod

log = logging.getLogger(__name__)

TRY_AGAIN_SECONDS = 15.0
"""After a refusal the same cause is left alone for so long."""
LEAVING_SECONDS = 10.0
"""A victim that was stopped is not stopped again within this time: its pods take a moment to go."""

Stop = Callable[[], Awaitable[None]]


class Victim(msgspec.Struct, frozen=True):
    """A workload that has to go."""

    workload: str
    pods: tuple[tuple[str, str], ...]
    """Key and uid."""
    reason: str
    stop: Stop | None = None
    """How it is stopped, where that is not by evicting its pods: a queued Job is suspended."""
    note: Stop | None = None
    """How it is written down, before its pods go, that they had to."""


class Evictor:
    def __init__(
        self,
        client: KubeClient,
        recorder: Recorder,
        may_write: Callable[[], bool],
        done: Callable[[int], None],
    ) -> None:
        self._client, self._recorder, self._may_write, self._done = client, recorder, may_write, done
        self._busy: dict[str, asyncio.Task[None]] = {}
        """Cause → its evictions under way."""
        self._leaving: dict[str, str] = {}
        """Victim → the cause that it goes for just now: two causes may name the same one."""
        self._not_before: dict[str, float] = {}
        self._stopped: dict[str, float] = {}
        """Victim → when it was stopped."""
        self.refusals = 0

    def send(self, cause: str, victims: Sequence[Victim]) -> None:
        """Start on the victims of one cause, unless that is under way or was just refused."""
        now = time.monotonic()
        if cause in self._busy or now < self._not_before.get(cause, 0.0):
            return
        self._not_before = {name: at for name, at in self._not_before.items() if at > now}
        self._stopped = {name: at for name, at in self._stopped.items() if at + LEAVING_SECONDS > now}
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

    async def settle(self) -> None:
        while self._busy:
            await asyncio.gather(*self._busy.values(), return_exceptions=True)

    async def _run(self, cause: str, victims: Sequence[Victim]) -> None:
        try:
            refusal = await self._ask(victims)
            if refusal:
                self.refusals += 1
                self._not_before[cause] = time.monotonic() + TRY_AGAIN_SECONDS
                log.info("nobody is evicted for %s: %s", cause, refusal)
                return
            for victim in victims:
                await self._stop(victim)
        except (ApiError, ServerAway, Fenced) as error:
            self._not_before[cause] = time.monotonic() + TRY_AGAIN_SECONDS
            log.warning("evictions for %s stopped halfway and will be decided again: %s", cause, error)

    async def _ask(self, victims: Sequence[Victim]) -> str:
        """Why one of the victims may not go; empty where all may."""
        pods = [pod for victim in victims for pod in victim.pods]
        questions = (self._client.send(evict_pod(key, uid, asks_only=True)) for key, uid in pods)
        for (key, _), answer in zip(
            pods, await asyncio.gather(*questions, return_exceptions=True), strict=True
        ):
            if isinstance(answer, NotFound | Conflict):
                continue  # gone already
            if isinstance(answer, TooMany):
                return f"pod {key}: {answer.status.message or answer}"
            if isinstance(answer, BaseException):
                raise answer
        return ""

    async def _stop(self, victim: Victim) -> None:
        if victim.stop is not None:
            await victim.stop()
        else:
            await self._write_down(victim)
            await asyncio.gather(*(self._evict(key, uid) for key, uid in victim.pods))
        self._stopped[victim.workload] = time.monotonic()
        self._done(len(victim.pods))
        for key, uid in victim.pods:
            about, own = Regarding("Pod", key, uid), FOR_NOBODY.get(victim.reason, "")
            if own:
                self._recorder.record(Event(about, "Evicted", own, "Evicting"))
            else:
                note = f"Preempted to make room ({victim.reason})"
                self._recorder.record(Event(about, "Preempted", note, "Preempting"))

    async def _write_down(self, victim: Victim) -> None:
        if victim.note is None:
            return
        try:
            await victim.note()
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
            except (TooMany, ServerAway) as error:
                log.warning("eviction of %s: %s; asking again", key, error)
                await asyncio.sleep(backoff.next(getattr(error, "retry_after", 0.0)))
