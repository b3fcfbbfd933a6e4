"""What the kernel counts against a container's limit of memory, with either version of cgroups.

Used by `node_agent`, which measures the agent in a cgroup of its own, and by the tests of its container.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

CGROUPS = Path("/sys/fs/cgroup")
MIB = 1 << 20


class CgroupMemory(msgspec.Struct, frozen=True, kw_only=True):
    """In bytes."""

    anonymous: int
    current: int
    """With the files that were read, which the kernel drops when it needs room, and its own part."""
    highest: int
    limit: int
    """A very large number without one."""
    failures: int
    """How often the limit was hit."""

    def __str__(self) -> str:
        sizes = {"anonymous": self.anonymous, "current": self.current, "highest": self.highest, "limit": self.limit}
        return ", ".join(f"{name} {size / MIB:.1f} MiB" for name, size in sizes.items())


def make_cgroup() -> Path | None:
    """A cgroup of its own, as a container has one; None where that is not allowed."""
    top = CGROUPS / "memory" if (CGROUPS / "memory").is_dir() else CGROUPS
    folder = top / f"windlass-bench-{os.getpid()}"
    try:
        folder.mkdir()
        read_memory(folder)
    except OSError:
        if folder.is_dir():
            folder.rmdir()
        return None
    return folder


def cgroup_of(process: Path) -> Path:
    """The cgroup that a process (its folder in /proc) is in."""
    lines = [line.split(":", 2) for line in (process / "cgroup").read_text().splitlines()]
    by_version = [path for _, controllers, path in lines if "memory" in controllers.split(",")]
    if by_version:
        return CGROUPS / "memory" / by_version[0].lstrip("/")
    (path,) = [path for _, controllers, path in lines if not controllers]
    return CGROUPS / path.lstrip("/")


def read_memory(folder: Path) -> CgroupMemory:
    """An `OSError` where the kernel counts no memory."""
    if (folder / "memory.limit_in_bytes").exists():
        names = ("total_rss", "usage_in_bytes", "max_usage_in_bytes", "limit_in_bytes")
        failures = int((folder / "memory.failcnt").read_text())
    else:
        names = ("anon", "current", "peak", "max")
        failures = _table(folder / "memory.events")["max"]
    anonymous, current, highest, limit = names
    return CgroupMemory(
        anonymous=_table(folder / "memory.stat")[anonymous],
        current=_number(folder / f"memory.{current}"),
        highest=_number(folder / f"memory.{highest}"),
        limit=_number(folder / f"memory.{limit}"),
        failures=failures,
    )


def _number(file: Path) -> int:
    text = file.read_text().strip()
    return 1 << 62 if text == "max" else int(text)


def _table(file: Path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in file.read_text().splitlines())}
