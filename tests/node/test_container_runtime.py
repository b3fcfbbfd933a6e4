"""Which way devices take into containers: what runtimes say, what is chosen, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from windlass.node.container_runtime import (
    ContainerRuntime,
    RuntimeWatch,
    ask_container_runtime,
    find_container_runtime,
    strategy_problem,
    with_strategy,
)
from windlass.node.host_root import HostRoot
from windlass.node.validator.node_checks import check_runtime
from windlass.sharing.plugin_config import PluginConfig, resolve_config


def field(number: int, value: bytes | str) -> bytes:
    """A field of a protobuf message."""
    data = value.encode() if isinstance(value, str) else value
    length, encoded = len(data), b""
    while length > 0x7F:
        encoded += bytes([length & 0x7F | 0x80])
        length >>= 7
    return bytes([number << 3 | 2]) + encoded + bytes([length]) + data


class FakeRuntime:
    """The two calls of CRI, on a socket."""

    def __init__(self, socket: Path, name: str, version: str) -> None:
        self.version = field(1, "0.1.0") + field(2, name) + field(3, version) + field(4, "v1")
        self.status = field(1, field(1, field(1, "RuntimeReady") + b"\x10\x01"))
        socket.parent.mkdir(parents=True, exist_ok=True)
        self._server = grpc.server(ThreadPoolExecutor(1))
        calls = {"Version": lambda request, context: self.version, "Status": lambda request, context: self.status}
        handlers = {name: grpc.unary_unary_rpc_method_handler(call) for name, call in calls.items()}
        handler = grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", handlers)
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"unix:{socket}")
        self._server.start()

    def info(self, config: dict[str, Any]) -> FakeRuntime:
        self.status += field(2, field(1, "config") + field(2, json.dumps(config)))
        return self

    def handlers(self, *names: str) -> FakeRuntime:
        for name in names:
            self.status += field(3, field(1, name) + field(2, b"\x08\x01"))
        return self

    def stop(self) -> None:
        self._server.stop(0)


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Any]:
    made: list[FakeRuntime] = []

    def make(name: str, version: str, socket: str = "run/containerd/containerd.sock") -> FakeRuntime:
        made.append(FakeRuntime(tmp_path / socket, name, version))
        return made[-1]

    yield make
    for server in made:
        server.stop()


def found(folder: Path) -> ContainerRuntime | None:
    return find_container_runtime(HostRoot("/", files=folder))


class TestAsked:
    @pytest.mark.parametrize(
        ("version", "config", "has_cdi"),
        [
            ("v2.4.2", {}, True),
            ("v2.0.1", {"enableCDI": True}, True),
            ("v2.0.1", {"enableCDI": False}, False),
            ("1.7.35", {"enableCDI": False}, False),
            ("1.7.35", {"enableCDI": True}, True),
            ("1.6.20~ds1", {}, False),
        ],
    )
    def test_containerd_by_version_and_setting(
        self, runtime: Any, tmp_path: Path, version: str, config: dict[str, Any], has_cdi: bool
    ) -> None:
        runtime("containerd", version).info(config)
        answer = found(tmp_path)
        assert answer is not None
        assert (answer.name, answer.version, answer.has_cdi) == ("containerd", version.removeprefix("v"), has_cdi)

    def test_crio_on_its_socket(self, runtime: Any, tmp_path: Path) -> None:
        runtime("cri-o", "1.34.2", "run/crio/crio.sock").handlers("", "crun")
        answer = found(tmp_path)
        assert answer is not None
        assert answer.has_cdi
        assert answer.handlers == ("crun",)

    @pytest.mark.parametrize(
        ("config", "has_nvidia"),
        [
            ({"containerd": {"runtimes": {"runc": {}, "nvidia": {}}}}, True),
            (
                {
                    "containerd": {
                        "runtimes": {"runc": {"options": {"BinaryName": "/usr/bin/nvidia-container-runtime"}}}
                    }
                },
                True,
            ),
            ({"containerd": {"runtimes": {"runc": {"options": {"BinaryName": ""}}}}}, False),
        ],
    )
    def test_nvidias_runtime_is_seen(
        self, runtime: Any, tmp_path: Path, config: dict[str, Any], has_nvidia: bool
    ) -> None:
        runtime("containerd", "1.7.35").info(config)
        answer = found(tmp_path)
        assert answer is not None
        assert answer.has_nvidia_handler is has_nvidia

    def test_no_socket_or_no_answer_is_none(self, tmp_path: Path) -> None:
        assert found(tmp_path) is None
        socket = tmp_path / "run/containerd/containerd.sock"
        socket.parent.mkdir(parents=True)
        socket.touch()
        assert found(tmp_path) is None


def runtime_with(*, cdi: bool, handlers: tuple[str, ...] = ("runc",)) -> ContainerRuntime:
    nvidia = "nvidia" in handlers
    return ContainerRuntime(
        name="containerd", version="2.0.0", has_cdi=cdi, handlers=handlers, has_nvidia_handler=nvidia
    )


def config(strategy: str = "") -> PluginConfig:
    return resolve_config({"flags": {"plugin": {"deviceListStrategy": strategy}}} if strategy else {})


class TestStrategy:
    def test_is_cdi_where_the_runtime_has_it_and_nobody_chose(self) -> None:
        assert with_strategy(config(), runtime_with(cdi=True)).device_list_strategy == ("cdi-cri",)
        assert with_strategy(config(), runtime_with(cdi=False)).device_list_strategy == ("envvar",)
        assert with_strategy(config(), None).device_list_strategy == ("envvar",)

    @pytest.mark.parametrize("how", ["file", "flag", "environment"])
    def test_is_the_users_if_there_is_one(self, how: str) -> None:
        chosen = {
            "file": lambda: config("envvar"),
            "flag": lambda: resolve_config({}, {}, {"--device-list-strategy": "envvar"}),
            "environment": lambda: resolve_config({}, {"DEVICE_LIST_STRATEGY": "envvar"}),
        }[how]()
        assert with_strategy(chosen, runtime_with(cdi=True)).device_list_strategy == ("envvar",)

    @pytest.mark.parametrize(
        ("strategy", "runtime", "words"),
        [
            ("envvar", runtime_with(cdi=True), "no NVIDIA runtime"),
            ("envvar", runtime_with(cdi=False), "container toolkit"),
            ("cdi-cri", runtime_with(cdi=False), "no CDI"),
            ("cdi-cri,envvar", runtime_with(cdi=False), "container toolkit"),
            ("envvar", runtime_with(cdi=False, handlers=("nvidia", "runc")), ""),
            ("cdi-annotations", runtime_with(cdi=False), "no CDI"),
            ("cdi-annotations", runtime_with(cdi=False, handlers=("nvidia", "runc")), ""),
            ("cdi-cri,envvar", runtime_with(cdi=True), ""),
            ("envvar", runtime_with(cdi=True, handlers=()), ""),
            ("envvar", None, ""),
        ],
    )
    def test_that_nothing_carries_out_is_a_problem(
        self, strategy: str, runtime: ContainerRuntime | None, words: str
    ) -> None:
        problem = strategy_problem(config(strategy), runtime)
        assert words in problem
        assert bool(problem) == bool(words)


class TestWatch:
    def test_asks_now_and_then_and_tells_once(self) -> None:
        log: list[str] = []
        now, asked = [0.0], [0]
        answers: list[ContainerRuntime | None] = [None, runtime_with(cdi=True)]

        def find() -> ContainerRuntime | None:
            asked[0] += 1
            return answers[min(asked[0], len(answers)) - 1]

        watch = RuntimeWatch(find, log.append, lambda: now[0])
        assert watch.apply(config())[0].device_list_strategy == ("envvar",)
        now[0] = 1.0
        watch.apply(config())
        assert asked[0] == 1
        now[0] = 20.0
        for _ in range(3):
            assert watch.apply(config())[0].device_list_strategy == ("cdi-cri",)
        assert asked[0] == 2
        assert len(log) == 2
        assert "by CDI" in log[1]


def test_the_validator_says_which_way_this_node_uses(runtime: Any, tmp_path: Path) -> None:
    host = HostRoot("/", files=tmp_path)
    assert check_runtime(host, PluginConfig()).outcome == "does not apply"
    runtime("containerd", "2.1.0").handlers("runc")
    way = check_runtime(host, PluginConfig())
    assert (way.outcome, "containerd 2.1.0 with CDI" in way.evidence) == ("pass", True)
    assert "not installed" in way.evidence
    refused = check_runtime(host, config("envvar"))
    assert refused.outcome == "fail"
    assert "deviceListStrategy" in refused.remedy


def test_a_runtime_that_breaks_off_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="didn't answer"):
        ask_container_runtime(tmp_path / "nothing.sock")
