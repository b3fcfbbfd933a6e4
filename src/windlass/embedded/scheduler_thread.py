"""Runs Windlass's scheduler against the embedded API server: the code of `windlass scheduler`, over HTTPS, in a
thread.

`embedded_cluster` starts it after the address was printed, since importing the engine takes longer than everything
else.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import msgspec

from windlass.kube.client_config import ClientConfig
from windlass.kube.credentials import StaticCredentials
from windlass.model.configuration import Settings
from windlass.model.names.kubernetes import DEFAULT_SCHEDULER_NAME

log = logging.getLogger(__name__)

SCHEDULER_NAMES = ("windlass", DEFAULT_SCHEDULER_NAME)
"""Pods with these scheduler names are always placed, since no other scheduler runs here."""
STOP_SECONDS = 5.0
MIN_NODES_TO_WAIT_FOR_JIT = 200
"""From this number of nodes, the first decision waits for compiled kernels: up to a minute if none are cached."""


def with_default_scheduler(settings: Settings) -> Settings:
    """Adds kube-scheduler's name, since no other scheduler runs here."""
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
        history: Path | None = None,
        prometheus: str = "",
    ) -> None:
        """With few nodes, the first decision does not wait for compiled kernels."""
        self._settings = with_default_scheduler(settings or Settings())
        self._history, self._prometheus = history, prometheus
        self._access = ClientConfig(
            server=server,
            credentials=StaticCredentials({"Authorization": f"Bearer {token}"}),
            ca=authority.encode(),
            name="windlass-up",
        )
        self._waits_for_jit = node_count >= MIN_NODES_TO_WAIT_FOR_JIT
        self._thread = threading.Thread(target=self._run, name="windlass-scheduler", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._has_loop, self._has_ended = threading.Event(), threading.Event()
        self._is_scheduling = False
        self.failure = ""
        """Why it ended, if it did by itself."""

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Asks it to end; `join` waits for that."""
        if self._thread.ident is None:
            return
        self._has_loop.wait(STOP_SECONDS)
        if self._loop is not None and self._stop is not None:
            try:
                self._loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                return  # its loop has ended already

    def join(self, seconds: float = STOP_SECONDS) -> None:
        """Waits until it has finished what it began; while it is still importing, there is nothing to wait for."""
        if self._is_scheduling:
            self._has_ended.wait(seconds)
            self._thread.join(0.1)

    def _run(self) -> None:
        try:
            asyncio.run(self._schedule())
        except Exception as error:  # thread boundary: the cluster goes on without a scheduler
            self.failure = f"{type(error).__name__}: {error}"
            log.error("the scheduler has stopped, so no more pods are placed: %s", self.failure)
            log.debug("traceback of the scheduler", exc_info=True)
        finally:
            self._has_loop.set()

    async def _schedule(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._has_loop.set()
        from windlass.scheduler.options import SchedulerOptions
        from windlass.scheduler.scheduler import run_scheduler

        if self._stop.is_set():
            return
        options = SchedulerOptions(
            settings=self._settings,
            warm_up=self._waits_for_jit,
            leader_elect=False,
            identity="windlass-up",
            history=self._history,
            prometheus=self._prometheus,
        )
        self._is_scheduling = True
        try:
            await run_scheduler(self._access, options, self._stop)
        finally:
            self._has_ended.set()
