"""The API client with the fake API called directly: no sockets, so that tests can let hours pass in no time.

Everything above a single request (the lease, 429, refreshed credentials) is the client's own code. Requests can be
refused, lose their answer, or wait until the test lets them go on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
from tests.kube.fake_api import FakeApi

from windlass.kube.client import KubeClient
from windlass.kube.client_config import ClientConfig
from windlass.kube.credentials import StaticCredentials
from windlass.kube.errors import ServerUnavailable
from windlass.kube.request import Request
from windlass.kube.resources import WATCHED_KINDS, Resource


class Held:
    """Requests that reach the server and get no answer until `release`."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._released = asyncio.Event()

    def release(self) -> None:
        self._released.set()

    async def wait(self, request: Request) -> None:
        self.requests.append(request)
        await self._released.wait()


class _Fault(msgspec.Struct):
    matches: Callable[[Request], bool]
    error: Exception
    times: int
    """How often; negative: always."""
    is_applied: bool
    """The write takes effect, and only its answer is lost."""


class MemoryClient(KubeClient):
    def __init__(self, api: FakeApi) -> None:
        super().__init__(ClientConfig("http://memory", StaticCredentials()))
        self.api = api
        self.sent: list[Request] = []
        """Every request that was sent, those that failed included."""
        self._sent_at: list[float] = []
        self._faults: list[_Fault] = []
        self._held: list[tuple[Callable[[Request], bool], Held]] = []

    def fail(self, request: str, error: Exception, *, times: int = -1, is_applied: bool = False) -> None:
        """Requests such as `POST pods/p/binding` (method and end of the path) fail with this error; with
        `POST pods/p/eviction?` only those without a query, with `GET pods?continue` only those with this parameter."""
        self._faults.append(_Fault(_matcher(request), error, times, is_applied))

    def recover(self) -> None:
        self._faults.clear()

    def hold(self, request: str) -> Held:
        held = Held()
        self._held.append((_matcher(request), held))
        return held

    def writes(self, *, of: str = "") -> list[Request]:
        """Writes that were sent; only those whose method and path have this in them."""
        return [
            request for request in self.sent if request.method != "GET" and of in f"{request.method} {request.path}"
        ]

    def times(self, of: str) -> list[float]:
        """When requests such as `GET pods` were sent, in seconds since the first of them."""
        matches = _matcher(of)
        found = [at for request, at in zip(self.sent, self._sent_at, strict=True) if matches(request)]
        return [at - found[0] for at in found]

    def resource_for(self, kind: str, group: str = "") -> Resource | None:
        """As the informers find it."""
        for known in WATCHED_KINDS:
            for version in known.versions if (known.kind, known.group) == (kind, group) else ():
                if known.plural in self.api.groups.get(f"{known.group}/{version}", ()):
                    return known.resource_at(version)
        return None

    async def _send_once(self, request: Request) -> bytes:
        self._log(request)
        await asyncio.sleep(0)  # no answer comes at once
        for matches, held in self._held:
            if matches(request):
                await held.wait(request)
        fault = next((fault for fault in self._faults if fault.times and fault.matches(request)), None)
        if fault is not None:
            fault.times -= 1
            if fault.is_applied:
                self._respond(request)
            raise fault.error
        return self._respond(request)

    def _log(self, request: Request) -> None:
        self.sent.append(request)
        self._sent_at.append(asyncio.get_running_loop().time())

    def _respond(self, request: Request) -> bytes:
        body: Any = None if request.encoded_body is None else msgspec.json.decode(request.encoded_body)
        query = dict(request.query)
        return msgspec.json.encode(self.api.respond(request.method, request.path, query, body, request.content_type))

    async def stream_lines(self, request: Request, idle_timeout: float) -> AsyncGenerator[bytes, None]:
        self._log(request)
        query = dict(request.query)
        for fault in self._faults:
            if fault.times and fault.matches(request):
                fault.times -= 1
                raise fault.error
        events = self.api.watch(request.path, int(query["resourceVersion"]))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(float(query["timeoutSeconds"])):
                async for event in events:
                    yield msgspec.json.encode(event)


def lost_answer() -> ServerUnavailable:
    return ServerUnavailable("http://memory: connection reset")


def _matcher(wanted: str) -> Callable[[Request], bool]:
    method, _, path = wanted.partition(" ")
    end, mark, parameter = path.partition("?")

    def matches(request: Request) -> bool:
        if request.method != method or not request.path.endswith(end):
            return False
        return not mark or (parameter in dict(request.query) if parameter else not request.query)

    return matches
