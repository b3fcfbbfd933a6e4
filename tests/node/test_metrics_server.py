"""The exporter's port: what is answered, and that no client can block the others."""

from __future__ import annotations

import http.client
import socket
import struct
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from tests.node.machines import until

from windlass.model.errors import InputError
from windlass.node.exporter import metrics_server
from windlass.node.exporter.metrics_server import MAX_CLIENTS, MetricsServer

PAGE = b"DCGM_FI_DEV_GPU_TEMP 40\n" * 50_000


@pytest.fixture
def exporter() -> SimpleNamespace:
    return SimpleNamespace(metrics_text=PAGE)


@pytest.fixture
def server(exporter: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Iterator[MetricsServer]:
    monkeypatch.setattr(metrics_server._Handler, "timeout", 60.0)
    made = MetricsServer(exporter, "127.0.0.1", 0)  # type: ignore[arg-type]
    made.start()
    yield made
    made.stop()


@pytest.fixture
def impatient(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> MetricsServer:
    monkeypatch.setattr(metrics_server._Handler, "timeout", 1.0)
    return server


def ask(server: MetricsServer, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def connect(server: MetricsServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/metrics", 200),
        ("GET", "/metrics?name[]=x", 200),
        ("HEAD", "/metrics", 200),
        ("GET", "/health", 200),
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("GET", "/../etc/passwd", 404),
        ("POST", "/metrics", 501),
        ("GET", "/" + 70_000 * "a", 414),
    ],
)
def test_what_is_answered(server: MetricsServer, method: str, path: str, status: int) -> None:
    found, body = ask(server, path, method)
    assert found == status
    assert (body == PAGE) == (method == "GET" and path.startswith("/metrics") and status == 200)
    assert b"<" not in body


def test_before_the_first_pass(server: MetricsServer, exporter: SimpleNamespace) -> None:
    exporter.metrics_text = b""
    assert ask(server, "/metrics") == (503, b"")
    assert ask(server, "/health") == (503, b"no pass yet\n")


@pytest.mark.parametrize("words", [b"\x16\x03\x01\x02\x00\x01\x00\xfc\n\n", b"GET\r\n\r\n", b"\r\n" * 500, b"GET"])
def test_what_is_no_request_leaves_others_alone(
    server: MetricsServer, words: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with connect(server) as stranger:
        stranger.sendall(words)
        assert ask(server, "/metrics") == (200, PAGE)
    assert capfd.readouterr().err == ""


def test_clients_that_go_away_are_no_news(server: MetricsServer, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(20):
        client = connect(server)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        client.close()
    assert ask(server, "/metrics") == (200, PAGE)
    assert capfd.readouterr().err == ""


def test_silent_clients_are_sent_away_and_can_not_take_every_place(impatient: MetricsServer) -> None:
    server = impatient
    silent = [connect(server) for _ in range(MAX_CLIENTS + 20)]

    def answers() -> bool:
        try:
            return ask(server, "/metrics") == (200, PAGE)
        except (OSError, http.client.HTTPException):
            return False

    until(answers, 20, "there is a place again")
    for client in silent:
        assert client.recv(1) == b"", "each was sent away"
        client.close()


def test_a_client_that_does_not_read_is_sent_away(impatient: MetricsServer, exporter: SimpleNamespace) -> None:
    server = impatient
    exporter.metrics_text = PAGE * 20
    with connect(server) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: server._server._slots._value == MAX_CLIENTS, 30, "its place is free again")


def test_a_port_that_is_taken_is_refused_with_the_reason(server: MetricsServer) -> None:
    with pytest.raises(InputError, match=f"can't listen on port {server.port}: .*remove the other exporter"):
        MetricsServer(SimpleNamespace(metrics_text=b""), "127.0.0.1", server.port).start()  # type: ignore[arg-type]


def test_no_address_is_every_address(exporter: SimpleNamespace) -> None:
    server = MetricsServer(exporter, "", 0)  # type: ignore[arg-type]
    server.start()
    try:
        families = [socket.AF_INET, *([socket.AF_INET6] if socket.has_dualstack_ipv6() else [])]
        for family in families:
            with socket.socket(family) as client:
                client.settimeout(60)
                client.connect(("127.0.0.1" if family == socket.AF_INET else "::1", server.port))
    finally:
        server.stop()
