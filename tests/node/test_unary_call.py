"""One gRPC call by hand: against gRPC's own server, and against servers that misbehave."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.node import unary_call
from windlass.node.backend.protocol import DeviceError
from windlass.node.exporter.pod_resources import PodResources
from windlass.node.plugin.rpc import pod_resources_handler
from windlass.node.protos import podresources_pb2 as pr

METHOD = "/v1.PodResourcesLister/List"


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Callable[[Callable[[], pr.ListPodResourcesResponse]], Path]]:
    servers = []

    def serve(answer: Callable[[], pr.ListPodResourcesResponse]) -> Path:
        path = tmp_path / "kubelet.sock"
        server = grpc.server(ThreadPoolExecutor(2))
        server.add_generic_rpc_handlers((pod_resources_handler(answer),))
        server.add_insecure_port(f"unix:{path}")
        server.start()
        servers.append(server)
        return path

    yield serve
    for server in servers:
        server.stop(0).wait()


def pods(count: int) -> pr.ListPodResourcesResponse:
    devices = [pr.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["GPU-1"])]
    return pr.ListPodResourcesResponse(
        pod_resources=[
            pr.PodResources(
                name=f"p{at}",
                namespace="n" * 60,
                containers=[pr.ContainerResources(name="c", devices=devices)],
            )
            for at in range(count)
        ]
    )


class TestWithGrpcsOwnServer:
    @pytest.mark.parametrize("count", [0, 1, 70_000])
    def test_answers_of_any_size(
        self, kubelet: Callable[[Callable[[], pr.ListPodResourcesResponse]], Path], count: int
    ) -> None:
        answer = pods(count)
        asked = PodResources(kubelet(lambda: answer))
        for _ in range(2):
            assert len(asked.holders_or_raise().get("GPU-1", ())) == count

    def test_a_refusal_is_an_error_and_no_empty_answer(
        self, kubelet: Callable[[Callable[[], pr.ListPodResourcesResponse]], Path]
    ) -> None:
        def refuse() -> pr.ListPodResourcesResponse:
            raise RuntimeError("too many requests")

        asked = PodResources(kubelet(refuse))
        with pytest.raises(DeviceError, match="the call failed"):
            asked.holders_or_raise()
        assert asked.holders() == {}

    def test_a_method_that_is_not_there(
        self, kubelet: Callable[[Callable[[], pr.ListPodResourcesResponse]], Path]
    ) -> None:
        path = kubelet(lambda: pods(1))
        with pytest.raises(DeviceError, match="the call failed"):
            unary_call.call_unary(path, "/v1.PodResourcesLister/Nothing", b"", 60)


class Wire:
    """A server that says what it was told to, whatever it is asked."""

    def __init__(self, path: Path, words: bytes, *, ends: bool = True) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._words, self._ends = words, ends
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        try:
            connection, _ = self._listener.accept()
            connection.sendall(self._words)
            if self._ends:
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
                connection.close()
            else:
                self._open.append(connection)
        except OSError:
            pass

    def close(self) -> None:
        self._listener.close()
        for connection in self._open:
            connection.close()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


MESSAGE = struct.pack(">BI", 0, 3) + b"abc"
HEADERS, TRAILERS = frame(1, 4, 1, b"\x88"), frame(1, 5, 1, b"\x88")


def ask(path: Path, words: bytes, *, ends: bool = True, seconds: float = 60) -> bytes:
    server = Wire(path, words, ends=ends)
    try:
        return unary_call.call_unary(path, METHOD, b"", seconds)
    finally:
        server.close()
        path.unlink()


@pytest.mark.parametrize(
    "words",
    [
        HEADERS + frame(0, 0, 1, MESSAGE) + TRAILERS,
        HEADERS + frame(0, 1, 1, MESSAGE),
        frame(4, 0, 0, b"") + frame(6, 0, 0, b"12345678") + HEADERS + frame(0, 0, 1, MESSAGE) + TRAILERS,
        HEADERS + frame(0, 8, 1, b"\x02" + MESSAGE + b"\0\0") + TRAILERS,
        HEADERS + b"".join(frame(0, 0, 1, MESSAGE[at : at + 1]) for at in range(len(MESSAGE))) + TRAILERS,
        HEADERS + frame(0, 0, 3, b"somebody else's") + frame(0, 0, 1, MESSAGE) + TRAILERS,
        HEADERS + frame(8, 0, 0, b"\0\0\1\0") + frame(0x42, 0, 1, b"new") + frame(0, 0, 1, MESSAGE) + TRAILERS,
    ],
)
def test_what_a_server_may_say(tmp_path: Path, words: bytes) -> None:
    assert ask(tmp_path / "s", words) == b"abc"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (b"", "the connection ended"),
        (TRAILERS, "the call failed"),
        (HEADERS + frame(3, 0, 1, b"\0\0\0\7"), "refused"),
        (frame(7, 0, 0, b"\0\0\0\0\0\0\0\0"), "refused"),
        (HEADERS + frame(0, 0, 1, MESSAGE[:6]) + TRAILERS, "not one plain message"),
        (HEADERS + frame(0, 0, 1, MESSAGE + MESSAGE) + TRAILERS, "not one plain message"),
        (HEADERS + frame(0, 0, 1, b"\1" + MESSAGE[1:]) + TRAILERS, "not one plain message"),
        (HEADERS + frame(0, 8, 1, b"\x40abc") + TRAILERS, "not HTTP/2"),
        (HEADERS + frame(0, 8, 1, b"") + TRAILERS, "not HTTP/2"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not HTTP/2|ended"),
    ],
)
def test_what_is_no_answer_is_an_error(tmp_path: Path, words: bytes, why: str) -> None:
    with pytest.raises(DeviceError, match=why):
        ask(tmp_path / "s", words)


def test_a_server_that_never_ends_is_left(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="timed out"):
        ask(tmp_path / "s", HEADERS, ends=False, seconds=0.2)


def test_an_answer_without_end_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unary_call, "MAX_BYTES", 1 << 20)
    with pytest.raises(DeviceError, match="larger than 1 MiB"):
        ask(tmp_path / "s", HEADERS + 70 * frame(0, 0, 1, bytes(1 << 14)))


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="No such file"):
        unary_call.call_unary(tmp_path / "none", METHOD, b"", 1)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.builds(
            frame,
            st.integers(0, 10),
            st.integers(0, 255),
            st.sampled_from([0, 1, 3, 2**31]),
            st.binary(max_size=20),
        )
        | st.binary(max_size=12)
    )
)
def test_no_server_breaks_it(parts: list[bytes]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"".join(parts))
        theirs.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError, EOFError, struct.error):
            unary_call._decode_message(b"".join(unary_call._receive_data(ours, time.monotonic() + 60)))
