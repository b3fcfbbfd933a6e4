"""Starts a program that outlives the agent: `python detached.py ROOT CGROUP FOLDER COMMAND …`, standard library only.

Called by `mps`. A container runtime ends everything in a container's cgroup with it, so the program is moved to a
cgroup of its own; FOLDER is what it has as `/dev/shm`, in a mount namespace of its own, as MPS clients have it. What
can't be done is said, and the program is started all the same. ROOT is the root file system that the program belongs
to: the host's, where its loader and libraries are. An empty ROOT, CGROUP or FOLDER leaves that out.
"""

from __future__ import annotations

import ctypes
import os
import sys

_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_SLAVE = 0x20000, 0x1000, 0x4000, 0x80000


def move_to_cgroup(folder: str) -> None:
    if not os.path.exists(f"{os.path.dirname(folder)}/cgroup.controllers"):
        raise OSError(f"{os.path.dirname(folder)} is not a cgroup file system of version 2")
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/cgroup.procs", "w") as procs:
        procs.write("0")  # the process that writes


def use_as_shared_memory(folder: str, root: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    failed = (
        libc.unshare(_CLONE_NEWNS)
        or libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None)
        or libc.mount(folder.encode(), f"{root}/dev/shm".encode(), None, _MS_BIND, None)
    )
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), folder)


def main(root: str, cgroup: str, folder: str, *command: str) -> None:
    for step, arguments in ((move_to_cgroup, (cgroup,)), (use_as_shared_memory, (folder, root))):
        try:
            if arguments[0]:
                step(*arguments)
        except OSError as error:
            print(f"not detached from the agent: {error}", file=sys.stderr)
    if root:
        os.chroot(root)
        os.chdir("/")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
