"""Containers that are processes of this machine: their own session, their devices by environment, their limits by
cgroup.

The kubelet starts them through `ProcessContainerRuntime`, as it does simulated ones; `process.runtime` reads their
lines. When this process dies, they die with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from windlass.embedded.controllers.objects import key_of, uid_of
from windlass.embedded.runtime.container_runtime import ContainerExit, ContainerLaunch, ContainerStartError
from windlass.embedded.runtime.environment import expand
from windlass.embedded.runtime.pod_logs import Line
from windlass.embedded.runtime.process.cgroups import Cgroup, Cgroups
from windlass.model.errors import InputError
from windlass.model.quantity import milli_value, whole_value
from windlass.model.unstructured import Unstructured

LAUNCHER = Path(__file__).with_name("launcher.py")
MAX_LOG_BYTES = 10 << 20
POLL_SECONDS = 0.1
_INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
)
NO_COMMAND = (
    "windlass up --gpus real runs a container's command as a process of this machine and runs no images: "
    "give container {name} a `command` that exists here"
)


class LocalProcess:
    """One started command, and the lines that it has printed."""

    def __init__(
        self, popen: subprocess.Popen[bytes], launch: ContainerLaunch, group: Cgroup | None, now: float
    ) -> None:
        self.launch, self.started_at = launch, now
        self._popen, self._group = popen, group
        self._ended: ContainerExit | None = None
        self._lines: list[Line] = []
        self._rest = b""
        self._size = self._dropped = 0
        self._watch: int | None = None
        assert popen.stdout is not None
        os.set_blocking(popen.stdout.fileno(), False)

    def poll(self, now: float) -> ContainerExit | None:
        if self._ended is None:
            code = self._popen.poll()
            if code is not None:
                self._ended = self._end(code)
        return self._ended

    def next_poll_at(self) -> float | None:
        """Only where the system can't tell by itself that a process has ended."""
        return None if self._watch is not None else time.time() + POLL_SECONDS

    def terminate(self, now: float) -> None:
        self._signal(signal.SIGTERM)

    def kill(self, now: float) -> None:
        self._signal(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(0.2)  # the kernel needs a moment; what hangs in a driver ends when it ends
        self.poll(now)

    def lines(self) -> tuple[Sequence[Line], bool]:
        return self._lines, self._ended is not None

    def watch(self, on_exit: Callable[[], None]) -> None:
        """Read output as it comes, and call `wake` when the process has ended; on the running loop."""
        loop = asyncio.get_running_loop()
        assert self._popen.stdout is not None
        loop.add_reader(self._popen.stdout.fileno(), self._read)
        try:
            self._watch = os.pidfd_open(self._popen.pid)
        except (OSError, AttributeError):
            return
        watch = self._watch

        def ended() -> None:
            loop.remove_reader(watch)
            os.close(watch)
            self.poll(time.time())  # its pod may have been given up already, and would not ask again
            on_exit()

        loop.add_reader(self._watch, ended)

    def _signal(self, number: signal.Signals) -> None:
        """To the command and everything that it has started."""
        if self._popen.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, number)

    def _end(self, code: int) -> ContainerExit:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)  # what it has left behind
        self._read()
        self._close()
        if self._rest:
            self._take(self._rest + b"\n")
            self._rest = b""
        killed = self._group is not None and self._group.was_oom_killed()
        if self._group is not None:
            self._group.remove()
        if code < 0:
            reason = "OOMKilled" if killed else ""
            return ContainerExit(128 - code, reason, at=time.time())
        return ContainerExit(code, "OOMKilled" if killed and code else "", at=time.time())

    def _close(self) -> None:
        stream = self._popen.stdout
        if stream is None or stream.closed:
            return
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_reader(stream.fileno())
        stream.close()

    def _read(self) -> None:
        """Everything that is there now."""
        stream = self._popen.stdout
        while stream is not None and not stream.closed:
            try:
                data = os.read(stream.fileno(), 1 << 16)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._close()
                return
            *whole, self._rest = (self._rest + data).split(b"\n")
            for line in whole:
                self._take(line + b"\n")

    def _take(self, line: bytes) -> None:
        self._lines.append((time.time(), line))
        self._size += len(line)
        if self._size > MAX_LOG_BYTES:
            half = len(self._lines) // 2
            self._size -= sum(len(each) for _, each in self._lines[:half])
            # A new list: whoever follows the old one has read it by its length.
            self._lines = [(time.time(), b"... earlier lines were dropped ...\n"), *self._lines[half:]]


class ProcessContainerRuntime:
    pulls_images = False

    def __init__(
        self,
        folder: Path,
        enqueue: Callable[[str], None],
        cgroups: Cgroups | None = None,
        mps_environment: Mapping[str, str] | None = None,
    ) -> None:
        """`wake` gets the key of a pod of which a process has ended; `mps` is the environment of shared GPUs."""
        self._folder, self._wake, self._mps = folder, enqueue, dict(mps_environment or {})
        self.cgroups = cgroups or Cgroups()
        self._runs: dict[tuple[str, str], list[LocalProcess]] = {}

    def pull_seconds(self, node: str, container: Unstructured) -> float | None:
        return None

    def start(self, launch: ContainerLaunch, now: float) -> LocalProcess:
        container = launch.container
        values = self.environment(launch)
        command = [
            expand(str(word), values)
            for word in (*(container.get("command") or ()), *(container.get("args") or ()))
        ]
        if not container.get("command"):
            raise ContainerStartError("CreateContainerError", NO_COMMAND.format(name=container["name"]))
        if shutil.which(command[0], path=values.get("PATH")) is None:
            said = f'exec: "{command[0]}": executable file not found in $PATH'
            raise ContainerStartError("CreateContainerError", said)
        group = self._limits(launch)
        files = ":".join(map(str, group.procs)) if group is not None else ""
        try:
            popen = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), files, "--", *command],
                cwd=self.working_directory(launch),
                env=values,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ContainerStartError("CreateContainerError", str(error)) from None
        process = LocalProcess(popen, launch, group, now)
        key = key_of(launch.pod)
        process.watch(lambda: self._wake(key))
        runs = self._runs.setdefault((uid_of(launch.pod), container["name"]), [])
        runs[:] = [*runs[-1:], process]
        return process

    def resume(self, launch: ContainerLaunch, started_at: float, now: float) -> LocalProcess | None:
        return None  # processes die with the one that started them

    def remove_pod(self, pod: Unstructured) -> None:
        for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
            self._runs.pop((uid_of(pod), container["name"]), None)
        shutil.rmtree(self._folder / uid_of(pod), ignore_errors=True)

    def processes(self, pod: Unstructured, container: str) -> list[LocalProcess]:
        return self._runs.get((uid_of(pod), container), [])

    def all_processes(self) -> list[LocalProcess]:
        return [process for runs in self._runs.values() for process in runs]

    def working_directory(self, launch: ContainerLaunch) -> Path:
        """The command's folder: the one that the container names, else an empty one of its pod's own."""
        given = launch.container.get("workingDir")
        if given:
            if not Path(given).is_dir():
                raise ContainerStartError(
                    "CreateContainerError", f"workingDir {given} is no folder of this machine"
                )
            return Path(given)
        own = self._folder / uid_of(launch.pod)
        own.mkdir(parents=True, exist_ok=True)
        return own

    def environment(self, launch: ContainerLaunch) -> dict[str, str]:
        """Little of this process's own, then the pod's, then its devices: none, unless it asked for some."""
        values = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        values["HOSTNAME"] = str(launch.pod["spec"].get("hostname") or launch.pod["metadata"]["name"])
        values |= launch.environment
        visible = ",".join(launch.devices)
        values["CUDA_VISIBLE_DEVICES"], values["NVIDIA_VISIBLE_DEVICES"] = visible, visible or "void"
        if launch.devices:
            values |= self._mps
        return values

    def _limits(self, launch: ContainerLaunch) -> Cgroup | None:
        limits = (launch.container.get("resources") or {}).get("limits") or {}
        try:
            memory = whole_value(limits["memory"]) if "memory" in limits else 0
            milli = milli_value(limits["cpu"]) if "cpu" in limits else 0
        except InputError:
            return None
        name = f"{uid_of(launch.pod)}-{launch.container['name']}-{launch.attempt}"
        return self.cgroups.create(name, memory, milli)
