"""What starts before a container's command, in the new process: joins its cgroups, dies with its parent, becomes the
command.

Run as a file by `process.containers`, with nothing but the standard library:

    python -I -S launcher.py PARENT CGROUP_FILES -- COMMAND…

CGROUP_FILES are paths of `cgroup.procs` files, separated by colons. Exit code 127 where there is no such command, 126
where it can't be executed, as a shell has it.
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
        return 137  # whoever started this is gone already
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f'exec: "{command[0]}": {error.strerror}\n')
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
