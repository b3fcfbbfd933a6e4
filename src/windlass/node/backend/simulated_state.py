"""What changes about simulated GPUs, kept in memory or in a file that several processes share.

`simulated` reads and changes it. The agent is two processes that must see one machine, and faults are injected from a
third: so the state is one JSON file, replaced as a whole under a lock, and read again when it has changed.
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
    """One GPU: its mode, its instances, what ails it, and what it refuses to do."""

    minor: int
    mig_enabled: bool = False
    mig_pending: bool = False
    cuts: list[MigInstanceState] = []
    processes: list[ProcessUsage] = []
    load: float = -1.0
    """Utilisation from 0 to 1; below 0 it follows a wave of its own."""
    is_lost: bool = False
    xids: list[int] = []
    """Xids since the last reset."""
    double_bit_errors: int = 0
    single_bit_errors: int = 0
    remap_pending: bool = False
    remap_failure: bool = False
    remapped_rows: int = 0
    throttle: int = 0
    """NVML's bits."""
    pcie_replays: int = 0
    links_down: int = 0
    link_errors: int = 0
    recovery_action: int = 0
    is_licensed: bool | None = None
    """Whether a virtual GPU has its licence; None for a real one, which needs none."""
    refuses: list[str] = []
    """Operations that fail: `mig-mode`, `create`, `destroy`, `reset`, `create 2g.20gb`, …"""
    needs_reset: bool = False
    """A change of MIG mode waits for a reset."""
    next_instance: int = 1


class Machine(msgspec.Struct, kw_only=True):
    """All GPUs of the simulated node, and the faults so far."""

    gpus: list[GpuState]
    faults: list[Fault] = []
    generation: int = 0


class StateStore:
    """A machine's state: in memory without a path, else in a file."""

    def __init__(self, initial: Machine, path: Path | None = None) -> None:
        self.path = path
        self._machine = initial
        self._seen: tuple[int, int] = (0, 0)
        self._mine = threading.RLock()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock():
                if path.exists():
                    self._read()
                else:
                    self._write()

    def read(self) -> Machine:
        """The state as it is now; not to be changed."""
        if self.path is not None and self._stamp() != self._seen:
            self._read()
        return self._machine

    @contextmanager
    def change(self) -> Iterator[Machine]:
        """The state to change, alone; kept unless the block raises."""
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
        """Alone among the threads of this process and among processes."""
        with self._mine:
            if self.path is None:
                yield
                return
            with self.locked():
                yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone among processes; also for the files that follow from the state."""
        with open(f"{self.path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _stamp(self) -> tuple[int, int]:
        assert self.path is not None
        found = self.path.stat()
        return found.st_mtime_ns, found.st_ino

    def _read(self) -> None:
        assert self.path is not None
        stamp = self._stamp()
        self._machine = msgspec.json.decode(self.path.read_bytes(), type=Machine)
        self._seen = stamp

    def _write(self) -> None:
        if self.path is None:
            return
        beside = self.path.with_suffix(f".{os.getpid()}")
        beside.write_bytes(msgspec.json.encode(self._machine))
        beside.replace(self.path)
        self._seen = self._stamp()
