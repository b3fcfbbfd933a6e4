"""The API server: HTTPS in, `registry` behind it.

    TLS ─► doors (Host, Origin, token) ─► paths ─► reading | writing | subresources | documents

Built on aiohttp's low-level server, without an application and its middlewares: a request costs little more than its
work. `embedded.embedded_cluster` starts one and may mount more under other paths, behind the same door.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
from collections.abc import Awaitable, Callable, Collection

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from windlass.embedded.api.errors import ApiError
from windlass.embedded.pki import Identity
from windlass.embedded.registry.registry import Registry
from windlass.embedded.runtime.kubelet_api import KubeletApi
from windlass.embedded.server.authentication import USER_KEY, Authenticator
from windlass.embedded.server.non_resource_paths import NonResourceHandler
from windlass.embedded.server.read_handlers import ReadHandlers
from windlass.embedded.server.request_body import MAX_BODY_BYTES
from windlass.embedded.server.request_target import Target, parse_target
from windlass.embedded.server.responses import error_response, method_not_allowed
from windlass.embedded.server.subresources import Subresources
from windlass.embedded.server.write_handlers import WriteHandlers

log = logging.getLogger(__name__)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

SHUTDOWN_TIMEOUT_SECONDS = 1.0
BACKLOG = 1024
GC_THRESHOLDS = (100_000, 20, 100)
IDLE_SECONDS = 90.0
"""How long a connection may say nothing, at its beginning too: whoever has no token can't hold many."""
MAX_LINE_BYTES = 256 << 10
"""Of a request's head: a command to execute stands in the path, as does a long selector."""


class ApiServer:
    def __init__(
        self,
        registry: Registry,
        identity: Identity,
        *,
        kubelet_api: KubeletApi | None = None,
        hosts: Collection[str] = (),
    ) -> None:
        """`hosts`: names and addresses besides loopback's under which clients may call it."""
        self.registry, self.identity, self.authenticator = (
            registry,
            identity,
            Authenticator(identity.token, hosts),
        )
        self._reading, self._writes = ReadHandlers(registry), WriteHandlers(registry)
        self._subresources = Subresources(registry, kubelet_api, self.authenticator)
        self._documents = NonResourceHandler(registry)
        self._mounts: dict[str, Handler] = {}
        self._server: asyncio.Server | None = None
        self._web: web.Server | None = None
        self.host, self.port = "", 0

    @property
    def url(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{shown}:{self.port}"

    def set_kubelet_api(self, kubelet_api: KubeletApi) -> None:
        """Who answers for logs and commands, where that is known only after the server was made."""
        self._subresources.kubelet_api = kubelet_api

    def mount(self, prefix: str, handler: Handler) -> None:
        """Serve everything below a prefix by a handler, to whoever has the token."""
        self._mounts[prefix.rstrip("/") + "/"] = handler

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        # What is stored has no cycles; looking for some among half a million trees takes a third of the time.
        gc.set_threshold(*GC_THRESHOLDS)
        loop = asyncio.get_running_loop()
        self._web = web.Server(
            self._handle,
            request_factory=_bounded_request,
            handler_cancellation=True,  # a watch ends when its client goes, not with the next event
            access_log=None,
            keepalive_timeout=IDLE_SECONDS,
            max_line_size=MAX_LINE_BYTES,
        )
        logging.getLogger("aiohttp.server").addFilter(_is_ours)
        self._server = await loop.create_server(
            self._web, host, port, ssl=self.identity.ssl_context(), backlog=BACKLOG, reuse_address=True
        )
        bound = self._server.sockets[0].getsockname()
        self.host, self.port = _shown(str(bound[0]), self._server.sockets[0]), int(bound[1])

    async def stop(self) -> None:
        if self._server is not None and self._web is not None:
            self._server.close()
            self._web.pre_shutdown()
            await self._web.shutdown(SHUTDOWN_TIMEOUT_SECONDS)
            self._server = self._web = None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Every request comes through here, and every refusal goes out here."""
        try:
            request[USER_KEY] = self.authenticator.authenticate(request)
            return await self._route(request)
        except ApiError as error:
            return error_response(request, error)
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise
            return error_response(request, ApiError.internal(str(error)))
        except Exception as error:  # the boundary: nobody's request may end the process or leak a traceback
            log.exception("%s %s", request.method, request.path)
            return error_response(request, ApiError.internal(f"{type(error).__name__}: {error}"))

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        target = parse_target(path, self.registry.kinds)
        if target is not None:
            return await self._on_objects(request, target)
        for prefix, handler in self._mounts.items():
            if path.startswith(prefix) or path + "/" == prefix:
                return await handler(request)
        return await self._documents.serve(request)

    async def _on_objects(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        method = request.method
        if target.subresource or "list" not in target.kind.verbs:
            own = self._subresources.handler(target, method)
            if own is not None:
                return await own(request, target)
        if method == "GET":
            many = not target.name or target.watch
            return await (self._reading.list if many else self._reading.get)(request, target)
        handler = self._write_handler(method, target)
        if handler is None:
            raise method_not_allowed()
        return await handler(request, target)

    def _write_handler(
        self, method: str, target: Target
    ) -> Callable[[web.BaseRequest, Target], Awaitable[web.StreamResponse]] | None:
        writes = self._writes
        if not target.name:
            somewhere = bool(target.namespace) == target.kind.namespaced
            if method == "POST" and somewhere:
                return writes.create
            allowed = "deletecollection" in target.kind.verbs and somewhere
            return writes.delete_collection if method == "DELETE" and allowed else None
        if method == "PUT":
            return writes.update
        if method == "PATCH":
            return writes.patch
        return writes.delete if method == "DELETE" and not target.subresource else None


def _bounded_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a failure is the server's own; who sends no HTTP is answered, and fills no log with tracebacks."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


def _shown(address: str, listener: socket.socket) -> str:
    """An address that a client on this machine can use: a wildcard is none."""
    if address in ("0.0.0.0", "::"):  # compared, not bound
        return "127.0.0.1" if listener.family == socket.AF_INET else "::1"
    return address
