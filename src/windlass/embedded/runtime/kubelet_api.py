"""What the API server asks of whatever runs pods: logs, and commands inside a container.

The server's `log`, `exec` and `attach` subresources call a `KubeletApi`; `runtime.simulated` and `runtime.process` are
the two there are. Everything runs on the loop's thread. A request that can't be served raises `Refused`, which the
server answers as a Kubernetes Status with that code, reason and message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from windlass.model.unstructured import Unstructured

STDOUT = 1
STDERR = 2


class KubeletApiError(Exception):
    """The request can't be served, for a reason that its user should read."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


class LogRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The query parameters of `pods/log`; `container` is "" where the pod has only one."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since_seconds: int | None = None
    since_time: str = ""
    timestamps: bool = False


class ExecRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The query parameters of `pods/exec` and `pods/attach` (there without a command)."""

    container: str = ""
    command: tuple[str, ...] = ()
    tty: bool = False
    stdin: bool = False


class ExecSession(Protocol):
    """A command that runs. The server pumps both ways, asks for the code at the end, and always closes it."""

    def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Pieces of `STDOUT` and `STDERR` as they come; ends when the command has ended and all of it was read."""

    async def write(self, data: bytes) -> None:
        """Standard input; ignored once the command has ended."""

    async def end_input(self) -> None:
        """No more standard input."""

    def resize(self, width: int, height: int) -> None:
        """The user's terminal has another size."""

    async def exit_code(self) -> int:
        """Waits for the end."""

    async def close(self) -> None:
        """Ends what still runs, e.g. because the client has gone."""


class KubeletApi(Protocol):
    def logs(self, pod: Unstructured, request: LogRequest) -> AsyncIterator[bytes]:
        """Pieces of text; refuses, before the first, a container that is unknown or not started."""

    async def exec(self, pod: Unstructured, request: ExecRequest) -> ExecSession:
        """Runs the command in a running container."""

    async def attach(self, pod: Unstructured, request: ExecRequest) -> ExecSession:
        """Joins a running container's own streams."""
