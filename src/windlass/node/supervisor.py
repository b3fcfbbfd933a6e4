"""Supervises the agent's two processes, plugin and sidecar: restarts each on its own if it dies.

`windlass node run` becomes this program (by `exec`, without site packages), so it needs only a few megabytes and
the standard library. Its argument is a JSON map from a child's name to its command. TERM and INT stop both
children, HUP restarts them. A child that exits at its first start with 2 (wrong input) or 3 (no driver although one
is required) ends the agent; later exits lead to a restart with back-off, and an environment variable tells the
child so.
"""

from __future__ import annotations

import os
import signal
import sys
import time

MIN_UPTIME_SECONDS = 10.0
MAX_BACKOFF_SECONDS = 30.0
STOP_SECONDS = 10.0
WRONG_INPUT, NO_DRIVER = 2, 3
RESTARTED_VARIABLE = "WINDLASS_AGENT_RESTARTED"
"""Set in the environment of a child that was started before."""


class Supervisor:
    def __init__(self, commands: dict[str, list[str]]) -> None:
        self._commands = commands
        self._pids: dict[int, str] = {}
        self._started_at: dict[str, float] = {}
        self._starts: dict[str, int] = {}
        self._backoff: dict[str, float] = {}
        self._start_at = dict.fromkeys(commands, 0.0)
        self._kill_at = 0.0
        """When children that ignore TERM are killed; 0 while the agent is not stopping."""

    def run(self) -> int:
        """Runs until a signal, or a child that can't start, ends it; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        signal.signal(signal.SIGHUP, lambda *_: self._signal_children(signal.SIGTERM))
        code = 0
        while self._pids or self._start_at:
            self._spawn_due()
            code = max(code, self._reap())
            if self._kill_at and time.monotonic() > self._kill_at:
                self._signal_children(signal.SIGKILL)
        return code

    def stop(self) -> None:
        self._kill_at = time.monotonic() + STOP_SECONDS
        self._start_at.clear()
        self._signal_children(signal.SIGTERM)

    def _spawn_due(self) -> None:
        for name, due in list(self._start_at.items()):
            if time.monotonic() >= due:
                del self._start_at[name]
                command = self._commands[name]
                restarted = {RESTARTED_VARIABLE: "1"} if name in self._starts else {}
                self._pids[os.posix_spawn(command[0], command, {**os.environ, **restarted})] = name
                self._starts[name] = self._starts.get(name, 0) + 1
                self._started_at[name] = time.monotonic()

    def _reap(self) -> int:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pid, status = 0, 0
        if not pid:
            time.sleep(0.05)
            return 0
        name = self._pids.pop(pid, "")
        return self._on_exit(name, os.waitstatus_to_exitcode(status)) if name else 0

    def _on_exit(self, name: str, code: int) -> int:
        if self._kill_at:
            return 0
        if code in (WRONG_INPUT, NO_DRIVER) and self._starts[name] == 1:
            reason = "with this configuration" if code == WRONG_INPUT else "without a driver (failOnInitError)"
            log(f"{name} can't start {reason}; stopping the agent")
            self.stop()
            return code
        uptime = time.monotonic() - self._started_at[name]
        backoff = min(MAX_BACKOFF_SECONDS, 2 * self._backoff.get(name, 0.25)) if uptime < MIN_UPTIME_SECONDS else 0.5
        self._backoff[name] = backoff
        self._start_at[name] = time.monotonic() + backoff
        log(f"{name} ended with {code} after {uptime:.1f} s; starting it again in {backoff:g} s")
        return 0

    def _signal_children(self, number: int) -> None:
        for pid in list(self._pids):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue


def log(line: str) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(f"{stamp} agent: {line}", file=sys.stderr, flush=True)


def become_supervisor(commands: dict[str, list[str]]) -> None:
    """Replaces this process by the supervisor; does not return."""
    import json

    sys.stdout.flush()
    sys.stderr.flush()
    # One malloc arena and an early trim keep these small processes small.
    os.environ.setdefault("MALLOC_ARENA_MAX", "1")
    os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", "65536")
    os.execv(sys.executable, [sys.executable, "-S", "-E", "-P", __file__, json.dumps(commands)])


if __name__ == "__main__":
    import json

    sys.exit(Supervisor(json.loads(sys.argv[1])).run())
