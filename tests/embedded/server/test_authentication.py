"""Authentication: the token, the Host, the Origin; the kubeconfig's mode; the certificate."""

from __future__ import annotations

import json
import socket
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp.test_utils import make_mocked_request
from tests.embedded.server.harness import Client, Served

from windlass.embedded.api.errors import ApiError
from windlass.embedded.pki import load_or_create_identity
from windlass.embedded.server import server
from windlass.embedded.server.authentication import Authenticator
from windlass.model.errors import InputError
from windlass.model.unstructured import Unstructured

PATHS = (
    "/",
    "/version",
    "/healthz",
    "/readyz",
    "/metrics",
    "/api",
    "/apis",
    "/api/v1/pods",
    "/openapi/v3",
    "/nothing",
)


@pytest.mark.parametrize("token", ["", "wrong", "Bearer"])
@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_told_without_the_token(served: Served, path: str, token: str) -> None:
    answer = Client(served.kubeconfig, token).get(path)
    assert answer.code == 401
    status = answer.json
    assert (status["kind"], status["reason"], status["message"]) == ("Status", "Unauthorized", "Unauthorized")


def test_who_has_no_token_holds_no_connection(served: Served) -> None:
    assert Client(served.kubeconfig, "wrong").get("/version").headers["Connection"] == "close"
    assert served.client.get("/version").headers.get("Connection") != "close"


@pytest.mark.parametrize("header", ["Basic {}", "Bearer  {}", "{}", "Bearer {}x", "Token {}"])
def test_the_token_comes_as_a_bearer_token(served: Served, header: str) -> None:
    given = {"Authorization": header.format(served.identity.token)}
    assert served.client.send("GET", "/version", headers=given).code == 401
    lower = {"Authorization": f"bearer {served.identity.token}"}
    assert served.client.send("GET", "/version", headers=lower).code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_nor_is_anything_done(served: Served, method: str) -> None:
    assert Client(served.kubeconfig, "").send(method, "/api/v1/namespaces/default").code == 401
    assert served.client.get("/api/v1/namespaces/default").code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:443", "127.0.0.1.evil.example", ""])
def test_a_host_that_is_not_ours_is_refused(served: Served, host: str) -> None:
    """A site that makes its own name point to loopback sends that name."""
    answer = served.client.send("GET", "/api/v1/pods", headers={"Host": host})
    assert answer.code in (400, 403)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]"])
def test_loopback_has_several_names(served: Served, name: str) -> None:
    port = urlsplit(served.client.url).port
    assert served.client.send("GET", "/api/v1/pods", headers={"Host": f"{name}:{port}"}).code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1", "https://127.0.0.1:1"])
def test_another_origin_is_refused_even_with_the_token(served: Served, origin: str) -> None:
    answer = served.client.send("POST", "/api/v1/namespaces", headers={"Origin": origin}, body=_space("never"))
    assert answer.code == 403
    assert served.client.get("/api/v1/namespaces/never").code == 404


def test_its_own_origin_is_not(served: Served) -> None:
    host = urlsplit(served.client.url).netloc
    assert served.client.send("GET", "/version", headers={"Origin": f"https://{host}"}).code == 200


def test_the_kubeconfig_is_its_owners_alone(served: Served) -> None:
    assert stat.S_IMODE(served.kubeconfig.stat().st_mode) == 0o600


def test_it_listens_on_loopback_only(served: Served) -> None:
    assert urlsplit(served.client.url).hostname == "127.0.0.1"
    others = {address[4][0] for address in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in others - {"127.0.0.1", "127.0.1.1"}:
        with socket.socket() as one:
            one.settimeout(2)
            assert one.connect_ex((str(address), int(urlsplit(served.client.url).port or 0))) != 0


def test_the_certificate_is_checked_by_its_authority(served: Served) -> None:
    where = urlsplit(served.client.url)
    stranger = ssl.create_default_context()
    with socket.create_connection((where.hostname, where.port)) as plain, pytest.raises(ssl.SSLError):
        stranger.wrap_socket(plain, server_hostname="127.0.0.1")
    friend = ssl.create_default_context(cadata=served.identity.authority)
    with (
        socket.create_connection((where.hostname, where.port)) as plain,
        friend.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        assert secure.version() in ("TLSv1.2", "TLSv1.3")


def test_plain_http_is_not_spoken(served: Served) -> None:
    where = urlsplit(served.client.url)
    with socket.create_connection((where.hostname, where.port)) as plain:
        plain.settimeout(60)
        plain.sendall(b"GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"HTTP/1.1 200" not in plain.recv(1000)


@pytest.mark.parametrize("begun", [b"", b"GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
def test_who_says_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.2)
    impatient = Served(tmp_path).start()
    with said_by(impatient) as secure:
        try:
            secure.sendall(begun)
            assert secure.recv(1000) == b""
        except TimeoutError:
            pytest.fail("it is still open")
        except OSError:
            pass  # closed before all of it was said
    impatient.stop()


def test_what_is_no_http_is_answered_and_fills_no_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with said_by(served) as secure:
        secure.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Large: " + b"x" * 9000 + b"\r\n\r\n")
        assert b" 400 Bad Request" in secure.recv(1000)
    assert not caplog.records


@contextmanager
def said_by(served: Served) -> Iterator[ssl.SSLSocket]:
    """A connection on which anything can be said."""
    where = urlsplit(served.client.url)
    friend = ssl.create_default_context(cadata=served.identity.authority)
    with (
        socket.create_connection((where.hostname, where.port)) as plain,
        friend.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        secure.settimeout(120)
        yield secure


def test_an_identity_is_kept_with_the_state(tmp_path: Path) -> None:
    first = load_or_create_identity(tmp_path)
    assert load_or_create_identity(tmp_path) == first
    assert stat.S_IMODE((tmp_path / "identity.json").stat().st_mode) == 0o600
    other = load_or_create_identity(tmp_path, ["gpu.example"])
    assert "gpu.example" in other.names
    assert other.token != first.token


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"token": ""}, "its token has fewer than 32 characters"),
        ({"key": "no key"}, "can't be used"),
        ({"names": 7}, "can't be used"),
        (None, "can't be used"),
    ],
)
def test_an_identity_that_can_not_be_used_is_refused(tmp_path: Path, change: dict[str, Any] | None, words: str) -> None:
    load_or_create_identity(tmp_path)
    file = tmp_path / "identity.json"
    content = json.loads(file.read_text())
    file.write_bytes(b"\xff\xfe" if change is None else json.dumps({**content, **change}).encode())
    with pytest.raises(InputError, match=words):
        load_or_create_identity(tmp_path)


def test_an_identity_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_or_create_identity(tmp_path)
    file = tmp_path / "identity.json"
    file.chmod(0o644)
    with pytest.raises(InputError, match=r"other users may read or change it \(mode 0644\)"):
        load_or_create_identity(tmp_path)
    file.chmod(0o600)
    monkeypatch.setattr("windlass.embedded.pki.os.geteuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(InputError, match="belongs to user"):
        load_or_create_identity(tmp_path)


def test_an_empty_token_opens_nothing() -> None:
    request = make_mocked_request("GET", "/api", headers={"Host": "localhost", "Authorization": "Bearer "})
    with pytest.raises(ApiError) as caught:
        Authenticator("").authenticate(request)
    assert caught.value.code == 401


def test_what_is_mounted_is_behind_the_same_door(served: Served) -> None:
    from aiohttp import web

    async def hello(request: web.BaseRequest) -> web.Response:
        return web.json_response({"path": request.path})

    served.call(lambda: served.server.mount("/windlass/extra", hello))
    assert served.client.get("/windlass/extra/a").ok() == {"path": "/windlass/extra/a"}
    assert Client(served.kubeconfig, "").get("/windlass/extra/a").code == 401


def _space(name: str) -> Unstructured:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
