"""The mutable state of simulated GPUs, in memory or in a file that several processes share.

Used by `simulated`. The agent's two processes must see one machine, and faults are injected from a third: so the
state is one JSON file, replaced in one step under a lock, and read again when it has changed.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from windlass.node.backend.protocol import Fault, ProcessUsage


class MigInstanceState(msgspec.Struct, kw_only=True):
    """A MIG instance that exists."""

    gpu_instance: int
    profile: str
    start: int
    uuid: str


class GpuState(msgspec.Struct, kw_only=True):
    """One GPU: its mode, instances, faults, and the operations that fail."""

    minor: int
    mig_enabled: bool = False
    mig_pending: bool = False
    cuts: list[MigInstanceState] = []
    processes: list[ProcessUsage] = []
    load: float = -1.0
    """Utilisation from 0 to 1; below 0 it follows a wave."""
    is_lost: bool = False
    xids: list[int] = []
    """Xids since the last reset."""
    double_bit_errors: int = 0
    single_bit_errors: int = 0
    remap_pending: bool = False
    remap_failure: bool = False
    remapped_rows: int = 0
    throttle: int = 0
    """NVML's clock event bits."""
    pcie_replays: int = 0
    links_down: int = 0
    link_errors: int = 0
    recovery_action: int = 0
    is_licensed: bool | None = None
    """Whether a virtual GPU has a licence; None for a physical one, which needs none."""
    refuses: list[str] = []
    """Operations that fail: `mig-mode`, `create`, `destroy`, `reset`, `create 2g.20gb`, …"""
    is_exclusive: bool = False
    """Compute mode EXCLUSIVE_PROCESS, as MPS needs it."""
    needs_reset: bool = False
    """Whether a change of MIG mode needs a reset."""
    next_instance: int = 1


class Machine(msgspec.Struct, kw_only=True):
    """All GPUs of the simulated node, and all faults so far."""

    gpus: list[GpuState]
    faults: list[Fault] = []
    holders: list[str] = []
    """Who has the driver open, by process."""
    generation: int = 0


class StateStore:
    """A machine's state: in memory without a path, else in a file."""

    def __init__(self, initial: Machine, path: Path | None = None) -> None:
        self.path = path
        self._machine = initial
        self._version: tuple[int, int] = (0, 0)
        self._thread_lock = threading.RLock()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock():
                if path.exists():
                    self._read()
                else:
                    self._write()

    def read(self) -> Machine:
        """The current state; not to be changed by the caller."""
        if self.path is not None and self._file_version() != self._version:
            self._read()
        return self._machine

    @contextmanager
    def change(self) -> Iterator[Machine]:
        """A copy of the state to change, under the lock; discarded if the block raises."""
        with self._lock():
            if self.path is not None:
                self._read()
            changed = msgspec.json.decode(msgspec.json.encode(self._machine), type=Machine)
            yield changed
            changed.generation += 1
            self._machine = changed
            self._write()

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Excludes other threads of this process and other processes."""
        with self._thread_lock:
            if self.path is None:
                yield
                return
            with self.locked():
                yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Excludes other processes; also taken for the files derived from the state."""
        with open(f"{self.path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _file_version(self) -> tuple[int, int]:
        assert self.path is not None
        status = self.path.stat()
        return status.st_mtime_ns, status.st_ino

    def _read(self) -> None:
        assert self.path is not None
        version = self._file_version()
        self._machine = msgspec.json.decode(self.path.read_bytes(), type=Machine)
        self._version = version

    def _write(self) -> None:
        if self.path is None:
            return
        temporary = self.path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(msgspec.json.encode(self._machine))
        temporary.replace(self.path)
        self._version = self._file_version()
