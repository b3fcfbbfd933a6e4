"""Containers as processes of this machine: each with its own session, devices by environment, limits by cgroup.

The kubelet starts them through `ProcessContainerRuntime`, as it does simulated ones; `kubelet_api` reads their
output. A `launcher` over each kills all that it has started, when it ends and when this process dies.
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
from windlass.embedded.runtime.environment import expand_all
from windlass.embedded.runtime.process.cgroups import Cgroup, Cgroups
from windlass.embedded.runtime.process.leftovers import OWNER_VARIABLE, process_identity
from windlass.embedded.runtime.process.log_buffer import LogBuffer
from windlass.model.errors import InputError
from windlass.model.quantity import milli_value, whole_value
from windlass.model.unstructured import Unstructured

LAUNCHER = Path(__file__).with_name("launcher.py")
CHUNK_BYTES = 64 << 10
MAX_PIPE_BYTES = 1 << 20
"""What a pipe may still hold when its process has ended."""
BURST_BYTES, BURST_SECONDS = 1 << 20, 0.1
"""After so many bytes of output, how long reading pauses."""
POLL_SECONDS = 0.1
_INHERITED = (*("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH"),)
NO_COMMAND = (
    "windlass up --gpus real runs a container's command as a process of this machine and runs no images: "
    "give container {name} a `command` that exists here"
)


class LocalProcess:
    """A started command under its `launcher`, and what it has printed."""

    def __init__(
        self, popen: subprocess.Popen[bytes], launch: ContainerLaunch, group: Cgroup | None, now: float
    ) -> None:
        self.launch, self.started_at, self.log = launch, now, LogBuffer()
        self.cgroup = group
        self._popen = popen
        self._ended: ContainerExit | None = None
        self._read_bytes = 0
        self._pidfd: int | None = None
        assert popen.stdout is not None
        os.set_blocking(popen.stdout.fileno(), False)

    @property
    def is_over(self) -> bool:
        return self._ended is not None

    def poll(self, now: float) -> ContainerExit | None:
        if self._ended is None:
            code = self._popen.poll()
            if code is not None:
                self._ended = self._on_exit(code)
        return self._ended

    def next_poll_at(self) -> float | None:
        """None if a pidfd signals the end."""
        return None if self._pidfd is not None else time.time() + POLL_SECONDS

    def terminate(self, now: float) -> None:
        """To the command and what shares its process group; the launcher lets it pass."""
        if self._popen.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, signal.SIGTERM)

    def kill(self, now: float) -> None:
        """Everything that the command has started, in whatever session."""
        if self._popen.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._popen.pid, signal.SIGUSR1)  # the launcher kills its children, and ends
            if self.cgroup is not None:
                self.cgroup.kill(self._popen.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(0.2)  # a process that hangs in a driver may take longer
        self.poll(now)

    def watch(self, on_exit: Callable[[], None]) -> None:
        """Reads output as it arrives, and calls `on_exit` when the process has ended; on the running loop."""
        loop = asyncio.get_running_loop()
        self._start_reading()
        try:
            self._pidfd = os.pidfd_open(self._popen.pid)
        except (OSError, AttributeError):
            return
        pidfd = self._pidfd

        def ended() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            self.poll(time.time())  # its pod may be gone, and nothing else would reap it
            on_exit()

        loop.add_reader(self._pidfd, ended)

    def _on_exit(self, code: int) -> ContainerExit:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)  # children that are left if the launcher itself was killed
        if self.cgroup is not None:
            self.cgroup.kill()
        for _ in range(MAX_PIPE_BYTES // CHUNK_BYTES):
            if not self._read_chunk():
                break
        self._close()
        was_oom_killed = self.cgroup is not None and self.cgroup.was_oom_killed()
        if self.cgroup is not None:
            self.cgroup.remove()
        code = exit_code(code)
        return ContainerExit(code, "OOMKilled" if was_oom_killed and code else "", at=time.time())

    def _start_reading(self) -> None:
        stream = self._popen.stdout
        if stream is not None and not stream.closed:
            self._read_bytes = 0
            asyncio.get_running_loop().add_reader(stream.fileno(), self._read)

    def _close(self) -> None:
        stream = self._popen.stdout
        if stream is None or stream.closed:
            return
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_reader(stream.fileno())
        stream.close()

    def _read(self) -> None:
        """One chunk in a turn of the loop. A command that prints faster than is kept has to wait for the pipe."""
        self._read_chunk()
        stream = self._popen.stdout
        if self._read_bytes > BURST_BYTES and stream is not None and not stream.closed:
            loop = asyncio.get_running_loop()
            loop.remove_reader(stream.fileno())
            loop.call_later(BURST_SECONDS, self._start_reading)

    def _read_chunk(self) -> bool:
        """Whether there was something to read."""
        stream = self._popen.stdout
        if stream is None or stream.closed:
            return False
        try:
            data = os.read(stream.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self._read_bytes += len(data)
            self.log.append(time.time(), data)
        else:
            self._close()
        return bool(data)


def exit_code(code: int) -> int:
    """The exit code of a command, from that of its launcher; the signal that tells a launcher to kill is SIGKILL."""
    if code == -signal.SIGUSR1:
        return 128 + signal.SIGKILL
    return 128 - code if code < 0 else code


def launcher_command(command: Sequence[str], cgroup: Cgroup | None) -> list[str]:
    files = ":".join(map(str, cgroup.procs)) if cgroup is not None else ""
    return [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), files, "--", *command]


class ProcessContainerRuntime:
    pulls_images = False

    def __init__(
        self,
        folder: Path,
        enqueue: Callable[[str], None],
        cgroups: Cgroups | None = None,
        mps_environment: Mapping[str, str] | None = None,
    ) -> None:
        """`enqueue` gets the key of a pod whose process has ended; `mps_environment` is for shared GPUs."""
        self._folder, self._enqueue, self._mps_environment = folder, enqueue, dict(mps_environment or {})
        self.cgroups = cgroups or Cgroups()
        self._identity = process_identity(os.getpid())
        self._runs: dict[tuple[str, str], list[LocalProcess]] = {}

    def pull_seconds(self, node: str, container: Unstructured) -> float | None:
        return None

    def start(self, launch: ContainerLaunch, now: float) -> LocalProcess:
        container = launch.container
        environment = self.environment(launch)
        command = expand_all([*(container.get("command") or ()), *(container.get("args") or ())], environment)
        if not container.get("command"):
            raise ContainerStartError("CreateContainerError", NO_COMMAND.format(name=container["name"]))
        if shutil.which(command[0], path=environment.get("PATH")) is None:
            message = f'exec: "{command[0]}": executable file not found in $PATH'
            raise ContainerStartError("CreateContainerError", message)
        cgroup = self._create_cgroup(launch)
        try:
            popen = subprocess.Popen(
                launcher_command(command, cgroup),
                cwd=self.working_directory(launch),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ContainerStartError("CreateContainerError", str(error)) from None
        process = LocalProcess(popen, launch, cgroup, now)
        key = key_of(launch.pod)
        process.watch(lambda: self._enqueue(key))
        runs = self._runs.setdefault((uid_of(launch.pod), container["name"]), [])
        runs[:] = [*runs[-1:], process]
        return process

    def resume(self, launch: ContainerLaunch, started_at: float, now: float) -> LocalProcess | None:
        return None  # processes are killed with the process that started them

    def remove_pod(self, pod: Unstructured) -> None:
        for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
            self._runs.pop((uid_of(pod), container["name"]), None)
        shutil.rmtree(self._folder / uid_of(pod), ignore_errors=True)

    def processes(self, pod: Unstructured, container: str) -> list[LocalProcess]:
        return self._runs.get((uid_of(pod), container), [])

    def all_processes(self) -> list[LocalProcess]:
        return [process for runs in self._runs.values() for process in runs]

    def working_directory(self, launch: ContainerLaunch) -> Path:
        """The container's `workingDir`, else an empty folder of its pod."""
        given = launch.container.get("workingDir")
        if given:
            if not Path(given).is_dir():
                raise ContainerStartError("CreateContainerError", f"workingDir {given} does not exist on this machine")
            return Path(given)
        folder = self._folder / uid_of(launch.pod)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def environment(self, launch: ContainerLaunch) -> dict[str, str]:
        """A few inherited variables, then the pod's, then its devices: none unless it requested some."""
        values = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        values[OWNER_VARIABLE] = self._identity
        values["HOSTNAME"] = str(launch.pod["spec"].get("hostname") or launch.pod["metadata"]["name"])
        values |= launch.environment
        visible = ",".join(launch.devices)
        values["CUDA_VISIBLE_DEVICES"], values["NVIDIA_VISIBLE_DEVICES"] = visible, visible or "void"
        if launch.devices:
            values |= self._mps_environment
        return values

    def _create_cgroup(self, launch: ContainerLaunch) -> Cgroup | None:
        limits = (launch.container.get("resources") or {}).get("limits") or {}
        try:
            memory = whole_value(limits["memory"]) if "memory" in limits else 0
            milli_cpu = milli_value(limits["cpu"]) if "cpu" in limits else 0
        except InputError:
            return None
        name = f"{uid_of(launch.pod)}-{launch.container['name']}-{launch.attempt}"
        return self.cgroups.create(name, memory, milli_cpu)
