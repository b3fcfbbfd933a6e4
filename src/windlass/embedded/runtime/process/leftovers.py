"""Processes of pods whose `windlass up` was killed together with their supervisors: found and killed at the next start.

Every process of a pod has a variable that names its `windlass up` by PID and start time. `nodes` calls this before it
starts anything.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

OWNER_VARIABLE = "WINDLASS_UP_PROCESS"
_PROC = Path("/proc")


def process_identity(pid: int) -> str:
    """PID and start time, which no other process has; empty if there is no such process."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else f"{pid}-{fields[19]}"


def kill_leftovers() -> int:
    """Kills this user's processes of pods whose owner is gone; how many there were."""
    count = 0
    for folder in _PROC.iterdir():
        if folder.name.isascii() and folder.name.isdigit() and _is_leftover(folder):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(folder.name), signal.SIGKILL)
                count += 1
    return count


def _is_leftover(folder: Path) -> bool:
    try:
        variables = (folder / "environ").read_bytes().split(b"\0")
    except OSError:  # another user's, or gone
        return False
    prefix = f"{OWNER_VARIABLE}=".encode()
    owner = next((value.removeprefix(prefix).decode() for value in variables if value.startswith(prefix)), "")
    number = owner.partition("-")[0]
    return number.isascii() and number.isdigit() and process_identity(int(number)) != owner
