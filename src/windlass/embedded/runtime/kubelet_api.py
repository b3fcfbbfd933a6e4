"""The interface through which the API server reaches a kubelet: logs, and commands in a container.

The server's `log`, `exec` and `attach` subresources call a `KubeletApi`; `simulated_containers` and
`process.kubelet_api` implement it. Everything runs on the loop's thread. A request that can't be served raises
`KubeletApiError`, which the server returns as a Status.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from windlass.model.unstructured import Unstructured

STDOUT = 1
STDERR = 2


class KubeletApiError(Exception):
    """The request can't be served; code, reason and message are for the user."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


class LogRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The query parameters of `pods/log`; `container` may be "" if the pod has only one."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since_seconds: int | None = None
    since_time: str = ""
    timestamps: bool = False


class ExecRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The query parameters of `pods/exec` and `pods/attach` (which has no command)."""

    container: str = ""
    command: tuple[str, ...] = ()
    tty: bool = False
    stdin: bool = False


class ExecSession(Protocol):
    """A running command. The server copies both directions, reads the exit code at the end, and always closes it."""

    def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """`STDOUT` and `STDERR` chunks as they arrive; ends when the command has ended and all is read."""

    async def write(self, data: bytes) -> None:
        """Standard input; ignored after the command has ended."""

    async def end_input(self) -> None:
        """End of standard input."""

    def resize(self, width: int, height: int) -> None:
        """The client's terminal has a new size."""

    async def exit_code(self) -> int:
        """Waits for the end."""

    async def close(self) -> None:
        """Kills what still runs, for example because the client has disconnected."""


class KubeletApi(Protocol):
    def logs(self, pod: Unstructured, request: LogRequest) -> AsyncIterator[bytes]:
        """Chunks of text; raises before the first chunk if the container is unknown or not started."""

    async def exec(self, pod: Unstructured, request: ExecRequest) -> ExecSession:
        """Runs the command in a running container."""

    async def attach(self, pod: Unstructured, request: ExecRequest) -> ExecSession:
        """Connects to a running container's own streams."""
