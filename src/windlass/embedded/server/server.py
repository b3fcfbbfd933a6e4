"""The API server: HTTPS in front of `registry`.

    TLS ─► authentication (Host, Origin, token) ─► impersonation, RBAC ─► path
                                                      read | write | subresources | other documents ◄─┘

Built on aiohttp's low-level server, without an application and its middlewares, to keep the cost per request low.
`embedded_cluster` starts one and may mount handlers under other paths, behind the same authentication.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Collection

import msgspec
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.rbac import request_attributes
from windlass.embedded.pki import Identity
from windlass.embedded.registry.registry import Registry
from windlass.embedded.runtime.kubelet_api import KubeletApi
from windlass.embedded.server.authentication import USER_KEY, Authenticator, User
from windlass.embedded.server.authorization import Authorizer
from windlass.embedded.server.impersonation import impersonate
from windlass.embedded.server.listener import Listener
from windlass.embedded.server.non_resource_paths import NonResourceHandler
from windlass.embedded.server.read_handlers import ReadHandlers
from windlass.embedded.server.request_body import MAX_BODY_BYTES
from windlass.embedded.server.request_target import Target, parse_target
from windlass.embedded.server.responses import error_response, method_not_allowed
from windlass.embedded.server.subresources import Subresources
from windlass.embedded.server.work_meter import WorkMeter
from windlass.embedded.server.write_handlers import WriteHandlers

log = logging.getLogger(__name__)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_STREAMS = ("exec", "attach", "portforward")
SHUTDOWN_TIMEOUT_SECONDS = 1.0
GC_THRESHOLDS = (100_000, 20, 100)
IDLE_SECONDS = 90.0
"""How long a connection may be idle; before its first request, `listener` decides."""
MAX_LINE_BYTES = 256 << 10
"""Limit for a line of the request's head; exec commands and long selectors are part of the path."""


class ApiServer:
    def __init__(
        self,
        registry: Registry,
        identity: Identity,
        *,
        kubelet_api: KubeletApi | None = None,
        hosts: Collection[str] = (),
    ) -> None:
        """`hosts`: names and addresses besides loopback under which clients may call it."""
        self.registry, self.identity, self.authenticator = (
            registry,
            identity,
            Authenticator(identity.token, hosts),
        )
        meter, self.authorizer = WorkMeter(), Authorizer(registry)
        self._reads = ReadHandlers(registry, meter)
        self._writes = WriteHandlers(registry, meter, self.authorizer)
        self._subresources = Subresources(registry, kubelet_api, self.authenticator, self.authorizer)
        self._non_resource = NonResourceHandler(registry)
        self._mounts: dict[str, Handler] = {}
        self._listener: Listener | None = None
        self._web_server: web.Server | None = None
        self.host, self.port = "", 0

    @property
    def url(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{shown}:{self.port}"

    def set_kubelet_api(self, kubelet_api: KubeletApi) -> None:
        """Sets what answers logs and exec, if it is created after the server."""
        self._subresources.kubelet_api = kubelet_api

    def mount(self, prefix: str, handler: Handler) -> None:
        """Serves everything below a prefix by a handler, for clients with the token."""
        self._mounts[prefix.rstrip("/") + "/"] = handler

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        # Stored objects have no reference cycles; searching half a million of them takes a third of the time.
        gc.set_threshold(*GC_THRESHOLDS)
        self._web_server = web.Server(
            self._handle,
            request_factory=_bounded_request,
            handler_cancellation=True,  # a watch ends when its client disconnects, not with the next event
            access_log=None,
            keepalive_timeout=IDLE_SECONDS,
            max_line_size=MAX_LINE_BYTES,
        )
        logging.getLogger("aiohttp.server").addFilter(_is_server_error)
        self._listener = Listener(self._web_server, self.identity.ssl_context())
        await self._listener.start(host, port)
        address, self.port = self._listener.addresses[0]
        self.host = _client_address(address)

    async def stop(self) -> None:
        if self._listener is not None and self._web_server is not None:
            await self._listener.close()
            self._web_server.pre_shutdown()
            await self._web_server.shutdown(SHUTDOWN_TIMEOUT_SECONDS)
            self._listener = self._web_server = None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Every request comes through here, and every error is turned into a response here."""
        try:
            user = self.authenticator.authenticate(request)
            if self._listener is not None:
                self._listener.welcome(request.protocol)
            request[USER_KEY] = self._authorize(request, user)
            return await self._answer(request)
        except ApiError as error:
            return error_response(request, error)
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise
            return error_response(request, ApiError.internal(str(error)))
        except Exception as error:  # boundary: no request may end the process or show a traceback
            log.exception("%s %s", request.method, request.path)
            return error_response(request, ApiError.internal(f"{type(error).__name__}: {error}"))

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """A refusal says something of the state, too (there is one already, it is gone, it has changed): it is given
        once that is durable, or a crash could leave a client with a refusal for which there never was a reason."""
        try:
            return await self._route(request)
        except ApiError:
            await self.registry.store.wait_durable()
            raise

    def _authorize(self, request: web.BaseRequest, user: User) -> User:
        """The user that the request is done as, who may do it; else a 403."""
        user = impersonate(request, user, self.authorizer)
        attributes = request_attributes(request.method, request.path, request.query)
        self.authorizer.check(user, attributes)
        if attributes.subresource in _STREAMS and attributes.verb == "get":  # a WebSocket, which begins with a GET
            self.authorizer.check(user, msgspec.structs.replace(attributes, verb="create"))
        return user

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        target = parse_target(path, self.registry.kinds)
        if target is not None:
            return await self._handle_resource(request, target)
        for prefix, handler in self._mounts.items():
            if path.startswith(prefix) or path + "/" == prefix:
                return await handler(request)
        return await self._non_resource.serve(request)

    async def _handle_resource(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        method = request.method
        if target.watch and method != "GET":
            raise method_not_allowed()
        if target.subresource or "list" not in target.kind.verbs:
            subresource_handler = self._subresources.handler(target, method)
            if subresource_handler is not None:
                return await subresource_handler(request, target)
        if method == "GET":
            is_list = not target.name or target.watch
            return await (self._reads.list if is_list else self._reads.get)(request, target)
        handler = self._write_handler(method, target)
        if handler is None:
            raise method_not_allowed()
        return await handler(request, target)

    def _write_handler(
        self, method: str, target: Target
    ) -> Callable[[web.BaseRequest, Target], Awaitable[web.StreamResponse]] | None:
        writes = self._writes
        if not target.name:
            has_right_scope = bool(target.namespace) == target.kind.namespaced
            if method == "POST" and has_right_scope:
                return writes.create
            allowed = "deletecollection" in target.kind.verbs and has_right_scope
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


def _is_server_error(record: logging.LogRecord) -> bool:
    """Whether a failure is the server's own; invalid HTTP from clients is not logged."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


def _client_address(address: str) -> str:
    """An address that a client on this machine can use instead of a wildcard."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
