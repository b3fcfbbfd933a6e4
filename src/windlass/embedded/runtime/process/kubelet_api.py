"""`kubectl logs` and `kubectl exec` for pods that are processes of this machine.

An executed command is another process with the pod's environment and folder. `nvidia-smi` ignores
`CUDA_VISIBLE_DEVICES`, so it gets the pod's GPUs by `-i`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import struct
import termios
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any

from windlass.embedded.controllers.objects import name_of
from windlass.embedded.runtime.container_runtime import ContainerStartError
from windlass.embedded.runtime.kubelet_api import (
    STDERR,
    STDOUT,
    ExecRequest,
    ExecSession,
    KubeletApiError,
    LogRequest,
)
from windlass.embedded.runtime.pod_logs import select_container, select_run
from windlass.embedded.runtime.process.container_runtime import (
    LocalProcess,
    ProcessContainerRuntime,
    exit_code,
    launcher_command,
)
from windlass.embedded.runtime.process.log_buffer import stream_log
from windlass.model.unstructured import Unstructured

CHUNK = 1 << 15


class LocalExec:
    """A process with pipes, or with its own terminal."""

    def __init__(self, process: asyncio.subprocess.Process, terminal: int | None) -> None:
        self._process, self._terminal = process, terminal

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        queue: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(64)
        readers = [asyncio.create_task(reading) for reading in self._readers(queue)]
        open_readers = len(readers)
        try:
            while open_readers:
                chunk = await queue.get()
                if chunk is None:
                    open_readers -= 1
                else:
                    yield chunk
        finally:
            for task in readers:
                task.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    def _readers(self, queue: asyncio.Queue[tuple[int, bytes] | None]) -> Iterator[Coroutine[Any, Any, None]]:
        if self._terminal is not None:
            yield self._read_terminal(queue)
            return
        for channel, stream in ((STDOUT, self._process.stdout), (STDERR, self._process.stderr)):
            assert stream is not None
            yield self._read_stream(queue, channel, stream)

    async def _read_stream(
        self, queue: asyncio.Queue[tuple[int, bytes] | None], channel: int, stream: asyncio.StreamReader
    ) -> None:
        while data := await stream.read(CHUNK):
            await queue.put((channel, data))
        await queue.put(None)

    async def _read_terminal(self, queue: asyncio.Queue[tuple[int, bytes] | None]) -> None:
        assert self._terminal is not None
        while True:
            try:
                data = os.read(self._terminal, CHUNK)
            except BlockingIOError:
                await self._wait_terminal(asyncio.get_running_loop().add_reader, writing=False)
                continue
            except OSError:  # the other end is closed: the command has ended
                data = b""
            if not data:
                await queue.put(None)
                return
            await queue.put((STDOUT, data))

    async def _write_terminal(self, data: bytes) -> None:
        """A command that doesn't read its input makes only its own client wait."""
        while data and self._terminal is not None:
            try:
                data = data[os.write(self._terminal, data) :]
            except BlockingIOError:
                await self._wait_terminal(asyncio.get_running_loop().add_writer, writing=True)
            except OSError:
                return

    async def _wait_terminal(self, add: Callable[..., None], *, writing: bool) -> None:
        loop = asyncio.get_running_loop()
        terminal, ready = self._terminal, asyncio.Event()
        add(terminal, ready.set)
        try:
            await ready.wait()
        finally:
            assert terminal is not None
            (loop.remove_writer if writing else loop.remove_reader)(terminal)

    async def write(self, data: bytes) -> None:
        if self._terminal is not None:
            await self._write_terminal(data)
        elif self._process.stdin is not None:
            with contextlib.suppress(ConnectionError):
                self._process.stdin.write(data)
                await self._process.stdin.drain()

    async def end_input(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def resize(self, width: int, height: int) -> None:
        if self._terminal is not None:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    async def exit_code(self) -> int:
        return exit_code(await self._process.wait())

    async def close(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._process.pid, signal.SIGUSR1)  # its launcher kills all that it has started
            await self._process.wait()
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None


class ProcessKubeletApi:
    def __init__(self, container_runtime: ProcessContainerRuntime) -> None:
        self._containers = container_runtime

    def logs(self, pod: Unstructured, request: LogRequest) -> AsyncIterator[bytes]:
        container = select_container(pod, request.container)["name"]
        runs = self._containers.processes(pod, container)
        process = select_run(runs, pod, container, request.previous)

        return stream_log(process.log, lambda: process.is_over, request, time.time())

    async def exec(self, pod: Unstructured, request: ExecRequest) -> ExecSession:
        process = self._running(pod, request)
        command = _with_devices(list(request.command), process.launch.devices)
        environment = self._containers.environment(process.launch)
        folder = self._containers.working_directory(process.launch)
        if shutil.which(command[0], path=environment.get("PATH")) is None:
            raise KubeletApiError(500, "InternalError", f'exec: "{command[0]}": executable file not found in $PATH')
        terminal = terminal_end = None
        if request.tty:
            terminal, terminal_end = os.openpty()
            os.set_blocking(terminal, False)
        pipe = asyncio.subprocess.PIPE
        devnull = asyncio.subprocess.DEVNULL
        try:
            started = await asyncio.create_subprocess_exec(
                *launcher_command(command, process.cgroup),
                cwd=folder,
                env=environment,
                stdin=terminal_end if terminal_end is not None else (pipe if request.stdin else devnull),
                stdout=terminal_end if terminal_end is not None else pipe,
                stderr=terminal_end if terminal_end is not None else pipe,
                start_new_session=True,
            )
        except OSError as error:
            if terminal is not None:
                os.close(terminal)
            message = f'exec: "{command[0]}": {error.strerror}'
            raise KubeletApiError(500, "InternalError", message) from None
        finally:
            if terminal_end is not None:
                os.close(terminal_end)
        return LocalExec(started, terminal)

    async def attach(self, pod: Unstructured, request: ExecRequest) -> ExecSession:
        raise KubeletApiError(
            501,
            "NotImplemented",
            f"pod {name_of(pod)} is a local process, which can't be attached to: use kubectl logs -f",
        )

    def _running(self, pod: Unstructured, request: ExecRequest) -> LocalProcess:
        container = select_container(pod, request.container)["name"]
        runs = self._containers.processes(pod, container)
        if not runs or runs[-1].poll(time.time()) is not None:
            message = f'unable to upgrade connection: container not found ("{container}")'
            raise KubeletApiError(500, "InternalError", message)
        try:
            self._containers.working_directory(runs[-1].launch)
        except ContainerStartError as error:
            raise KubeletApiError(500, "InternalError", error.message) from None
        return runs[-1]


def _with_devices(command: list[str], devices: Sequence[str]) -> list[str]:
    if not command or os.path.basename(command[0]) != "nvidia-smi":
        return command
    if not devices:
        return ["sh", "-c", "echo 'No devices were found: this pod asked for no GPU'; exit 6"]
    if any(argument in ("-i", "--id") or argument.startswith(("--id=", "-i=")) for argument in command):
        return command
    return [command[0], "-i", ",".join(devices), *command[1:]]
