"""What kube-proxy would do, for the one Service that pods of the tests use: the way to the API server.

Used beside `real_node` by tests whose pods talk to the API server. The Service's address is given to loopback, and
what arrives there is passed on, byte for byte: TLS is between pod and server.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

from tests.real_cluster.binaries import NotAvailable
from tests.real_cluster.control_plane import SERVICE_ADDRESS, ControlPlane

_CHUNK = 1 << 16


@contextlib.contextmanager
def service_proxy(plane: ControlPlane) -> Iterator[None]:
    """For so long, the address of the Service `kubernetes` leads to the API server."""
    target = urlsplit(plane.url)
    assert target.hostname is not None
    assert target.port is not None
    _address("replace")
    try:
        with _Forwarder((target.hostname, target.port)):
            yield
    finally:
        _address("delete")


def _address(verb: str) -> None:
    try:
        command = ["ip", "address", verb, f"{SERVICE_ADDRESS}/32", "dev", "lo"]
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise NotAvailable("iproute2 missing: run tools/test-packages") from None
    if done.returncode != 0:
        raise NotAvailable(f"ip address {verb}: {done.stderr.strip()}")


class _Forwarder:
    """Two threads a connection, one for each way."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._door = socket.create_server((SERVICE_ADDRESS, 443))
        self._open: list[socket.socket] = []

    def __enter__(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        for each in (self._door, *self._open):
            _end(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._door.accept()
                self._open.append(near)
                try:
                    far = socket.create_connection(self._target)
                except OSError:
                    _end(near)
                    continue
                self._open.append(far)
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=_copy, args=pair, daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    for each in (source, target):
        _end(each)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
