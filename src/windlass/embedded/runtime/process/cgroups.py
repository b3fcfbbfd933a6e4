"""Memory and CPU limits for processes through cgroups v2 or v1, if this user may create any.

`container_runtime` asks for a group per container. If none can be created, `unavailable_reason` says why, and
processes run without limits.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from windlass.model.digits import is_digits

PERIOD = 100_000
_ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Cgroup:
    """The cgroup of one container: one folder in v2, one per controller in v1."""

    folders: tuple[Path, ...]

    @property
    def procs(self) -> tuple[Path, ...]:
        """The files into which a process writes its PID to join."""
        return tuple(folder / "cgroup.procs" for folder in self.folders)

    def was_oom_killed(self) -> bool:
        """Whether the kernel has killed a process in it for lack of memory."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                for line in _read(folder / name).splitlines():
                    key, _, count = line.partition(" ")
                    if key == "oom_kill" and is_digits(count.strip()) and int(count) > 0:
                        return True
        return False

    def kill(self, spared: int = 0) -> None:
        """Kills every process in it but one."""
        for folder in self.folders:
            if not spared and (folder / "cgroup.kill").exists():
                with contextlib.suppress(OSError):
                    (folder / "cgroup.kill").write_text("1")
                continue
            for word in _read(folder / "cgroup.procs").split():
                if int(word) != spared:
                    with contextlib.suppress(OSError):
                        os.kill(int(word), signal.SIGKILL)

    def remove(self) -> None:
        for folder in self.folders:
            with contextlib.suppress(OSError):  # still busy: it is removed by the next boot
                folder.rmdir()


class Cgroups:
    def __init__(self, root: Path = _ROOT, name: str = "") -> None:
        self._name = name or f"windlass-up-{os.getpid()}"
        self._root = root
        self.is_v2 = (root / "cgroup.controllers").exists()
        self.unavailable_reason = ""
        self._bases = self._open()

    def create(self, name: str, memory: int = 0, milli_cpu: int = 0) -> Cgroup | None:
        """A group with limits (0: none); None if it can't be created.

        Version 1 has a folder for each limit, and so none without limits.
        """
        if not self._bases or not (self.is_v2 or memory or milli_cpu):
            return None
        folders = []
        try:
            for base in self._bases:
                folder = base / name
                folder.mkdir(exist_ok=True)
                self._limit(folder, memory, milli_cpu)
                folders.append(folder)
        except OSError as error:
            self.unavailable_reason = f"{error.filename or error}: {error.strerror}"
            Cgroup(tuple(folders)).remove()
            return None
        return Cgroup(tuple(folders))

    def close(self) -> None:
        Cgroup(self._bases).remove()

    def _open(self) -> tuple[Path, ...]:
        if not self._root.is_dir():
            self.unavailable_reason = f"{self._root} does not exist"
            return ()
        try:
            return self._open_v2() if self.is_v2 else self._open_v1()
        except OSError as error:
            self.unavailable_reason = f"{error.filename or self._root}: {error.strerror}"
            return ()

    def _open_v2(self) -> tuple[Path, ...]:
        """Below the root that this process sees; controllers have to be enabled at both levels."""
        base = self._root / self._name
        (self._root / "cgroup.subtree_control").write_text("+cpu +memory")
        base.mkdir(exist_ok=True)
        (base / "cgroup.subtree_control").write_text("+cpu +memory")
        return (base,)

    def _open_v1(self) -> tuple[Path, ...]:
        bases = []
        for controller in ("memory", "cpu"):
            if (self._root / controller).is_dir():
                base = self._root / controller / self._name
                base.mkdir(exist_ok=True)
                bases.append(base)
        if not bases:
            self.unavailable_reason = f"{self._root} has no memory or cpu controller"
        return tuple(bases)

    def _limit(self, folder: Path, memory: int, milli_cpu: int) -> None:
        if self.is_v2:
            if memory:
                (folder / "memory.max").write_text(str(memory))
                swap = folder / "memory.swap.max"
                if swap.exists():
                    swap.write_text("0")
            if milli_cpu:
                (folder / "cpu.max").write_text(f"{milli_cpu * PERIOD // 1000} {PERIOD}")
            return
        if memory and (folder / "memory.limit_in_bytes").exists():
            (folder / "memory.limit_in_bytes").write_text(str(memory))
        if milli_cpu and (folder / "cpu.cfs_quota_us").exists():
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
            (folder / "cpu.cfs_quota_us").write_text(str(milli_cpu * PERIOD // 1000))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
