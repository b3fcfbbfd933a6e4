"""The MPS control daemon of a shared resource: started or adopted, given its limits, checked, stopped when unused.

`plugin.sharing_setup` starts it if the configuration shares by MPS and checks that it still answers; the device
plugin mounts its pipe folder into containers. Folders, limits and commands are those of NVIDIA's
mps-control-daemon. The daemon has a life of its own: clients of a daemon that is told to quit or is killed fail, so it
outlives the agent, the next agent adopts it, and it is never told to quit while it has clients.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from windlass.model.digits import is_digits
from windlass.node import detached
from windlass.node.backend.protocol import DeviceBackend, DeviceError
from windlass.sharing.inventory import Gpu

CONTROL = "nvidia-cuda-mps-control"
HOST_FOLDERS = {"/usr/bin": "", "/usr/local/bin": "", "/usr/local/nvidia/bin": "/usr/local/nvidia/lib64"}
STARTED_FILE = ".started"
CGROUP = "windlass-mps"
_TIMEOUT_SECONDS = 20


class MpsDaemon:
    def __init__(
        self,
        backend: DeviceBackend,
        root: Path,
        resource: str,
        gpus: Sequence[Gpu],
        replicas: int,
        cgroups: Path | None = None,
        host: Path | None = None,
    ) -> None:
        """`cgroups` is the host's cgroup file system, for a daemon whose clients are in containers.

        None leaves it in this process's cgroup and with the host's shared memory, for clients on the host. `host` is
        the host's file system, where that is not this process's own: a program that the host has runs there, with the
        host's loader and libraries, and needs nothing of an agent that is gone.
        """
        self.backend, self.gpus, self.replicas = backend, tuple(gpus), replicas
        self.folder, self.shm = root / resource, root / "shm"
        self._cgroups, self._host = cgroups, host

    @property
    def pipe(self) -> Path:
        return self.folder / "pipe"

    def start(self, *, with_limits: bool = True) -> bool:
        """Gives each client an equal share of memory and threads; returns whether a running daemon was adopted.

        A new daemon needs exclusive mode first. One that runs keeps its clients; limits count for new ones.
        """
        for folder in (self.pipe, self.folder / "log", self.shm):
            folder.mkdir(parents=True, exist_ok=True)
        adopted = self.is_alive()
        try:
            for gpu in self.gpus:
                self.backend.set_exclusive(gpu.uuid, True)
            if not adopted:
                self._run(["-d"], detach=True)
            if with_limits:
                for command in self.limits():
                    self.send_command(command)
        except DeviceError:
            if not adopted:
                self.stop()
            raise
        (self.folder / STARTED_FILE).write_text("".join(f"{gpu.uuid}\n" for gpu in self.gpus))
        return adopted

    def limits(self) -> list[str]:
        """The commands that set each client's share; rounded down, as NVIDIA's daemon does.

        A daemon numbers the GPUs that it sees, which are only its own.
        """
        commands = [
            f"set_default_device_pinned_mem_limit {position} {gpu.memory_mib // self.replicas}M"
            for position, gpu in enumerate(self.gpus)
        ]
        return [*commands, f"set_default_active_thread_percentage {100 // self.replicas}"]

    def is_alive(self) -> bool:
        try:
            return self.send_command("get_default_active_thread_percentage") != ""
        except DeviceError:
            return False

    def clients(self) -> tuple[int, ...] | None:
        """Processes that use the daemon; empty if it doesn't run, None if it runs and doesn't say."""
        try:
            servers = self.send_command("get_server_list").split()
            return tuple(
                int(pid)
                for server in servers
                if is_digits(server)
                for pid in self.send_command(f"get_client_list {server}").split()
                if is_digits(pid)
            )
        except DeviceError:
            return None if self.is_alive() else ()

    def stop(self) -> bool:
        """Stops an unused daemon and restores the GPUs' default mode; False if it has clients, or may have some.

        Every GPU is restored, whatever state another one is in; what was not restored is left to the next agent.
        """
        if self.clients() != ():
            return False
        problems = []
        try:
            if self.is_alive():
                self.send_command("quit")
        except DeviceError as error:
            problems.append(str(error))
        for gpu in self.gpus:
            try:
                self.backend.set_exclusive(gpu.uuid, False)
            except DeviceError as error:
                problems.append(str(error))
        if problems:
            raise DeviceError("; ".join(problems))
        (self.folder / STARTED_FILE).unlink(missing_ok=True)
        return True

    def send_command(self, text: str) -> str:
        """Returns the control daemon's answer."""
        return self._run([], text + "\n")

    def environment(self) -> dict[str, str]:
        """For the daemon, and for clients on this host."""
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe), "CUDA_MPS_LOG_DIRECTORY": str(self.folder / "log")}

    def _run(self, arguments: list[str], text: str = "", *, detach: bool = False) -> str:
        visible = ",".join(gpu.uuid for gpu in self.gpus)
        environment = {**os.environ, **self.environment(), "CUDA_VISIBLE_DEVICES": visible}
        program, libraries = self._program_on_host()
        if program:
            environment["LD_LIBRARY_PATH"] = libraries
            environment["PATH"] = f"{os.path.dirname(program)}:{os.defpath}"
        cgroup = str(self._cgroups / CGROUP) if self._cgroups is not None and detach else ""
        where = [str(self._host) if program else "", cgroup, str(self.shm) if cgroup else ""]
        launcher = [sys.executable, "-S", "-E", "-P", detached.__file__, *where] if detach or program else []
        try:
            result = subprocess.run(
                [*launcher, program or CONTROL, *arguments],
                input=text,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
                start_new_session=detach,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DeviceError(f"{CONTROL}: {error}") from None
        if result.returncode != 0:
            output = " ".join((result.stdout + result.stderr).split())
            raise DeviceError(f"{CONTROL} {text.strip() or ' '.join(arguments)}: {output}")
        return result.stdout.strip()

    def _program_on_host(self) -> tuple[str, str]:
        """Its path on the host and the folder of the libraries beside it; empty where the host's loader knows it."""
        for folder, libraries in HOST_FOLDERS.items() if self._host is not None else ():
            if os.path.lexists(f"{self._host}{folder}/{CONTROL}"):
                return f"{folder}/{CONTROL}", libraries
        return "", ""


def started_daemons(root: Path) -> dict[str, tuple[str, ...]]:
    """Daemons that an agent has started under this folder and not stopped: resource → UUIDs of its GPUs."""
    found = {}
    for file in root.glob(f"*/*/{STARTED_FILE}"):
        found[str(file.parent.relative_to(root))] = tuple(file.read_text().split())
    return found
