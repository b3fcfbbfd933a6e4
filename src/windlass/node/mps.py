"""The MPS control daemon of a shared resource: started, given its limits, checked, stopped.

`plugin.sharing_setup` starts it if the configuration shares by MPS and checks that it still answers; the device
plugin mounts its pipe folder into containers. Folders, limits and commands are those of NVIDIA's
mps-control-daemon.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from windlass.node.backend.protocol import DeviceBackend, DeviceError
from windlass.sharing.inventory import Gpu

CONTROL = "nvidia-cuda-mps-control"
_TIMEOUT_SECONDS = 20


class MpsDaemon:
    def __init__(self, backend: DeviceBackend, root: Path, resource: str, gpus: Sequence[Gpu], replicas: int) -> None:
        self.backend, self.gpus, self.replicas = backend, tuple(gpus), replicas
        self.folder, self.shm = root / resource, root / "shm"

    @property
    def pipe(self) -> Path:
        return self.folder / "pipe"

    def start(self, *, with_limits: bool = True) -> None:
        """Sets exclusive mode, starts the daemon, then gives each client an equal share of memory and threads."""
        for folder in (self.pipe, self.folder / "log", self.shm):
            folder.mkdir(parents=True, exist_ok=True)
        for gpu in self.gpus:
            self.backend.set_exclusive(gpu.uuid, True)
        try:
            self._run(["-d"])
            if with_limits:
                for command in self.limits():
                    self.send_command(command)
        except DeviceError:
            self.stop()
            raise
        (self.folder / ".started").touch()

    def limits(self) -> list[str]:
        """The commands that set each client's share; rounded down, as NVIDIA's daemon does."""
        commands = [
            f"set_default_device_pinned_mem_limit {gpu.index} {gpu.memory_mib // self.replicas}M" for gpu in self.gpus
        ]
        return [*commands, f"set_default_active_thread_percentage {100 // self.replicas}"]

    def is_alive(self) -> bool:
        try:
            return self.send_command("get_default_active_thread_percentage") != ""
        except DeviceError:
            return False

    def stop(self) -> None:
        """Stops the daemon and restores the GPUs' default mode, whatever state they are in."""
        (self.folder / ".started").unlink(missing_ok=True)
        with contextlib.suppress(DeviceError):  # it was not running
            self.send_command("quit")
        for gpu in self.gpus:
            self.backend.set_exclusive(gpu.uuid, False)

    def send_command(self, text: str) -> str:
        """Returns the control daemon's answer."""
        return self._run([], text + "\n")

    def environment(self) -> dict[str, str]:
        """For the daemon, and for clients on this host."""
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe), "CUDA_MPS_LOG_DIRECTORY": str(self.folder / "log")}

    def _run(self, arguments: list[str], text: str = "") -> str:
        visible = ",".join(gpu.uuid for gpu in self.gpus)
        environment = {**os.environ, **self.environment(), "CUDA_VISIBLE_DEVICES": visible}
        try:
            result = subprocess.run(
                [CONTROL, *arguments],
                input=text,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DeviceError(f"{CONTROL}: {error}") from None
        if result.returncode != 0:
            output = " ".join((result.stdout + result.stderr).split())
            raise DeviceError(f"{CONTROL} {text.strip() or ' '.join(arguments)}: {output}")
        return result.stdout.strip()
