"""A client that calls the embedded API server's handlers in this process, on a network that is slow and fails.

The requests are the production code's own and the server's handlers answer them; only sockets are left out. What goes
wrong is drawn from a seed: requests and answers take time, answers are lost after the write was done, the server fails
or asks to wait, watches break and lag behind.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.http_writer import HttpVersion11
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from windlass.embedded.server.server import ApiServer
from windlass.kube.client import KubeClient
from windlass.kube.client_config import ClientConfig
from windlass.kube.credentials import StaticCredentials
from windlass.kube.errors import ServerUnavailable, api_error
from windlass.kube.request import Request

WRITES = ("POST", "PUT", "PATCH", "DELETE")


@dataclass
class Network:
    """How the network behaves; the driver changes it while a world is played."""

    random: Random
    latency: float = 0.002
    """Mean of the time that a request takes, in seconds; an answer takes as long again."""
    watch_lag: float = 0.0
    """Mean of the time by which a watch is behind, in seconds."""
    failures: float = 0.0
    """Share of requests that fail: refused, failed in the server, or answered and lost."""
    outage: bool = False
    """Nothing is answered, and watches break."""
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    async def delay(self, mean: float) -> None:
        await asyncio.sleep(self.random.expovariate(1 / mean) if mean else 0)

    def lag(self) -> float:
        """By how much an event of a watch comes late; events stay in order."""
        return self.random.expovariate(1 / self.watch_lag) if self.watch_lag else 0.0


class InProcessKubeClient(KubeClient):
    def __init__(self, server: ApiServer, network: Network) -> None:
        token = {"Authorization": f"Bearer {server.identity.token}"}
        super().__init__(ClientConfig(server="https://127.0.0.1", credentials=StaticCredentials(token)))
        self._server, self._network = server, network
        self._headers = CIMultiDictProxy(CIMultiDict({**token, "Host": "127.0.0.1", "User-Agent": "windlass"}))

    async def _send_once(self, request: Request) -> bytes:
        network = self._network
        network.count(request.method)
        await network.delay(network.latency)
        fate = network.random.random()
        if network.outage or fate < network.failures * 0.3:
            network.count("refused")
            raise ServerUnavailable("connection refused")
        if fate < network.failures * 0.5:
            network.count("failed in the server")
            status = {"code": 500, "reason": "InternalError", "message": "etcdserver: request timed out"}
            raise api_error(500, msgspec.json.encode(status), f"{request.method} {request.path}")
        writer = _Writer()
        response = await self._server._handle(self._request(request, writer))
        await network.delay(network.latency)
        if fate < network.failures and request.method in WRITES:
            network.count("answer lost")
            raise ServerUnavailable("connection reset by peer")
        body = bytes(response.body or b"") if isinstance(response, web.Response) else writer.written()  # type: ignore[arg-type]
        if response.status >= 400:
            network.count(f"answered {response.status}")
            if response.status == 409:
                network.count(conflict(request))
            raise api_error(response.status, body, f"{request.method} {request.path}")
        return body

    async def stream_lines(self, request: Request, idle_timeout: float) -> AsyncGenerator[bytes, None]:
        await self._network.delay(self._network.latency)
        if self._network.outage:
            raise ServerUnavailable("connection refused")
        writer = _Writer()
        serving = asyncio.create_task(self._server._handle(self._request(request, writer)))
        serving.add_done_callback(lambda _: writer.lines.put_nowait(None))
        try:
            while (sent := await writer.lines.get()) is not None:
                chunk, sent_at = sent
                lag = self._network.lag()
                await asyncio.sleep(sent_at + lag - time.monotonic() if lag else 0)
                if self._network.outage or self._network.random.random() < self._network.failures / 20:
                    self._network.count("watch broken")
                    raise ServerUnavailable("the watch broke")
                for line in chunk.split(b"\n"):
                    if line:
                        yield line
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    def _request(self, request: Request, writer: _Writer) -> web.BaseRequest:
        url = URL(request.path, encoded=True)
        url = url.with_query(request.query) if request.query else url
        body = request.encoded_body
        headers = self._headers
        if body is not None:
            headers = CIMultiDictProxy(CIMultiDict({**headers, "Content-Type": request.content_type}))
        message = RawRequestMessage(
            request.method, str(url), HttpVersion11, headers, (), False, None, False, False, url
        )
        protocol: Any = SimpleNamespace(
            ssl_context=None, peername=None, sockname=None, transport=_OPEN, writer=writer, _payload_error=None
        )
        made = web.BaseRequest(
            message,
            _Body(body or b""),
            protocol,
            writer,
            None,
            asyncio.get_running_loop(),  # type: ignore[arg-type]
        )
        made._read_bytes = body or b""
        return made


def conflict(request: Request) -> str:
    """What a refused write of this kind is counted as."""
    return f"conflict: {request.method} {_kind(request.path)}"


def _kind(path: str) -> str:
    """`pods/binding` of `/api/v1/namespaces/team/pods/p/binding`."""
    parts = path.split("/namespaces/")[-1].split("/")
    return "/".join([parts[1], *parts[3:]]) if len(parts) > 1 else path


_OPEN = SimpleNamespace(is_closing=lambda: True, get_extra_info=lambda *_: None, abort=lambda: None)


class _Body(SimpleNamespace):
    def __init__(self, data: bytes) -> None:
        super().__init__(data=data)


class _Writer(AbstractStreamWriter):
    """Takes what a handler streams."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[tuple[bytes, float] | None] = asyncio.Queue()
        """With the time at which they were sent."""

    async def write(self, chunk: Any) -> None:
        self.lines.put_nowait((bytes(chunk), time.monotonic()))

    def written(self) -> bytes:
        """Of a large answer, which is written in pieces."""
        return b"".join(sent[0] for _ in range(self.lines.qsize()) if (sent := self.lines.get_nowait()) is not None)

    async def write_eof(self, chunk: bytes = b"") -> None: ...

    async def drain(self) -> None: ...

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None: ...

    def enable_chunking(self) -> None: ...

    async def write_headers(self, status_line: str, headers: Any) -> None: ...
