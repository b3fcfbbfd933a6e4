"""The HTTP client of one API server: sends requests, streams watches, opens WebSockets.

Made from a `ClientConfig`; everything in `kube` and `apply` that talks to a server uses it. After 401 it refreshes the
credentials and tries once more; after 429 it waits as long as the server asks; any other error goes to the caller. It
keeps to a rate of requests, and counts what it asks for.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import socket
import urllib.request
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from windlass import __version__
from windlass.kube.client_config import ClientConfig
from windlass.kube.credentials import ClientCertificate
from windlass.kube.errors import (
    LeaseLost,
    ServerUnavailable,
    TooManyRequests,
    Unauthorized,
    api_error,
    decode_answer,
)
from windlass.kube.request import Request
from windlass.kube.request_budget import NO_LIMIT, ApiTraffic, RequestBudget, RequestRate
from windlass.kube.tls import tls_context
from windlass.kube.write_gate import WriteGate
from windlass.model.errors import ClusterUnreachable

log = logging.getLogger(__name__)
T = TypeVar("T")

CHUNK = 1 << 20
CONNECT_SECONDS = 10.0
RESPONSE_TIMEOUT_SECONDS = 30.0
MAX_RETRY_AFTER_SECONDS = 30.0
"""A longer `Retry-After` is cut to this."""
MAX_ATTEMPTS = 6
KEEPALIVE_OPTIONS = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
"""With these a connection that is lost silently is noticed after a minute."""


class KubeClient:
    def __init__(
        self,
        config: ClientConfig,
        connections: int = 128,
        timeout_seconds: float = RESPONSE_TIMEOUT_SECONDS,
        rate: RequestRate = NO_LIMIT,
    ) -> None:
        """`timeout_seconds`: how long a response may take; watches have their own timeout. `rate`: the most that is
        asked of the server."""
        self.config = config
        self._timeout_seconds = timeout_seconds
        self._connections = connections
        self._base = URL(config.server)
        self._prefix = self._base.raw_path.rstrip("/")
        self._proxy = config.proxy or proxy_of_environment(config.server)
        self._session: aiohttp.ClientSession | None = None
        self._certificate: ClientCertificate | None = None
        self._opening = asyncio.Lock()
        self.seconds_to_write: Callable[[], float] = lambda: math.inf
        """How long a write with `may_send` may take: what is left of the lease under which it is sent. Beyond that
        another replica may lead, and the write must not be done after the other has decided."""
        self.budget, self.traffic = RequestBudget(rate), ApiTraffic()
        self.write_gate: WriteGate | None = None
        """Stops the writes of a role while they are frozen; None for commands that a person gives."""

    async def __aenter__(self) -> KubeClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, request: Request, may_send: Callable[[], bool] | None = None) -> bytes:
        """The body of a successful response. Raises `ApiError` for an error status, `ServerUnavailable` for none.

        `may_send` is called right before each attempt; `LeaseLost` is raised if it returns False. The attempt ends
        within `seconds_to_write`. `WritesFrozen` is raised for a write while writes are frozen.
        """
        tries = 0
        while True:
            tries += 1
            await self.budget.wait(request.path)
            if self.write_gate is not None:
                await self.write_gate.check(request)
            if may_send is not None and not may_send():
                raise LeaseLost(f"{request.method} {request.path} was not sent: the lease is lost")
            seconds = self.seconds_to_write() if may_send is not None else math.inf
            try:
                async with asyncio.timeout(None if math.isinf(seconds) else seconds):
                    return await self._send_once(request)
            except TimeoutError:
                raise ServerUnavailable(
                    f"{request.method} {request.path}: no answer while the lease was held"
                ) from None
            except Unauthorized:
                if tries > 1 or not self.config.credentials.invalidate():
                    raise
            except TooManyRequests as error:
                if not request.retries_on_429 or tries >= MAX_ATTEMPTS:
                    raise
                await asyncio.sleep(min(error.retry_after or 1.0, MAX_RETRY_AFTER_SECONDS) * random.uniform(1.0, 1.25))

    async def get(self, path: str, **query: str) -> Any:
        """The decoded JSON, untyped."""
        return await self.read(Request("GET", path, tuple(query.items())), Any)

    async def read(self, request: Request, kind: type[T]) -> T:
        """The decoded response; `MalformedAnswer` if it can't be decoded."""
        return decode_answer(await self.send(request), kind, f"{request.method} {request.path}")

    async def stream_lines(self, request: Request, idle_timeout: float) -> AsyncGenerator[bytes, None]:
        """The lines of a watch, of any length, until the server ends it.

        After `idle_timeout` seconds without a byte the connection counts as lost.
        """
        await self.budget.wait(request.path)
        session, headers = await self._ready()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=idle_timeout)
        try:
            async with session.request(
                request.method, self._url(request), headers=headers, timeout=timeout, **self._options()
            ) as response:
                await self._check(response, request, "WATCH")
                rest = b""
                self.traffic.open_watches += 1
                try:
                    async for chunk in response.content.iter_any():
                        self.traffic.bytes_received += len(chunk)
                        *whole, rest = (rest + chunk if rest else chunk).split(b"\n")
                        for line in whole:
                            if line:
                                yield line
                finally:
                    self.traffic.open_watches -= 1
        except Unauthorized:
            self.config.credentials.invalidate()
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unavailable(self.config.server, error) from None

    @asynccontextmanager
    async def websocket(
        self, request: Request, protocols: tuple[str, ...]
    ) -> AsyncGenerator[aiohttp.ClientWebSocketResponse, None]:
        """A WebSocket to the server; `ApiError` where it answers with anything else."""
        session, headers = await self._ready()
        headers.pop("Accept")  # a stream is not JSON: with this header the server answers 406
        try:
            async with session.ws_connect(
                self.config.server + request.path,
                params=list(request.query),
                protocols=protocols,
                headers=headers,
                **self._options(),
            ) as opened:
                yield opened
        except aiohttp.WSServerHandshakeError as error:
            where = f"{request.method} {request.path}"
            raise api_error(error.status, error.message.encode(), where) from None
        except (aiohttp.ClientError, OSError) as error:
            raise _unavailable(self.config.server, error) from None

    async def _send_once(self, request: Request) -> bytes:
        session, headers = await self._ready()
        headers["Accept"] = request.accept
        body = request.encoded_body
        if body is not None:
            headers["Content-Type"] = request.content_type
        try:
            async with session.request(
                request.method, self._url(request), data=body, headers=headers, **self._options()
            ) as response:
                await self._check(response, request, request.method, len(body or b""))
                answer = await response.read()
                self.traffic.bytes_received += len(answer)
                return answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.traffic.count(request.method, "<error>")
            raise _unavailable(self.config.server, error) from None

    async def _check(
        self, response: aiohttp.ClientResponse, request: Request, method: str, bytes_sent: int = 0
    ) -> None:
        self.traffic.count(method, str(response.status), bytes_sent)
        log.debug("%s %s %s → %d", request.method, request.path, dict(request.query), response.status)
        if response.status >= 400:
            after = response.headers.get("Retry-After", "")
            where = f"{request.method} {request.path}"
            raise api_error(response.status, await response.read(), where, after)

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self.config.tls_server_name:
            options["server_hostname"] = self.config.tls_server_name
        if self._proxy:
            options["proxy"] = self._proxy
        return options

    def _url(self, request: Request) -> URL:
        """Paths are built by us and need no quoting; query values do."""
        url = self._base.with_path(self._prefix + request.path, encoded=True)
        return url.with_query(request.query) if request.query else url

    async def _ready(self) -> tuple[aiohttp.ClientSession, CIMultiDict[str]]:
        """The session for the present client certificate, and the present headers."""
        credentials = self.config.credentials
        headers = CIMultiDict({"User-Agent": f"windlass/{__version__}", "Accept": "application/json"})
        try:
            headers.update(await credentials.headers())
            certificate = await credentials.client_certificate()
        except ClusterUnreachable as error:
            if self._session is None:
                raise
            # There were credentials before, so the caller retries as it does while the server is down.
            raise ServerUnavailable(str(error)) from None
        for name, value in self.config.headers:
            headers.add(name, value)
        if self._session is not None and certificate is self._certificate:
            return self._session, headers
        async with self._opening:
            if self._session is None or certificate != self._certificate:
                await self.close()
                self._session, self._certificate = self._open(certificate), certificate
        return self._session, headers

    def _open(self, certificate: ClientCertificate) -> aiohttp.ClientSession:
        secure = self.config.server.startswith("https")
        tls = tls_context(self.config.ca, self.config.insecure, certificate) if secure else True
        connector = aiohttp.TCPConnector(
            limit=self._connections, ssl=tls, keepalive_timeout=60, socket_factory=keepalive_socket
        )
        timeout = aiohttp.ClientTimeout(total=self._timeout_seconds, sock_connect=CONNECT_SECONDS)
        # Not `trust_env`: it would look for a proxy and into ~/.netrc before every single request.
        return aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=CHUNK,
            auto_decompress=True,
        )


def keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket with TCP keepalive: a watch may be silent for long, and a lost connection would go unnoticed."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE_OPTIONS.items():
        if hasattr(socket, name):  # Linux has all of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def proxy_of_environment(server: str) -> str:
    """The proxy that the environment names for this server, as kubectl reads it; empty if none."""
    address = urlsplit(server)
    if not address.hostname or urllib.request.proxy_bypass(address.hostname):
        return ""
    return urllib.request.getproxies().get(address.scheme, "")


def _unavailable(server: str, error: BaseException) -> ServerUnavailable:
    return ServerUnavailable(f"{server}: {str(error) or type(error).__name__}")
