"""Runs in the new process before a container's command: joins its cgroups, sets the parent-death signal, executes
it.

`container_runtime` runs it as a file, with only the standard library:

    python -I -S launcher.py PARENT CGROUP_FILES -- COMMAND…

CGROUP_FILES are paths of `cgroup.procs` files, separated by colons. As in a shell, exit code 127 means that the
command does not exist, 126 that it can't be executed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    parent, files, _, *command = arguments
    for file in filter(None, files.split(":")):
        with open(file, "w") as procs:
            procs.write(str(os.getpid()))
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        return 137  # the parent has died already
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f'exec: "{command[0]}": {error.strerror}\n')
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
