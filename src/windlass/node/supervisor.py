"""Two processes under one: the plugin, and everything else. Either may die; the other goes on, and it is started again.

`windlass node run` becomes this program (by `exec`, without site packages), so it is a few megabytes itself and uses
the standard library only. Its argument is a JSON map from a child's name to its command. TERM and INT end both
children, HUP starts them anew. A child that says at its first start that its input is wrong (exit code 2), or that
there is no driver where there has to be one (3), ends the agent. One that has run before is tried again, and knows
that it isn't the first.
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
RESTARTED_VARIABLE = "WINDLASS_AGENT_AGAIN"
"""Set in the environment of a child that isn't the first of its name."""


class Supervisor:
    def __init__(self, commands: dict[str, list[str]]) -> None:
        self._commands = commands
        self._pids: dict[int, str] = {}
        self._begun: dict[str, float] = {}
        self._lives: dict[str, int] = {}
        self._pause: dict[str, float] = {}
        self._due = dict.fromkeys(commands, 0.0)
        self._killing_at = 0.0
        """When patience ends; 0 while nothing has ended the agent."""

    def run(self) -> int:
        """Until a signal ends it."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        signal.signal(signal.SIGHUP, lambda *_: self._send(signal.SIGTERM))
        code = 0
        while self._pids or self._due:
            self._spawn_due()
            code = max(code, self._reap())
            if self._killing_at and time.monotonic() > self._killing_at:
                self._send(signal.SIGKILL)
        return code

    def stop(self) -> None:
        self._killing_at = time.monotonic() + STOP_SECONDS
        self._due.clear()
        self._send(signal.SIGTERM)

    def _spawn_due(self) -> None:
        for name, due in list(self._due.items()):
            if time.monotonic() >= due:
                del self._due[name]
                command = self._commands[name]
                again = {RESTARTED_VARIABLE: "1"} if name in self._lives else {}
                self._pids[os.posix_spawn(command[0], command, {**os.environ, **again})] = name
                self._lives[name] = self._lives.get(name, 0) + 1
                self._begun[name] = time.monotonic()

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
        if self._killing_at:
            return 0
        if code in (WRONG_INPUT, NO_DRIVER) and self._lives[name] == 1:
            why = "with this configuration" if code == WRONG_INPUT else "without a driver (failOnInitError)"
            log(f"{name} can't start {why}; ending")
            self.stop()
            return code
        life = time.monotonic() - self._begun[name]
        pause = (
            min(MAX_BACKOFF_SECONDS, 2 * self._pause.get(name, 0.25)) if life < MIN_UPTIME_SECONDS else 0.5
        )
        self._pause[name] = pause
        self._due[name] = time.monotonic() + pause
        log(f"{name} ended with {code} after {life:.1f} s; starting it again in {pause:g} s")
        return 0

    def _send(self, number: int) -> None:
        for pid in list(self._pids):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue


def log(line: str) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(f"{stamp} agent: {line}", file=sys.stderr, flush=True)


def become_supervisor(commands: dict[str, list[str]]) -> None:
    """Turns this process into the supervisor; doesn't return."""
    import json

    sys.stdout.flush()
    sys.stderr.flush()
    # Small processes on every node: one arena is enough for allocators, and memory goes back early.
    os.environ.setdefault("MALLOC_ARENA_MAX", "1")
    os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", "65536")
    os.execv(sys.executable, [sys.executable, "-S", "-E", "-P", __file__, json.dumps(commands)])


if __name__ == "__main__":
    import json

    sys.exit(Supervisor(json.loads(sys.argv[1])).run())
