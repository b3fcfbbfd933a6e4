"""An HTTP extender for kube-scheduler that writes down which nodes passed the filters, pod by pod.

Started by the feasibility tests; kube-scheduler calls it after its own filters with the nodes that are left. It then
either lets them all through, or none: a pod that is refused everywhere changes nothing, and many can be asked about.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """kube-scheduler drops its connections when it is stopped; that is nobody's error."""


class Extender:
    """`seen[namespace/name]` is the last set of nodes that kube-scheduler handed over for a pod."""

    def __init__(self, *, lets_through: bool) -> None:
        self.lets_through = lets_through
        self.seen: dict[str, frozenset[str]] = {}
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True, name="extender")

    def __enter__(self) -> Extender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def configuration(self) -> dict[str, Any]:
        """The entry of `extenders` in a KubeSchedulerConfiguration."""
        port = self._server.server_address[1]
        return {
            "urlPrefix": f"http://127.0.0.1:{port}",
            "filterVerb": "filter",
            "nodeCacheCapable": True,
            "enableHTTPS": False,
            "httpTimeout": "30s",
        }

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        meta = asked["Pod"]["metadata"]
        names = list(asked["NodeNames"] or ())
        self.seen[f"{meta['namespace']}/{meta['name']}"] = frozenset(names)
        if self.lets_through:
            return {"NodeNames": names}
        return {"NodeNames": [], "FailedNodes": dict.fromkeys(names, "only asking")}

    def _handler(extender) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                body = json.dumps(extender.answer(asked)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass  # thousands of requests would only hide what a failed test prints

        return Handler
