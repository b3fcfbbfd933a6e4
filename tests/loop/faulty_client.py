"""A client on a network that does everything a network may do, drawn from a seed.

Beyond `tests.worlds.virtual_client` (delays, lost answers, failed requests, broken watches): answers that can't be
read, 409, 410 and 429 out of the blue, requests that are held back for longer than a lease, requests and events that
come twice, and a crash at any point at which something is awaited.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from tests.worlds.virtual_client import WRITES, InProcessKubeClient, Network

from windlass.embedded.server.server import ApiServer
from windlass.kube.errors import ApiError, ServerUnavailable, api_error
from windlass.kube.request import Request

GARBAGE = (b"", b"{", b"[]", b"{}", b"null", b"<html>busy</html>", b'{"items": 3}', b'{"metadata": []}', b"\xff")
GONE_EVENT = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}'
UNDER_LEASE = re.compile(r"/(binding|eviction)$")
"""Writes that must never come after another replica has the lease."""
SHARES = {"throttled": 0.1, "conflict": 0.05, "malformed": 0.2, "twice": 0.05, "held": 0.1}
"""Of failed requests in the sense of `Network.failures`: how often each of these happens in addition."""


@dataclass
class FaultyNetwork(Network):
    crash_in: int | None = None
    """The replica crashes at the so-manieth await from now on."""
    crashed: asyncio.Event = field(default_factory=asyncio.Event)

    def draw(self, what: str) -> bool:
        happens = self.random.random() < self.failures * SHARES[what]
        if happens:
            self.count(what)
        return happens


class FaultyClient(InProcessKubeClient):
    def __init__(
        self, server: ApiServer, network: FaultyNetwork, on_delivery: Callable[[Request], None] = lambda request: None
    ) -> None:
        """`on_delivery` is called with each write that reaches the server."""
        super().__init__(server, network)
        self._faults, self._on_delivery = network, on_delivery

    async def _send_once(self, request: Request) -> bytes:
        faults, where = self._faults, f"{request.method} {request.path}"
        is_write = request.method in WRITES
        await self._crash_point()
        if is_write and faults.draw("held"):
            await asyncio.sleep(faults.random.uniform(5, 60))
        if faults.draw("throttled"):
            raise api_error(429, b"", where, faults.random.choice(("", "1", "3")))
        if is_write and faults.draw("conflict"):
            raise api_error(409, b"", where)
        body = await self._deliver(request)
        if is_write and faults.draw("twice"):
            with contextlib.suppress(ApiError, ServerUnavailable):
                await self._deliver(request)
        await self._crash_point()
        return faults.random.choice(GARBAGE) if faults.draw("malformed") else body

    async def _deliver(self, request: Request) -> bytes:
        if UNDER_LEASE.search(request.path) and not request.query:
            self._on_delivery(request)
        return await super()._send_once(request)

    async def stream_lines(self, request: Request, idle_timeout: float) -> AsyncGenerator[bytes, None]:
        faults = self._faults
        async with contextlib.aclosing(super().stream_lines(request, idle_timeout)) as lines:
            async for line in lines:
                await self._crash_point()
                if faults.draw("malformed"):
                    yield faults.random.choice((b"{", b"[]", b'{"type":"ADDED"}'))
                if faults.draw("conflict"):
                    yield GONE_EVENT
                yield line
                if faults.draw("twice"):
                    yield line

    async def _crash_point(self) -> None:
        if self._faults.crash_in is None:
            return
        self._faults.crash_in -= 1
        if self._faults.crash_in < 0:
            self._faults.crashed.set()
            await asyncio.get_running_loop().create_future()  # until the process is gone
