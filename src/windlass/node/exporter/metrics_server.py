"""Serves the exporter's last page on `/metrics`, and `/health`.

Runs in the sidecar. A scrape copies bytes and reads no hardware. Clients are not trusted: one that sends nothing,
reads nothing or disconnects occupies one of a limited number of threads for a limited time and is not logged.
"""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from windlass.model.errors import InputError
from windlass.node.exporter.exporter import Exporter

if TYPE_CHECKING:
    from windlass.node.exporter.web_config import WebConfig

PORT = 9400
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_CLIENTS = 64
CLIENT_SECONDS = 15.0
"""How long a client may send or read nothing. Prometheus keeps connections open for longer than its interval, and
reconnects if one was closed."""


class MetricsServer:
    def __init__(self, exporter: Exporter, address: str = "", port: int = PORT, web: WebConfig | None = None) -> None:
        class Handler(_Handler):
            page = property(lambda self: exporter.metrics_text)

        Handler.web = web
        self._handler, self._web, self._address = Handler, web, address
        self._server: _Server | None = None
        self.port = port
        """If 0, the port that the system chose, after `start`."""

    def start(self) -> None:
        """Raises an `InputError` if the port is taken."""
        try:
            self._server = self._bind()
        except OSError as error:
            raise InputError(
                f"can't listen on port {self.port}: {error.strerror or error}",
                remedy="remove the other exporter on this node, or choose another port with --listen",
            ) from None
        self._server.web = self._web
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True, name="metrics").start()

    def _bind(self) -> _Server:
        """An empty address means all addresses, IPv4 and IPv6 if the machine has both."""
        if not self._address and socket.has_dualstack_ipv6():
            return _Server6(("::", self.port), self._handler)
        kind = _Server6 if ":" in self._address else _Server
        return kind((self._address, self.port), self._handler)

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "windlass", ""
    timeout = CLIENT_SECONDS
    error_content_type, error_message_format = "text/plain", "%(code)d %(message)s\n"
    page: Any = b""
    web: WebConfig | None = None

    def do_GET(self) -> None:
        path, page = self.path.partition("?")[0], self.page
        if self.web is not None and not self.web.allows(self.headers.get("Authorization", "")):
            self._answer(401, b"Unauthorized\n")
        elif path == "/metrics":
            self._answer(200 if page else 503, page)
        elif path == "/health":
            self._answer(200 if page else 503, b"OK\n" if page else b"no pass yet\n")
        else:
            self._answer(404, b"/metrics and /health are here\n")

    do_HEAD = do_GET

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", "Basic")
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not logged."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = MAX_CLIENTS
    web: WebConfig | None = None

    def __init__(self, *arguments: Any) -> None:
        self._slots = threading.BoundedSemaphore(MAX_CLIENTS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(self._wrap_tls(request), client_address)
        except OSError:  # disconnected before the TLS handshake
            self.shutdown_request(request)
        finally:
            self._slots.release()

    def _wrap_tls(self, request: Any) -> Any:
        """The handshake happens with the first read, under the client's own timeout."""
        context = self.web.tls_context() if self.web is not None else None
        if context is None:
            return request
        return context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Disconnects are not logged either."""


class _Server6(_Server):
    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        if self.server_address[0] == "::":
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()
