"""A client on a network that does everything a network may do, drawn from a seed.

Beyond `tests.worlds.virtual_client` (delays, lost answers, failed requests, broken watches): answers that are cut off
or can't be read, 409, 410 and 429 out of the blue, requests that are held back for longer than a lease, requests and
events that come twice, and changes of different objects in another order.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

import msgspec
from tests.worlds.virtual_client import WRITES, InProcessKubeClient, Network, conflict

from windlass.embedded.server.server import ApiServer
from windlass.kube.errors import ApiError, ServerUnavailable, api_error
from windlass.kube.request import Request

GARBAGE = (b"", b"{", b"[]", b"{}", b"null", b"<html>busy</html>", b'{"items": 3}', b'{"metadata": []}', b"\xff")
GONE_EVENT = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}'
UNDER_LEASE = re.compile(r"/(binding|eviction)$")
"""Writes that must never come after another replica has the lease."""
SHARES = {"throttled": 0.1, "conflict": 0.05, "malformed": 0.2, "twice": 0.05, "held": 0.1, "swapped": 0.2}
"""Of failed requests in the sense of `Network.failures`: how often each of these happens in addition."""
SWAP_SECONDS = 2.0


@dataclass
class FaultyNetwork(Network):
    def draw(self, what: str) -> bool:
        happens = self.random.random() < self.failures * SHARES[what]
        if happens:
            self.count(what)
        return happens

    def uncount(self, what: str) -> None:
        self.counts[what] -= 1

    def malformed(self, body: bytes) -> bytes:
        """Cut off, followed by something else, or another answer altogether."""
        cut = body[: self.random.randrange(len(body) or 1)]
        return self.random.choice((cut, cut + b"<html>", body + b"}", self.random.choice(GARBAGE)))


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
        if is_write and faults.draw("held"):
            await asyncio.sleep(faults.random.uniform(5, 60))
        if faults.draw("throttled"):
            raise api_error(429, b"", where, faults.random.choice(("", "1", "3")))
        if is_write and faults.draw("conflict"):
            raise api_error(409, b"", where)
        body = await self._deliver(request)
        if is_write and faults.draw("twice"):
            await self._deliver_again(request)
        return faults.malformed(body) if faults.draw("malformed") else body

    async def _deliver_again(self, request: Request) -> None:
        """Nobody reads the answer, and a conflict is the network's doing, not the scheduler's."""
        try:
            await self._deliver(request)
        except ServerUnavailable:
            pass
        except ApiError as error:
            if error.code == 409:
                self._faults.uncount(conflict(request))

    async def _deliver(self, request: Request) -> bytes:
        if UNDER_LEASE.search(request.path) and not request.query:
            self._on_delivery(request)
        return await super()._send_once(request)

    async def stream_lines(self, request: Request, idle_timeout: float) -> AsyncGenerator[bytes, None]:
        faults = self._faults
        async with contextlib.aclosing(self._in_some_order(super().stream_lines(request, idle_timeout))) as lines:
            async for line in lines:
                if faults.draw("malformed"):
                    yield faults.random.choice((b"{", b"[]", b'{"type":"ADDED"}', line[: len(line) // 2]))
                if faults.draw("conflict"):
                    yield GONE_EVENT
                yield line
                if faults.draw("twice"):
                    yield line

    async def _in_some_order(self, lines: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """Changes of one object stay in order; those of two may not."""
        async with contextlib.aclosing(lines):
            while (line := await anext(lines, None)) is not None:
                if not self._faults.draw("swapped"):
                    yield line
                    continue
                coming = asyncio.ensure_future(anext(lines, None))
                try:
                    await asyncio.wait((coming,), timeout=SWAP_SECONDS)
                    if coming.done() and coming.exception() is None and _can_swap(line, coming.result()):
                        yield coming.result()  # type: ignore[misc]
                        yield line
                        continue
                    yield line
                    later = await coming
                finally:
                    coming.cancel()
                    await asyncio.gather(coming, return_exceptions=True)
                if later is None:
                    return
                yield later


def _can_swap(line: bytes, following: bytes | None) -> bool:
    first, second = _name_in(line), _name_in(following or b"")
    return bool(first and second) and first != second


def _name_in(line: bytes) -> str:
    """Of the object of a change; empty for what must keep its place."""
    try:
        event = msgspec.json.decode(line)
        name: str = event["object"]["metadata"]["name"] if event["type"] in ("ADDED", "MODIFIED", "DELETED") else ""
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""
    return f"{event['object']['metadata'].get('namespace')}/{name}"
