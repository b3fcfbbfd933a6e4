"""Logs, exec and attach between a client and a runtime, over the protocol that kubectl speaks."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import kubernetes
import kubernetes.stream
import pytest
from tests.embedded.server.harness import Served
from tests.real_cluster.api import until

from windlass.embedded.runtime.kubelet_api import STDERR, STDOUT, ExecRequest, KubeletApiError, LogRequest
from windlass.embedded.server.streams import MAX_MESSAGE_BYTES
from windlass.model.unstructured import Unstructured

PODS = "/api/v1/namespaces/default/pods"


class EchoSession:
    """Says what it was asked for, repeats its input until that ends, and exits with the number in its command."""

    def __init__(self, request: ExecRequest) -> None:
        self.request = request
        self.input: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.sizes: list[tuple[int, int]] = []
        self.closed = False

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        yield STDOUT, " ".join(self.request.command).encode() + b"\n"
        yield STDERR, b"careful\n"
        if self.request.stdin:
            while (piece := await self.input.get()) is not None:
                yield STDOUT, piece
            yield STDOUT, json.dumps(self.sizes).encode()

    async def write(self, data: bytes) -> None:
        await self.input.put(data)

    async def end_input(self) -> None:
        await self.input.put(None)

    def resize(self, width: int, height: int) -> None:
        self.sizes.append((width, height))

    async def exit_code(self) -> int:
        last = self.request.command[-1] if self.request.command else "0"
        return int(last) if last.isdigit() else 0

    async def close(self) -> None:
        self.closed = True


class EchoRuntime:
    def __init__(self) -> None:
        self.sessions: list[EchoSession] = []
        self.asked: list[LogRequest] = []

    async def logs(self, pod: Unstructured, request: LogRequest) -> AsyncIterator[bytes]:
        self.asked.append(request)
        if request.container == "silent":
            raise KubeletApiError(400, "BadRequest", 'container "silent" in pod "two" is waiting to start')
        for number in range(3):
            yield f"line {number}\n".encode()

    async def exec(self, pod: Unstructured, request: ExecRequest) -> EchoSession:
        if request.command == ("refuse",):
            raise KubeletApiError(404, "NotFound", "no such thing")
        self.sessions.append(EchoSession(request))
        return self.sessions[-1]

    async def attach(self, pod: Unstructured, request: ExecRequest) -> EchoSession:
        return await self.exec(pod, request)


@pytest.fixture(scope="module")
def runtime() -> EchoRuntime:
    return EchoRuntime()


@pytest.fixture(scope="module")
def streamed(runtime: EchoRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("streams"), runtime).start()
    for name, boxes in (("one", ["main"]), ("two", ["loud", "silent"])):
        spec = {"nodeName": "n1", "containers": [{"name": box, "image": "x"} for box in boxes]}
        served.client.post(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).ok()
    yield served
    served.stop()


def test_logs(streamed: Served, runtime: EchoRuntime) -> None:
    answer = streamed.client.get(f"{PODS}/one/log", tailLines=5, timestamps="true", previous="true")
    assert answer.code == 200
    assert answer.headers["Content-Type"] == "text/plain"
    assert answer.data == b"line 0\nline 1\nline 2\n"
    assert runtime.asked[-1] == LogRequest(container="main", tail_lines=5, timestamps=True, previous=True)


def test_logs_that_can_not_be_had(streamed: Served) -> None:
    get = streamed.client.get
    assert get(f"{PODS}/two/log").message == (
        "a container name must be specified for pod two, choose one of: [loud silent]"
    )
    assert get(f"{PODS}/two/log", container="none").message == "container none is not valid for pod two"
    refused = get(f"{PODS}/two/log", container="silent")
    assert (refused.code, refused.message) == (400, 'container "silent" in pod "two" is waiting to start')
    assert get(f"{PODS}/nobody/log").code == 404
    assert get(f"{PODS}/one/log", tailLines=-1).code == 422


def test_a_pod_without_a_node_has_an_empty_log_and_runs_nothing(streamed: Served) -> None:
    spec = {"containers": [{"name": "main", "image": "x"}]}
    waiting = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "waiting"}, "spec": spec}
    streamed.client.post(PODS, waiting).ok()
    said = streamed.client.get(f"{PODS}/waiting/log")
    assert (said.code, said.data) == (200, b"")
    refused = streamed.client.get(f"{PODS}/waiting/exec", command="ls")
    assert (refused.code, refused.message) == (400, "pod waiting does not have a host assigned")


class Outcome:
    def __init__(self) -> None:
        self.streams: dict[int, bytes] = {1: b"", 2: b"", 3: b""}
        self.protocol: str | None = None

    @property
    def status(self) -> Unstructured:
        return dict(json.loads(self.streams[3]))


async def converse(served: Served, path: str, sent: list[bytes], protocol: str, **query: Any) -> Outcome:
    context = ssl.create_default_context(cadata=served.identity.authority)
    outcome = Outcome()
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(
            served.client.url + path,
            params=query,
            protocols=(protocol,),
            headers=served.client.headers,
            ssl=context,
        ) as socket,
    ):
        outcome.protocol = socket.protocol
        for piece in sent:
            await socket.send_bytes(piece)
        async for message in socket:
            data = bytes(message.data)
            outcome.streams[data[0]] += data[1:]
    return outcome


def test_exec_streams_and_ends_with_a_status(streamed: Served) -> None:
    path = f"{PODS}/one/exec"
    query = {"command": ["echo", "hi"], "stdout": "true", "stderr": "true"}
    outcome = asyncio.run(converse(streamed, path, [], "v5.channel.k8s.io", **query))
    assert outcome.protocol == "v5.channel.k8s.io"
    assert outcome.streams[1] == b"echo hi\n"
    assert outcome.streams[2] == b"careful\n"
    assert outcome.status["status"] == "Success"


def test_an_exit_code_comes_through(streamed: Served) -> None:
    query = {"command": ["exit", "7"], "stdout": "true"}
    outcome = asyncio.run(converse(streamed, f"{PODS}/one/exec", [], "v4.channel.k8s.io", **query))
    assert outcome.protocol == "v4.channel.k8s.io"
    assert outcome.streams[2] == b""  # it was not asked for
    assert outcome.status["reason"] == "NonZeroExitCode"
    assert outcome.status["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]


def test_input_and_sizes_go_in(streamed: Served, runtime: EchoRuntime) -> None:
    size = bytes([4]) + b'{"Width":80,"Height":24}'
    sent = [size, b"\0one ", b"\0two", bytes([4]) + b"no size", bytes([255, 0])]
    query = {"command": ["cat"], "stdin": "true", "stdout": "true", "tty": "true"}
    outcome = asyncio.run(converse(streamed, f"{PODS}/one/exec", sent, "v5.channel.k8s.io", **query))
    assert outcome.streams[1] == b"cat\none two[[80, 24]]"
    session = runtime.sessions[-1]
    assert session.request == ExecRequest(container="main", command=("cat",), tty=True, stdin=True)
    until(lambda: session.closed, what="the server to let go of the session")


def test_a_message_beyond_the_limit_ends_the_session(streamed: Served, runtime: EchoRuntime) -> None:
    query = {"command": ["cat"], "stdin": "true", "stdout": "true"}
    sent = [b"\0" + b"x" * MAX_MESSAGE_BYTES, bytes([255, 0])]
    outcome = asyncio.run(converse(streamed, f"{PODS}/one/exec", sent, "v5.channel.k8s.io", **query))
    assert outcome.streams[1] == b"cat\n"
    until(lambda: runtime.sessions[-1].closed, what="the server to let go of the session")
    assert streamed.client.get(f"{PODS}/one").code == 200


def test_the_official_client_runs_a_command(streamed: Served) -> None:
    with kubernetes.config.new_client_from_config(str(streamed.kubeconfig)) as connection:
        core = kubernetes.client.CoreV1Api(connection)
        said = kubernetes.stream.stream(
            core.connect_get_namespaced_pod_exec,
            "one",
            "default",
            command=["echo", "hi"],
            stdout=True,
            stderr=True,
        )
    assert said == "echo hi\ncareful\n"


def test_a_client_that_asks_again_in_the_old_way_hears_the_same_reason(streamed: Served) -> None:
    """kubectl does, where attaching over WebSocket was refused."""
    old = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
    send = streamed.client.send
    assert send("POST", f"{PODS}/one/attach", headers=old, command="refuse").message == "no such thing"
    assert "over WebSocket only" in send("POST", f"{PODS}/one/attach", headers=old).message


def test_ports_are_not_forwarded_and_that_is_said(streamed: Served) -> None:
    refused = streamed.client.post(f"{PODS}/one/portforward", {})
    assert (refused.code, "have no network of their own" in refused.message) == (400, True)
    assert streamed.client.post(f"{PODS}/nobody/portforward", {}).code == 404


def test_exec_that_can_not_be_had(streamed: Served) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    upgrade["Sec-WebSocket-Key"] = "AAAAAAAAAAAAAAAAAAAAAA=="
    send = streamed.client.send
    assert send("GET", f"{PODS}/one/exec", command="ls").code == 400
    assert send("GET", f"{PODS}/nobody/exec", headers=upgrade, command="ls").code == 404
    refused = send("GET", f"{PODS}/one/exec", headers=upgrade, command="refuse")
    assert (refused.code, refused.message) == (404, "no such thing")
    assert send("GET", f"{PODS}/one/exec", headers=upgrade).message == (
        "you must specify at least one command for the container"
    )
