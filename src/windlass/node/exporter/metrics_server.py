"""`/metrics` and `/health` on a port: the exporter's last page, for whoever asks.

Runs in the process beside the plugin. A scrape is one copy of bytes. Clients are strangers: one that says nothing,
reads nothing or goes away in the middle costs a thread for a while and not a word in the log, and there are only so
many threads.
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
MOST_CLIENTS = 64
CLIENT_SECONDS = 15.0
"""How long a client may be silent, or not take what it asked for. Prometheus keeps connections for longer than its
interval and opens a new one where that was ended."""


class MetricsServer:
    def __init__(
        self, exporter: Exporter, address: str = "", port: int = PORT, web: WebConfig | None = None
    ) -> None:
        class Handler(_Handler):
            page = property(lambda self: exporter.metrics_text)

        Handler.web = web
        self._handler = Handler
        self._web = web
        self._address = address
        self._server: _Server | None = None
        self.port = port
        """Where it is 0, the one that was found, once it has started."""

    def start(self) -> None:
        """Raises an `InputError` where the port is taken."""
        try:
            self._server = self._bound()
        except OSError as error:
            raise InputError(
                f"port {self.port} can't be had: {error.strerror or error}",
                remedy="another exporter is live on this node; remove it, or choose another port",
            ) from None
        self._server.web = self._web
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True, name="metrics").start()

    def _bound(self) -> _Server:
        """Every address is those of both families, where the machine has both."""
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
        """A scrape is no news."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = MOST_CLIENTS
    web: WebConfig | None = None

    def __init__(self, *arguments: Any) -> None:
        self._places = threading.BoundedSemaphore(MOST_CLIENTS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(self._wrapped(request), client_address)
        except OSError:  # gone before TLS could begin
            self.shutdown_request(request)
        finally:
            self._places.release()

    def _wrapped(self, request: Any) -> Any:
        """The handshake comes with the first word, under the client's own time limit."""
        context = self.web.tls_context() if self.web is not None else None
        if context is None:
            return request
        return context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news either."""


class _Server6(_Server):
    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        if self.server_address[0] == "::":
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()
