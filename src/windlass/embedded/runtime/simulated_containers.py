"""Simulated containers: they take time, print lines and exit as configured, and run nothing on this machine.

The kubelet runs pods on `SimulatedContainerRuntime`; `SimulatedKubeletApi` answers `kubectl logs` and `kubectl
exec`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from windlass.embedded.api.numbers import parse_decimal
from windlass.embedded.api.timestamps import format_time
from windlass.embedded.controllers.objects import key_of, name_of, uid_of
from windlass.embedded.runtime.behaviour import PROGRESS_SECONDS, Behaviour, behaviour_of, utilization_of
from windlass.embedded.runtime.container_runtime import ContainerExit, ContainerLaunch
from windlass.embedded.runtime.device_manager import FRACTIONAL_GPU, AllocatableDevice, DeviceManager
from windlass.embedded.runtime.kubelet import NodeFleet
from windlass.embedded.runtime.kubelet_api import (
    STDERR,
    STDOUT,
    ExecRequest,
    ExecSession,
    KubeletApiError,
    LogRequest,
)
from windlass.embedded.runtime.nvidia_smi import VisibleDevice, nvidia_smi
from windlass.embedded.runtime.pod_logs import Line, select_container, select_run, stream_lines
from windlass.embedded.runtime.simulated_shell import CommandResult, ShellEnvironment, run_command
from windlass.model.unstructured import Unstructured

MAX_LOG_LINES = 5000
MAX_ECHOES = 8
"""Messages of a command's input that wait to be sent back."""


@dataclass(frozen=True)
class Delays:
    """Simulated durations in seconds: long enough to be seen, short enough not to be waited for."""

    pull: float = 0.5
    start: float = 0.2
    stop: float = 0.3


@dataclass(slots=True)
class SimulatedProcess:
    launch: ContainerLaunch
    behaviour: Behaviour
    started_at: float
    stop_seconds: float = 0.0
    stopped: ContainerExit | None = None

    def poll(self, now: float) -> ContainerExit | None:
        if self.stopped is not None and self.stopped.at is not None:
            return self.stopped if now >= self.stopped.at else None
        ends = self.next_poll_at()
        return ContainerExit(self.behaviour.exit_code, at=ends) if ends is not None and now >= ends else None

    def next_poll_at(self) -> float | None:
        if self.stopped is not None:
            return self.stopped.at
        return None if self.behaviour.run_seconds is None else self.started_at + self.behaviour.run_seconds

    def terminate(self, now: float) -> None:
        ends = self.next_poll_at()
        if ends is None or ends > now + self.stop_seconds:
            self.stopped = ContainerExit(143, signal=0, at=now + self.stop_seconds)

    def kill(self, now: float) -> None:
        if self.poll(now) is None:
            self.stopped = ContainerExit(137, at=now)

    def lines(self, now: float) -> tuple[list[Line], bool]:
        """All lines until now, and whether there will be no more."""
        ended = self.poll(now)
        until = min(now, ended.at) if ended is not None and ended.at is not None else now
        pod = self.launch.pod
        found: list[Line] = []
        for after, text in self.behaviour.output:
            if self.started_at + after <= until:
                found += [(self.started_at + after, line.encode()) for line in text.splitlines(keepends=True)]
        if self.behaviour.prints_progress:
            name, gpus = self.launch.container["name"], len(self.launch.devices)
            first_line = f"windlass sandbox: container {name} of {key_of(pod)} is simulated; it holds {gpus} GPU(s)\n"
            found.append((self.started_at, first_line.encode()))
            steps = min(MAX_LOG_LINES, int((until - self.started_at) // PROGRESS_SECONDS))
            utilization = f"  gpu {utilization_of(pod)}%" if gpus else ""
            for step in range(1, steps + 1):
                text = f"step {step * 10:>6}  loss {2.5 / (1 + step / 20):.4f}{utilization}\n"
                found.append((self.started_at + step * PROGRESS_SECONDS, text.encode()))
        if (
            self.stopped is not None
            and self.stopped.code == 143
            and self.behaviour.prints_progress
            and ended is not None
        ):
            found.append((until, b"received SIGTERM, stopping\n"))
        return found, ended is not None


class SimulatedContainerRuntime:
    pulls_images = True

    def __init__(self, fleet: NodeFleet, delays: Delays | None = None) -> None:
        self._fleet, self._delays = fleet, delays or Delays()
        self._images: set[tuple[str, str]] = set()
        self._runs: dict[tuple[str, str], list[SimulatedProcess]] = {}

    def pull_seconds(self, node: str, container: Unstructured) -> float | None:
        image = (node, str(container.get("image") or ""))
        if image in self._images and container.get("imagePullPolicy") != "Always":
            return None
        known = image in self._images
        self._images.add(image)
        return self._delays.pull / 4 if known else self._delays.pull

    def start(self, launch: ContainerLaunch, now: float) -> SimulatedProcess:
        return self._start(launch, now, now)

    def resume(self, launch: ContainerLaunch, started_at: float, now: float) -> SimulatedProcess | None:
        return self._start(launch, started_at or now, now)

    def _start(self, launch: ContainerLaunch, started_at: float, now: float) -> SimulatedProcess:
        inits = launch.pod["spec"].get("initContainers") or ()
        is_init = any(
            container["name"] == launch.container["name"] and container.get("restartPolicy") != "Always"
            for container in inits
        )
        behaviour = behaviour_of(launch.pod, launch.container, self.shell_environment(launch, now), is_init)
        process = SimulatedProcess(launch, behaviour, started_at, self._delays.stop)
        runs = self._runs.setdefault((uid_of(launch.pod), launch.container["name"]), [])
        runs[:] = [*runs[-1:], process]
        return process

    def remove_pod(self, pod: Unstructured) -> None:
        for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
            self._runs.pop((uid_of(pod), container["name"]), None)

    def processes(self, pod: Unstructured, container: str) -> list[SimulatedProcess]:
        """The previous and the current one."""
        return self._runs.get((uid_of(pod), container), [])

    def shell_environment(self, launch: ContainerLaunch, now: float) -> ShellEnvironment:
        pod = launch.pod
        hostname = str(pod["spec"].get("hostname") or name_of(pod))
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOSTNAME": hostname,
            **launch.environment,
        }
        if launch.devices:
            environment.setdefault("NVIDIA_VISIBLE_DEVICES", ",".join(launch.devices))
        machine = self._fleet.device_manager(str(pod["spec"].get("nodeName") or ""))
        allocated = machine.allocated_to(key_of(pod)) if machine is not None else ()
        own = [device for device in allocated if machine is not None and machine.uuid_of(device) in launch.devices]
        visible = (
            [_visible_device(machine, at, device, pod) for at, device in enumerate(own)] if machine is not None else []
        )
        return ShellEnvironment(
            hostname, environment, lambda arguments: nvidia_smi(arguments, visible), format_time(now)
        )


def _visible_device(machine: DeviceManager, number: int, unit: AllocatableDevice, pod: Unstructured) -> VisibleDevice:
    """In a container, GPUs are numbered from 0, whatever their index on the node."""
    device = machine.devices[unit.gpu_index]
    utilization = utilization_of(pod)
    memory, share = device.memory_mib, ""
    if unit.profile:
        memory = _profile_mib(unit.profile, memory)
    elif unit.resource == FRACTIONAL_GPU or machine.replicas > 1:
        share = "shared with other pods" if unit.resource == FRACTIONAL_GPU else f"one of {machine.replicas} replicas"
    fault = machine.unhealthy.get(unit.gpu_index)
    return VisibleDevice(
        index=number,
        name=device.model.replace("-", " "),
        uuid=machine.uuid_of(unit),
        parent=machine.uuids[unit.gpu_index] if unit.profile else "",
        profile=unit.profile,
        memory_mib=memory,
        used_mib=memory * utilization // 110,
        utilization=0 if fault else utilization,
        share=share,
        fault=f"Xid {fault.xid}: {fault.message}" if fault is not None else "",
    )


def _profile_mib(profile: str, memory: int) -> int:
    """Memory of a profile such as `1g.10gb`, less what the driver reserves."""
    gigabytes = profile.partition(".")[2].partition("gb")[0]
    size = parse_decimal(gigabytes)
    return memory if size is None else min(memory, size * 1024 * 97 // 100)


class SimulatedExec:
    """A command in a simulated container: its output is known at once, only its duration is waited for."""

    def __init__(self, result: CommandResult, has_input: bool = False) -> None:
        self._result = result
        self._ended = asyncio.Event()
        self._echoes: asyncio.Queue[bytes] = asyncio.Queue(MAX_ECHOES)
        if result.echoes_stdin and not has_input:
            self._echoes.put_nowait(b"")

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        try:
            if self._result.text:
                yield STDOUT, self._result.text.encode()
            if self._result.errors:
                yield STDERR, self._result.errors.encode()
            while self._result.echoes_stdin and (data := await self._echoes.get()):
                yield STDOUT, data
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._result.seconds):
                    await self._ended.wait()
        finally:
            self._ended.set()

    async def write(self, data: bytes) -> None:
        """Waits while the client does not read what comes back."""
        if self._result.echoes_stdin and data:
            await self._echoes.put(data)

    async def end_input(self) -> None:
        await self._echoes.put(b"")

    def resize(self, width: int, height: int) -> None:
        """There is no terminal."""

    async def exit_code(self) -> int:
        await self._ended.wait()
        return self._result.exit_code

    async def close(self) -> None:
        with contextlib.suppress(asyncio.QueueFull):  # then the output is not waiting for more
            self._echoes.put_nowait(b"")
        self._ended.set()


class SimulatedKubeletApi:
    def __init__(
        self,
        container_runtime: SimulatedContainerRuntime,
        fleet: NodeFleet,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._containers, self._fleet, self._clock = container_runtime, fleet, clock

    def logs(self, pod: Unstructured, request: LogRequest) -> AsyncIterator[bytes]:
        container = select_container(pod, request.container)["name"]
        self._check_reachable(pod)
        runs = self._containers.processes(pod, container)
        process = select_run(runs, pod, container, request.previous)

        def read() -> tuple[Sequence[Line], bool]:
            return process.lines(self._clock())

        return stream_lines(read, request, self._clock())

    async def exec(self, pod: Unstructured, request: ExecRequest) -> ExecSession:
        process = self._running(pod, request)
        environment = self._containers.shell_environment(process.launch, self._clock())
        return SimulatedExec(run_command(request.command, environment), request.stdin)

    async def attach(self, pod: Unstructured, request: ExecRequest) -> ExecSession:
        process = self._running(pod, request)
        lines, _ = process.lines(self._clock())
        return SimulatedExec(CommandResult([(0.0, b"".join(line for _, line in lines).decode())], seconds=None))

    def _running(self, pod: Unstructured, request: ExecRequest) -> SimulatedProcess:
        container = select_container(pod, request.container)["name"]
        self._check_reachable(pod)
        runs = self._containers.processes(pod, container)
        if not runs or runs[-1].poll(self._clock()) is not None:
            message = f'unable to upgrade connection: container not found ("{container}")'
            raise KubeletApiError(500, "InternalError", message)
        return runs[-1]

    def _check_reachable(self, pod: Unstructured) -> None:
        node = str(pod["spec"].get("nodeName") or "")
        if not node:
            raise KubeletApiError(400, "BadRequest", f"pod {name_of(pod)} does not have a host assigned")
        if self._fleet.is_down(node):
            message = f"the kubelet of node {node} can't be reached: connect: connection refused"
            raise KubeletApiError(500, "InternalError", message)
