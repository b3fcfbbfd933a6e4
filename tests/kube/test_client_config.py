"""Credentials: the same kubeconfig gives the same server, headers and certificates as the official client's loader."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import stat
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
import yaml
from kubernetes.client import Configuration
from kubernetes.config import kube_config
from tests.kube.fake_server import FakeServer

from windlass.kube.client import KEEPALIVE_OPTIONS, KubeClient, keepalive_socket
from windlass.kube.client_config import ClientConfig, in_cluster_config, load_client_config
from windlass.kube.credentials import StaticCredentials, TokenFileCredentials
from windlass.kube.errors import ApiError, ServerUnavailable
from windlass.kube.exec_plugin import ExecCredentials
from windlass.kube.kubeconfig import ExecSpec
from windlass.model.errors import ClusterUnreachable, InputError

CA, CERT, KEY = (f"-----BEGIN {what}-----\nx\n-----END {what}-----\n".encode() for what in ("CA", "CRT", "KEY"))


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write(path: Path, clusters: dict[str, Any], users: dict[str, Any], contexts: dict[str, Any], current: str) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": one} for name, one in clusters.items()],
        "users": [{"name": name, "user": one} for name, one in users.items()],
        "contexts": [{"name": name, "context": one} for name, one in contexts.items()],
        "current-context": current,
    }
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in (("ca.crt", CA), ("me.crt", CERT), ("me.key", KEY), ("token", b"from-file\n")):
        (tmp_path / name).write_bytes(data)
    return tmp_path


def plugin(folder: Path, status: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    """A program that prints the status, and how often it ran."""
    credential = {
        "apiVersion": f"client.authentication.k8s.io/{version}",
        "kind": "ExecCredential",
        "status": status,
    }
    script = folder / "login"
    script.write_text(
        f"#!/bin/sh\necho run >> {folder}/runs\nprintf '%s' \"$KUBERNETES_EXEC_INFO\" > {folder}/info\n"
        f"cat <<'END'\n{json.dumps(credential)}\nEND\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    return {
        "command": "./login",
        "apiVersion": f"client.authentication.k8s.io/{version}",
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }


USERS: dict[str, dict[str, Any]] = {
    "inline": {"client-certificate-data": b64(CERT), "client-key-data": b64(KEY)},
    "files": {"client-certificate": "me.crt", "client-key": "me.key"},
    "data before file": {
        "client-certificate-data": b64(CERT),
        "client-certificate": "absent.crt",
        "client-key-data": b64(KEY),
    },
    "token": {"token": "abc"},
    "token file": {"tokenFile": "token"},
    "basic": {"username": "ada", "password": "pass:word"},
    "nobody": {},
}
CLUSTERS: dict[str, dict[str, Any]] = {
    "ca inline": {"server": "https://one:6443", "certificate-authority-data": b64(CA)},
    "ca file": {"server": "https://two:6443/", "certificate-authority": "ca.crt"},
    "insecure": {"server": "https://three", "insecure-skip-tls-verify": True, "tls-server-name": "inner"},
}


def theirs(files: str, context: str) -> dict[str, Any]:
    configuration = Configuration()
    kube_config.load_kube_config(
        config_file=files, context=context or None, client_configuration=configuration, persist_config=False
    )

    def read(path: str | None) -> bytes:
        return Path(path).read_bytes() if path else b""

    authorization = (configuration.get_api_key_with_prefix("BearerToken") or "").strip()
    if not authorization and configuration.username:
        authorization = configuration.get_basic_auth_token() or ""
    return {
        "server": configuration.host.rstrip("/"),
        "ca": read(configuration.ssl_ca_cert),
        "verify": configuration.verify_ssl,
        "certificate": read(configuration.cert_file),
        "key": read(configuration.key_file),
        "authorization": authorization,
        "tls name": configuration.tls_server_name or "",
    }


def ours(access: ClientConfig) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        identity = await access.credentials.client_certificate()
        headers = await access.credentials.headers()
        return {
            "server": access.server,
            "ca": access.ca,
            "verify": not access.insecure,
            "certificate": identity.certificate,
            "key": identity.key,
            "authorization": headers.get("Authorization", ""),
            "tls name": access.tls_server_name,
        }

    return asyncio.run(ask())


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_one_file(folder: Path, user: str, cluster: str) -> None:
    contexts = {"c": {"cluster": cluster, "user": user, "namespace": "team"}}
    path = write(folder / "config", CLUSTERS, USERS, contexts, "c")
    access = load_client_config(str(path), environment={})
    expected = theirs(str(path), "")
    if user == "basic":
        expected["authorization"] = "Basic " + b64(b"ada:pass:word")
    assert ours(access) == expected
    assert access.namespace == "team"


def test_several_files_are_merged_and_the_first_word_counts(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "token").write_text("inner\n")
    first = write(
        folder / "first",
        {"a": {"server": "https://first"}},
        {"u": {"token": "first"}},
        {"one": {"cluster": "a", "user": "u"}},
        "",
    )
    second = write(
        folder / "sub" / "second",
        {"a": {"server": "https://late"}, "b": {"server": "https://second"}},
        {"u": {"token": "late"}, "v": {"tokenFile": "token"}},
        {"two": {"cluster": "b", "user": "v"}, "mixed": {"cluster": "b", "user": "u"}},
        "two",
    )
    files = os.pathsep.join([str(first), str(folder / "absent"), str(second)])
    merged = os.pathsep.join([str(first), str(second)])
    for context in ("", "one", "two", "mixed"):
        access = load_client_config(context=context, environment={"KUBECONFIG": files})
        assert ours(access) == theirs(merged, context), context


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize(
    "status",
    [{"token": "made"}, {"clientCertificateData": CERT.decode(), "clientKeyData": KEY.decode()}],
    ids=["token", "certificate"],
)
def test_exec_plugin(folder: Path, status: dict[str, str], version: str) -> None:
    users = {"u": {"exec": plugin(folder, status, version)}}
    clusters = {"a": {"server": "https://one", "certificate-authority-data": b64(CA)}}
    path = write(folder / "config", clusters, users, {"c": {"cluster": "a", "user": "u"}}, "c")
    access = load_client_config(str(path), environment={})
    expected = theirs(str(path), "")
    assert ours(access) == expected
    assert expected["authorization"] or expected["certificate"]
    info = json.loads((folder / "info").read_text())
    assert info["spec"]["interactive"] is False
    assert info["spec"]["cluster"]["server"] == "https://one"
    assert info["spec"]["cluster"]["certificate-authority-data"] == b64(CA)


def test_exec_answers_are_kept_until_they_expire_or_are_refused(folder: Path) -> None:
    now = [1_000_000_000.0]
    fields = plugin(folder, {"token": "t", "expirationTimestamp": "2001-09-09T02:46:40Z"})
    spec = ExecSpec(str(folder / "login"), api_version=fields["apiVersion"], interactive_mode="Never")

    async def ask() -> list[int]:
        credentials = ExecCredentials(spec, clock=lambda: now[0])
        counts = []
        for step in ("first", "kept", "expired", "refused"):
            if step == "expired":
                now[0] += 3600
            if step == "refused":
                now[0] -= 3600
                assert credentials.invalidate()
            await credentials.headers()
            counts.append(len((folder / "runs").read_text().splitlines()))
        return counts

    assert asyncio.run(ask()) == [1, 1, 2, 3]


def test_many_requests_refused_at_once_ask_the_plugin_once(folder: Path) -> None:
    now = [1_000_000_000.0]
    fields = plugin(folder, {"token": "t"})
    spec = ExecSpec(str(folder / "login"), api_version=fields["apiVersion"], interactive_mode="Never")

    async def ask() -> int:
        credentials = ExecCredentials(spec, clock=lambda: now[0])
        await credentials.headers()
        now[0] += 3600
        for _ in range(20):
            assert credentials.invalidate(), "each may try again"
            await credentials.headers()
        return len((folder / "runs").read_text().splitlines())

    assert asyncio.run(ask()) == 2


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("exit 3", "exit code 3"),
        ("echo hello", "no ExecCredential"),
        (
            'echo \'{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1"}\'',
            "neither a token",
        ),
        ('echo \'{"kind":"Other","apiVersion":"x"}\'', "not ExecCredential"),
    ],
)
def test_a_plugin_that_fails_is_named(folder: Path, output: str, said: str) -> None:
    spec = ExecSpec("/bin/sh", ["-c", output], api_version="client.authentication.k8s.io/v1", interactive_mode="Never")
    with pytest.raises(ClusterUnreachable, match=said):
        asyncio.run(ExecCredentials(spec).headers())


def test_a_missing_plugin_is_named_with_its_hint() -> None:
    spec = ExecSpec(
        "no-such-program-here",
        api_version="client.authentication.k8s.io/v1",
        interactive_mode="Never",
        install_hint="install the cloud tool",
    )
    with pytest.raises(ClusterUnreachable, match=r"no-such-program-here.*install the cloud tool"):
        asyncio.run(ExecCredentials(spec).headers())


def test_token_files_rotate(folder: Path) -> None:
    now = [0.0]
    credentials = TokenFileCredentials(folder / "token", clock=lambda: now[0])

    async def token() -> str:
        return (await credentials.headers())["Authorization"]

    assert asyncio.run(token()) == "Bearer from-file"
    (folder / "token").write_text("next")
    assert asyncio.run(token()) == "Bearer from-file"
    now[0] += 61
    assert asyncio.run(token()) == "Bearer next"
    (folder / "token").write_text("third")
    assert credentials.invalidate(), "a refusal reads it at once"
    assert asyncio.run(token()) == "Bearer third"
    assert not credentials.invalidate(), "the same token again can't help"
    (folder / "token").unlink()
    now[0] += 61
    assert asyncio.run(token()) == "Bearer third", "while the file is away the last token is the best guess"
    for half_written in (b"", b"a\nb", b"\xff\xfe"):
        (folder / "token").write_bytes(half_written)
        now[0] += 61
        assert asyncio.run(token()) == "Bearer third"
    with pytest.raises(ClusterUnreachable, match="can't be read: it is not text"):
        asyncio.run(TokenFileCredentials(folder / "token").headers())


def test_in_cluster(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(CA)
    (tmp_path / "token").write_text("pod-token")
    (tmp_path / "namespace").write_text("windlass-system")
    access = in_cluster_config({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path)
    found = ours(access)
    assert found["server"] == "https://[fd00::1]:443"
    assert found["authorization"] == "Bearer pod-token"
    assert access.namespace == "windlass-system"


def test_impersonation_goes_along(folder: Path) -> None:
    user = {"token": "t", "as": "ada", "as-groups": ["dev", "ops"], "as-user-extra": {"team": ["x"]}}
    path = write(folder / "config", CLUSTERS, {"u": user}, {"c": {"cluster": "ca file", "user": "u"}}, "c")
    assert load_client_config(str(path), environment={}).headers == (
        ("Impersonate-User", "ada"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-team", "x"),
    )


@pytest.mark.parametrize(
    ("user", "context", "said"),
    [
        ({"token": "t"}, "absent", "no context 'absent'"),
        ({"client-certificate-data": "%%"}, "c", "client-certificate-data: is not base64"),
        ({"client-key": "absent.key"}, "c", r"absent\.key: client-key"),
        ({"auth-provider": {"name": "gcp"}}, "c", "use an exec plugin"),
        ({"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}, "c", "v1alpha1"),
        ({"token": 5}, "c", r"users\[u\]"),
        ({"exec": "login"}, "c", r"users\[u\]"),
        ({"token": "a\nb"}, "c", r"users\[\]\.user\.token"),
    ],
)
def test_mistakes_are_named(folder: Path, user: dict[str, Any], context: str, said: str) -> None:
    path = write(folder / "config", CLUSTERS, {"u": user}, {"c": {"cluster": "ca file", "user": "u"}}, "c")
    with pytest.raises(InputError, match=said):
        load_client_config(str(path), context, environment={})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("clusters: [a]", r"clusters\[0\]: is not a mapping"),
        ("clusters: {a: b}", "clusters: is not a list"),
        ("users: [{name: u, user: me}]", r"users\[0\]\.user: is not a mapping"),
        ("", "names no cluster"),
        ("[]", "names no cluster"),
        ("a: [b", "is not YAML"),
    ],
)
def test_files_that_are_no_kubeconfig(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "config").write_text(content)
    with pytest.raises(InputError, match=said) as raised:
        load_client_config(str(tmp_path / "config"), environment={})
    assert "config" in str(raised.value)


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ({"server": "https://[::1"}, "server"),
        ({"server": "ftp://one"}, "server"),
        ({"server": "https://one:http"}, "server"),
        ({"server": "https://one", "proxy-url": "socks5://one:1080"}, "proxy-url"),
    ],
)
def test_addresses_that_cannot_be_used(folder: Path, cluster: dict[str, Any], said: str) -> None:
    path = write(folder / "config", {"c": cluster}, {"u": {"token": "t"}}, {"c": {"cluster": "c", "user": "u"}}, "c")
    with pytest.raises(InputError, match=f"{said}: .*can't be used"):
        load_client_config(str(path), environment={})


@pytest.mark.parametrize(("more", "scheme"), [({}, "http"), ({"insecure-skip-tls-verify": True}, "https")])
def test_an_address_without_a_scheme(folder: Path, more: dict[str, Any], scheme: str) -> None:
    clusters = {"c": {"server": "localhost:8080", **more}}
    path = write(folder / "config", clusters, {}, {"c": {"cluster": "c"}}, "c")
    assert load_client_config(str(path), environment={}).server == f"{scheme}://localhost:8080"


class FailingLater(StaticCredentials):
    """Of a login that works once, and then has a bad day."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False

    async def headers(self) -> dict[str, str]:
        if self.fails:
            raise ClusterUnreachable("login: failed with exit code 1")
        return {}


@pytest.mark.asyncio
async def test_a_login_that_fails_later_is_waited_for_like_the_server(server: FakeServer) -> None:
    login = FailingLater()
    access = msgspec.structs.replace(server.access, credentials=login)
    login.fails = True
    async with KubeClient(access) as client:
        with pytest.raises(ClusterUnreachable) as first:
            await client.get("/version")
        assert not isinstance(first.value, ServerUnavailable), "at the start it ends the program"
        login.fails = False
        with contextlib.suppress(ApiError):
            await client.get("/version")
        login.fails = True
        with pytest.raises(ServerUnavailable, match="login"):
            await client.get("/version")


def test_nothing_at_all() -> None:
    with pytest.raises(ClusterUnreachable, match="no kubeconfig"):
        load_client_config(environment={"HOME": "/nonexistent"})


@pytest.mark.asyncio
async def test_connections_notice_that_the_network_has_lost_them(server: FakeServer) -> None:
    made: list[socket.socket] = []

    def kept(address: Any) -> socket.socket:
        made.append(keepalive_socket(address))
        return made[-1]

    with mock.patch("windlass.kube.client.keepalive_socket", kept):
        async with KubeClient(server.access) as client:
            with contextlib.suppress(ApiError):
                await client.get("/version")
            assert made, "requests go through such a connection"
            assert made[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            if hasattr(socket, "TCP_KEEPIDLE"):
                assert made[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEPALIVE_OPTIONS["TCP_KEEPIDLE"]
