"""Windlass's own scheduler beside the embedded API server: the same code as `windlass scheduler`, over HTTPS, in a
thread.

`embedded.embedded_cluster` starts it after the address is printed: the libraries that the engine needs take longer to
load than everything else together.
"""

from __future__ import annotations

import asyncio
import logging
import threading

import msgspec

from windlass.kube.client_config import ClientConfig
from windlass.kube.credentials import StaticCredentials
from windlass.model.configuration import Settings

log = logging.getLogger(__name__)

SCHEDULER_NAMES = ("windlass", "default-scheduler")
"""Pods of these are always placed: there is nobody else who would."""
STOP_SECONDS = 5.0
MIN_NODES_TO_WAIT_FOR_JIT = 200
"""From so many nodes on it is worth waiting for compiled code: up to a minute, once, where nothing is compiled yet."""


def with_default_scheduler(settings: Settings) -> Settings:
    """No other scheduler runs here, so ours also takes the pods that name kube-scheduler."""
    names = tuple(dict.fromkeys((*SCHEDULER_NAMES, *settings.scheduler_names)))
    return msgspec.structs.replace(settings, scheduler_names=names)


class SchedulerThread:
    def __init__(
        self,
        server: str,
        token: str,
        authority: str,
        *,
        node_count: int = 0,
        settings: Settings | None = None,
    ) -> None:
        """`nodes`: how many there are; few of them don't wait for compiled code before the first decision."""
        self._settings = with_default_scheduler(settings or Settings())
        self._access = ClientConfig(
            server=server,
            credentials=StaticCredentials({"Authorization": f"Bearer {token}"}),
            ca=authority.encode(),
            name="windlass-up",
        )
        self._warm = node_count >= MIN_NODES_TO_WAIT_FOR_JIT
        self._thread = threading.Thread(target=self._run, name="windlass-scheduler", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._begun, self._ended = threading.Event(), threading.Event()
        self._schedules = False
        self.failure = ""
        """Why it ended, where it did by itself."""

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Ask it to end; `join` waits for that."""
        if self._thread.ident is None:
            return
        self._begun.wait(STOP_SECONDS)
        if self._loop is not None and self._stop is not None:
            try:
                self._loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                return  # its loop has ended already

    def join(self, seconds: float = STOP_SECONDS) -> None:
        """Until it has brought everything that it began to its end; one that still loads has begun nothing."""
        if self._schedules:
            self._ended.wait(seconds)
            self._thread.join(0.1)

    def _run(self) -> None:
        try:
            asyncio.run(self._schedule())
        except (
            Exception
        ) as error:  # the thread's boundary: the cluster goes on, and says that nobody schedules
            self.failure = f"{type(error).__name__}: {error}"
            log.error("the scheduler has ended, and nobody places pods any more: %s", self.failure)
            log.debug("how the scheduler ended", exc_info=True)
        finally:
            self._begun.set()

    async def _schedule(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._begun.set()
        from windlass.scheduler.options import SchedulerOptions
        from windlass.scheduler.scheduler import run_scheduler

        if self._stop.is_set():
            return
        options = SchedulerOptions(
            settings=self._settings,
            warm_up=self._warm,
            leader_elect=False,
            identity="windlass-up",
        )
        self._schedules = True
        try:
            await run_scheduler(self._access, options, self._stop)
        finally:
            self._ended.set()
