"""One long-running program of the test cluster: started, watched until it is ready, paused, killed, started again.

Used by `control_plane` and `node`. Output goes to a log file, and the end of that file into the error when a program
dies or doesn't become ready.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_KEEPER = """
import os, signal, sys
alive = set()
for line in sys.stdin:
    (alive.add if line[0] == "+" else alive.discard)(int(line[1:]))
for pid in alive:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class Keeper:
    """A process beside the tests that ends what they started, should they be killed before they can do it themselves:
    it reads from a pipe which processes there are, and the pipe ends with the tests."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def note(self, sign: str, pid: int) -> None:
        """`+` for a process that was started, `-` for one that is gone."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _KEEPER], stdin=subprocess.PIPE, text=True, start_new_session=True
            )
        assert self._process.stdin is not None
        self._process.stdin.write(f"{sign}{pid}\n")
        self._process.stdin.flush()


KEEPER = Keeper()


class StartFailed(Exception):
    """A program of the cluster could not be started; the message ends with its last log lines."""


class Service:
    """A program with its arguments. `start` may be called again after `stop` or `kill`, with more arguments."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
        patience: float = 90.0,
        grace: float = 20.0,
    ) -> None:
        """`patience`: seconds until it must be ready; `grace`: seconds that it has to stop in order."""
        self.name = name
        self.command = list(command)
        self.log = log
        self.ready = ready
        self.environment = dict(environment or {})
        self.patience, self.grace = patience, grace
        self.more: tuple[str, ...] = ()
        """The arguments that it was last started with beside its own."""
        self.absences = 0
        """How often it was stopped, killed or frozen."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    def start(self, *more: str, wait: bool = True) -> None:
        """Start it, with more arguments than last time if need be; returns when it is ready."""
        assert not self.running, f"{self.name} runs already"
        self.more = more
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.command, *more],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,  # Ctrl-C in the terminal is for pytest, which then stops this in order
            )
        KEEPER.note("+", self.pid)
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Return when it is ready; raise with the log's end if it dies or takes too long."""
        deadline = time.monotonic() + self.patience
        while not self.ready():
            if not self.running:
                raise StartFailed(f"{self.name} ended with {self._exit()}: {self.last_lines()}")
            if time.monotonic() > deadline:
                raise StartFailed(f"{self.name} was not ready after {self.patience:.0f} s: {self.last_lines()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it as an operator would: in order if it can within its grace, else at once."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open, nothing answers."""
        self.absences += 1
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def last_lines(self, count: int = 12) -> str:
        """The end of its log, for an error message."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-count:])

    def _end(self, number: signal.Signals) -> None:
        if self._process is None or not self.running:
            return
        self.absences += 1
        self._process.send_signal(number)
        self._process.send_signal(signal.SIGCONT)  # a paused program would not see the first one
        try:
            self._process.wait(self.grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        KEEPER.note("-", self.pid)

    def _exit(self) -> int | None:
        return None if self._process is None else self._process.returncode


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody uses now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
