"""Supervises a container's command: joins its cgroups, executes it, and ends only when all of its processes have.

`container_runtime` runs it as a file, with only the standard library:

    python -I -S launcher.py PARENT CGROUP_FILES -- COMMAND…

CGROUP_FILES are paths of `cgroup.procs` files, separated by colons. Orphans of the command become children of this
process (a "subreaper"), also those with a session of their own; so when the command ends, on SIGUSR1, and when PARENT
dies, everything that it has started is killed. As in a shell, exit code 127 means that the command does not exist, 126
that it can't be executed, 128 + N that signal N has ended it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
KILLED = 137


class Stop(BaseException):
    """Everything is to be killed now."""


def main(arguments: list[str]) -> int:
    parent, files, _, *command = arguments
    for file in filter(None, files.split(":")):
        with open(file, "w") as procs:
            procs.write(str(os.getpid()))

    def on_signal(number: int, frame: object) -> None:
        if number == signal.SIGUSR1 or os.getppid() != int(parent):
            raise Stop

    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # SIGTERM comes to the whole process group when the pod is deleted, and to this process when PARENT has died.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, on_signal)
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    try:
        if os.getppid() != int(parent):
            return KILLED  # it has died already
        return _run(command, library)
    except Stop:
        return KILLED
    finally:
        _kill_children()


def _run(command: list[str], library: ctypes.CDLL) -> int:
    child = os.fork()
    if child == 0:
        _execute(command, library)
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code


def _execute(command: list[str], library: ctypes.CDLL) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f'exec: "{command[0]}": {error.strerror}\n')
        sys.stderr.flush()
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _kill_children() -> None:
    """Children of those that die become ours, until there are none."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in _children():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            os.wait()


def _children() -> list[int]:
    own = os.getpid()
    with contextlib.suppress(OSError), open(f"/proc/{own}/task/{own}/children") as file:
        return [int(word) for word in file.read().split()]
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent_of(pid) == own]


def _parent_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
