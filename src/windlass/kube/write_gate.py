"""Lets writes through unless `windlass freeze` was given: the one place where the writes of a role can be stopped.

`kube.client` asks before every attempt of every write, `scheduler.scheduler` waits here while all is frozen. The state
is read when there is something to write, so an idle role costs the API server nothing; a role that can't read it
doesn't write.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING

from windlass.kube.errors import ApiError, Forbidden, NotFound, ServerUnavailable, WritesFrozen
from windlass.kube.freeze import (
    FREEZE_CONFIG_MAP,
    MAX_AGE_SECONDS,
    REFRESH_SECONDS,
    FreezeState,
    decode_freeze,
    freeze_path,
    is_stopped_by_freeze,
)
from windlass.kube.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.kube.client import KubeClient

log = logging.getLogger(__name__)


class WriteGate:
    def __init__(
        self, client: KubeClient, namespace: str, on_change: Callable[[FreezeState], None] = lambda state: None
    ) -> None:
        """`on_change` is called when writes become frozen, and when they may go on."""
        self._client, self._path, self._on_change = client, freeze_path(namespace), on_change
        self._namespace = namespace
        self.state = FreezeState()
        self._read_at = -math.inf
        """When the last successful reading began (monotonic)."""
        self._reading: asyncio.Task[None] | None = None
        self._failure: ApiError | ServerUnavailable | None = None

    async def check(self, request: Request) -> None:
        """Raises `WritesFrozen` if the request is a write that must not be sent now."""
        if not is_stopped_by_freeze(request.method, request.path):
            return
        age = time.monotonic() - self._read_at
        if age > REFRESH_SECONDS:
            reading = self._start_reading()
            if age > MAX_AGE_SECONDS:
                await asyncio.shield(reading)
                if self._failure is not None:
                    raise self._failure
        if self.state.is_frozen:
            raise WritesFrozen(f"{request.method} {request.path} was not sent: {self.state}")

    async def wait_until_running(self, may_wait: Callable[[], bool]) -> None:
        """Returns once nothing is frozen any more, or when `may_wait` is false."""
        while self.state.is_frozen and may_wait():
            await asyncio.sleep(REFRESH_SECONDS)
            await asyncio.shield(self._start_reading())

    def _start_reading(self) -> asyncio.Task[None]:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        return self._reading

    async def _read(self) -> None:
        began = time.monotonic()
        try:
            state = decode_freeze(await self._client.send(Request("GET", self._path)))
        except NotFound:
            state = FreezeState()
        except Forbidden as error:
            right = f"get ConfigMap {FREEZE_CONFIG_MAP} in namespace {self._namespace}"
            state = FreezeState("unreadable", reason=f"grant the right to {right}: {error}")
        except (ApiError, ServerUnavailable) as error:
            self._failure = error
            return
        self._failure, self._read_at = None, began
        if state.is_frozen != self.state.is_frozen:
            log.warning("writes are %s", state)
            self._on_change(state)
        self.state = state
