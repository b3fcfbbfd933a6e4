"""Two processes under one: the plugin, and everything else. Either may die; the other goes on, and it is started again.

`windlass node run` is this. It forks before anything heavy is loaded, so it is a few megabytes itself, and passes
signals on: TERM and INT end both, HUP starts them anew.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from types import FrameType

SHORTEST_LIFE = 10.0
LONGEST_PAUSE = 30.0
STOP_SECONDS = 10.0

Log = Callable[[str], None]


class Supervisor:
    def __init__(self, children: Mapping[str, Callable[[], int]], log: Log) -> None:
        self._children = dict(children)
        self._log = log
        self._pids: dict[int, str] = {}
        self._begun: dict[str, float] = {}
        self._pause: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._ending = False
        self._killing_at = 0.0

    def run(self) -> int:
        """Until a signal ends it; the exit code of a child that could not even begin."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        signal.signal(signal.SIGHUP, self._renew)
        for name in self._children:
            self._fork(name)
        code = 0
        while self._pids or (self._due and not self._ending):
            self._fork_due()
            pid, status = self._reap()
            if pid:
                code = max(code, self._on_exit(pid, status))
            if self._ending and time.monotonic() > self._killing_at:
                for left in list(self._pids):
                    _send(left, signal.SIGKILL)
        return code

    def _reap(self) -> tuple[int, int]:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pid, status = 0, 0
        if not pid:
            time.sleep(0.05)
        return pid, status

    def _on_exit(self, pid: int, status: int) -> int:
        name = self._pids.pop(pid, "")
        code = os.waitstatus_to_exitcode(status)
        if self._ending or not name:
            return 0
        life = time.monotonic() - self._begun[name]
        if code == 2:
            # Wrong input at the first start: no number of tries makes it right.
            self._log(f"{name} refused to start; ending")
            self._end(signal.SIGTERM, None)
            return code
        pause = min(LONGEST_PAUSE, 2 * self._pause.get(name, 0.25)) if life < SHORTEST_LIFE else 0.5
        self._pause[name] = pause
        self._due[name] = time.monotonic() + pause
        self._log(f"{name} ended with {code} after {life:.1f} s; starting it again in {pause:g} s")
        return 0

    def _fork_due(self) -> None:
        for name, due in list(self._due.items()):
            if not self._ending and time.monotonic() >= due:
                del self._due[name]
                self._fork(name)

    def _fork(self, name: str) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os._exit(self._live(name))
        self._pids[pid] = name
        self._begun[name] = time.monotonic()

    def _live(self, name: str) -> int:
        """A child's whole life; whatever it does, it never comes back into the supervisor's code."""
        try:
            return self._children[name]()
        except KeyboardInterrupt:
            return 130
        except BaseException:
            traceback.print_exc()
            return 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._ending = True
        self._killing_at = time.monotonic() + STOP_SECONDS
        self._due.clear()
        for pid in list(self._pids):
            _send(pid, signal.SIGTERM)

    def _renew(self, number: int, frame: FrameType | None) -> None:
        for pid in list(self._pids):
            _send(pid, signal.SIGTERM)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
