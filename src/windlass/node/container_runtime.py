"""The node's container runtime: how a container gets its devices here, by CDI or by NVIDIA's runtime.

The plugin process asks the runtime itself (CRI's Version and Status) and chooses the `deviceListStrategy` where the
configuration leaves it open: CDI where the runtime has it, since then nothing else is needed on the node. A strategy
that nothing on the node carries out makes its devices unhealthy, with the reason; pods would start without a GPU.
The validator prints the same answer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from windlass.node.backend.protocol import DeviceError
from windlass.node.host_root import HostRoot
from windlass.node.unary_call import call_unary
from windlass.sharing.plugin_config import PluginConfig

SOCKETS = (
    *("/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock"),
    *("/run/k0s/containerd.sock", "/var/snap/microk8s/common/run/containerd.sock"),
)
NVIDIA_RUNTIMES = ("/usr/bin/nvidia-container-runtime", "/usr/local/nvidia/toolkit/nvidia-container-runtime")
CDI_STRATEGY = "cdi-cri"
CONTAINER_GPUS_FILE = "container-gpus"
"""In the agent's state folder: the way, in words, from the plugin for the sidecar."""
NOTHING_CARRIES_OUT, DEVICES_COME = "nothing carries out", "devices come"
"""What is said of a node without a way for GPUs into containers, and of one with; `doctor` reads it."""
KNOWN_SECONDS, UNKNOWN_SECONDS = 300.0, 15.0
"""After how long the runtime is asked again, once it has answered and before."""
_SERVICE, _TIMEOUT_SECONDS = "/runtime.v1.RuntimeService", 5.0
_VERBOSE = b"\x08\x01"
_VARINT, _LENGTH_DELIMITED, _FIXED_BYTES = 0, 2, {1: 8, 5: 4}


class ContainerRuntime(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """`containerd`, `cri-o`."""
    version: str
    has_cdi: bool
    handlers: tuple[str, ...] = ()
    """Empty if the runtime doesn't list them."""
    has_nvidia_handler: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def find_container_runtime(host: HostRoot) -> ContainerRuntime | None:
    """The first runtime that answers on one of the usual sockets."""
    for socket in SOCKETS:
        path = host.host_file(socket)
        if path.exists():
            try:
                return ask_container_runtime(path)
            except (DeviceError, ValueError, IndexError):
                continue
    return None


def ask_container_runtime(socket: Path) -> ContainerRuntime:
    """A `DeviceError` if it doesn't answer."""
    version = dict(_fields(call_unary(socket, f"{_SERVICE}/Version", b"", _TIMEOUT_SECONDS)))
    name, number = version.get(2, b"").decode(), version.get(3, b"").decode().removeprefix("v")
    status = list(_fields(call_unary(socket, f"{_SERVICE}/Status", _VERBOSE, _TIMEOUT_SECONDS)))
    info = dict(_entry(value) for field, value in status if field == 2)
    config = _config(info.get("config", ""))
    runtimes = (config.get("containerd") or {}).get("runtimes") or {}
    listed = {dict(_fields(value)).get(1, b"").decode() for field, value in status if field == 3}
    handlers = tuple(sorted({*listed, *runtimes} - {""}))
    return ContainerRuntime(
        name=name,
        version=number,
        has_cdi=_has_cdi(name, number, config),
        handlers=handlers,
        has_nvidia_handler=any("nvidia" in handler for handler in handlers) or _runs_nvidia(runtimes),
    )


def with_strategy(config: PluginConfig, runtime: ContainerRuntime | None) -> PluginConfig:
    """The configuration with CDI as its strategy, if it names none and the runtime has CDI."""
    if config.strategy_is_given or runtime is None or not runtime.has_cdi:
        return config
    return msgspec.structs.replace(config, device_list_strategy=(CDI_STRATEGY,))


def strategy_problem(config: PluginConfig, runtime: ContainerRuntime | None) -> str:
    """Why containers would get no GPU; empty if a strategy works, or the runtime could not be asked."""
    if runtime is None or config.pass_device_specs or (not runtime.handlers and not runtime.has_cdi):
        return ""
    strategies = config.device_list_strategy
    if runtime.has_cdi and any(strategy.startswith("cdi-") for strategy in strategies):
        return ""
    others = [strategy for strategy in strategies if not strategy.startswith("cdi-")]
    # NVIDIA's runtime reads the annotations itself, also where containerd has no CDI.
    by_nvidia = others or "cdi-annotations" in strategies
    if by_nvidia and (runtime.has_nvidia_handler or not runtime.handlers):
        return ""
    named = ", ".join(strategies)
    if runtime.has_cdi:
        remedy = "leave deviceListStrategy out, or set it to cdi-cri"
    else:
        remedy = "install NVIDIA's container toolkit, or enable CDI in the runtime and set deviceListStrategy: cdi-cri"
    have = "no NVIDIA runtime" if others else "no CDI"
    return f"{NOTHING_CARRIES_OUT} deviceListStrategy {named}: {runtime} has {have}; {remedy}"


def describe_way(config: PluginConfig, runtime: ContainerRuntime | None) -> str:
    """Which way devices take into containers on this node."""
    if runtime is None:
        return f"no container runtime answers; deviceListStrategy {', '.join(config.device_list_strategy)}"
    cdi = "with CDI" if runtime.has_cdi else "without CDI"
    handlers = f"handlers {', '.join(runtime.handlers)}" if runtime.handlers else "no list of handlers"
    by_cdi = [strategy for strategy in config.device_list_strategy if strategy.startswith("cdi-")]
    way = "by CDI" if by_cdi and runtime.has_cdi else "by NVIDIA's runtime"
    return f"{runtime} {cdi}, {handlers}: {DEVICES_COME} {way} ({', '.join(config.device_list_strategy)})"


class RuntimeWatch:
    """Remembers the runtime's answer, and asks again now and then: runtimes are upgraded under a running agent."""

    def __init__(
        self,
        find: Callable[[], ContainerRuntime | None],
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find, self._log, self._clock = find, log, clock
        self._runtime: ContainerRuntime | None = None
        self._ask_at = 0.0
        self._logged = ""

    @property
    def described(self) -> str:
        """What `apply` last found, in words."""
        return self._logged

    def apply(self, config: PluginConfig) -> tuple[PluginConfig, str]:
        """The configuration with its strategy, and why that can't work."""
        if self._clock() >= self._ask_at:
            self._runtime = self._find() or self._runtime
            self._ask_at = self._clock() + (KNOWN_SECONDS if self._runtime else UNKNOWN_SECONDS)
        config = with_strategy(config, self._runtime)
        problem = strategy_problem(config, self._runtime)
        line = problem or describe_way(config, self._runtime)
        if line != self._logged:
            self._log(line)
            self._logged = line
        return config, problem


def _has_cdi(name: str, version: str, config: Mapping[str, Any]) -> bool:
    """CRI-O has it since 1.23, containerd since 1.7: there by a setting, always since 2.0 unless it says otherwise."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isascii() and part.isdigit())
    if name == "cri-o":
        return numbers >= (1, 23)
    if name != "containerd":
        return False
    return bool(config.get("enableCDI", numbers >= (2, 0)))


def _runs_nvidia(runtimes: Mapping[str, Any]) -> bool:
    options = [runtime.get("options") or {} for runtime in runtimes.values() if isinstance(runtime, Mapping)]
    return any("nvidia-container-runtime" in str(option.get("BinaryName", "")) for option in options)


def _config(text: str) -> Mapping[str, Any]:
    try:
        config = json.loads(text or "{}")
    except ValueError:
        return {}
    return config if isinstance(config, dict) else {}


def _entry(data: bytes) -> tuple[str, str]:
    """An entry of a map from text to text."""
    fields = dict(_fields(data))
    return fields.get(1, b"").decode(), fields.get(2, b"").decode()


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a protobuf message that have a length: CRI's messages are large, and few fields are needed."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            _, at = _varint(data, at)
        elif kind == _LENGTH_DELIMITED:
            length, at = _varint(data, at)
            yield key >> 3, data[at : at + length]
            at += length
        else:
            at += _FIXED_BYTES[kind] if kind in _FIXED_BYTES else len(data)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
