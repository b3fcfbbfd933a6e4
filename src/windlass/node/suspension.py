"""Suspends the CUDA work of a pod in place, and resumes it: all of its processes, or none.

Called by `windlass node suspend` and `resume`. A suspended process stays where it is: its memory on the GPU is in host
memory, its next CUDA call waits. That room is checked before anything is done, since a pod above the limit of its
memory cgroup would be killed. What the driver refuses is undone, so that the pod goes on as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from windlass.model.errors import InputError
from windlass.node.backend.protocol import DeviceError
from windlass.node.cuda_checkpoint import CudaState
from windlass.node.exporter.pod_resources import pod_uids_of_processes
from windlass.node.host_root import HostRoot

MIB = 1 << 20
SPARE_MIB = 512
"""Of host memory that stays free: the driver needs some for its own."""


class Checkpointer(Protocol):
    """What `CudaCheckpoint` offers."""

    def state(self, pid: int) -> CudaState | None: ...
    def lock(self, pid: int, timeout_ms: int) -> None: ...
    def checkpoint(self, pid: int) -> None: ...
    def restore(self, pid: int) -> None: ...
    def unlock(self, pid: int) -> None: ...


class CudaProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a pod that uses CUDA."""

    pid: int
    command: str
    state: CudaState
    memory_mib: int = 0
    """On GPUs; 0 while it is suspended."""


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to one process."""

    pid: int
    command: str
    memory_mib: int
    seconds: float


class Suspender:
    def __init__(
        self,
        driver: Checkpointer,
        host: HostRoot,
        memory_mib: Mapping[int, int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`memory_mib`: GPU memory by process."""
        self._driver = driver
        self._host = host
        self._memory_mib = memory_mib
        self._clock = clock

    def processes_of_pod(self, namespace: str, name: str) -> list[CudaProcess]:
        """Those that use CUDA. The kubelet's log folders say the pod's UID, so that no API server is asked."""
        uid = pod_uid(self._host, namespace, name)
        pids = pod_uids_of_processes(self._host, running_pids(self._host))
        return self.processes(pid for pid, of in sorted(pids.items()) if of == uid)

    def processes(self, pids: Iterable[int]) -> list[CudaProcess]:
        found = []
        for pid in pids:
            state = self._driver.state(pid)
            if state is not None:
                command = self._host.read(f"/proc/{pid}/comm") or "?"
                memory_mib = self._memory_mib.get(pid, 0)
                found.append(CudaProcess(pid=pid, command=command, state=state, memory_mib=memory_mib))
        return found

    def suspend(self, processes: Iterable[CudaProcess], timeout_ms: int) -> list[Suspension]:
        """First all are locked, so that none of them waits for another one that is suspended already."""
        running = [process for process in processes if process.state is CudaState.RUNNING]
        self._check_room(running)
        started = self._clock()
        locked: list[int] = []
        gone: list[int] = []
        done = []
        try:
            for process in running:
                self._driver.lock(process.pid, timeout_ms)
                locked.append(process.pid)
            for process in running:
                self._driver.checkpoint(process.pid)
                gone.append(process.pid)
                done.append(self._suspension(process, started))
        except DeviceError as error:
            left = self._undo(locked, gone)
            raise DeviceError(
                f"process {process.pid} ({process.command}) can't be suspended: {error}; {left}"
            ) from None
        return done

    def resume(self, processes: Iterable[CudaProcess]) -> list[Suspension]:
        """All are restored before the first goes on; also what was only locked, by a suspension that was killed."""
        started = self._clock()
        stopped = [process for process in processes if process.state in (CudaState.LOCKED, CudaState.CHECKPOINTED)]
        for process in stopped:
            if process.state is CudaState.CHECKPOINTED:
                try:
                    self._driver.restore(process.pid)
                except DeviceError as error:
                    raise DeviceError(
                        f"process {process.pid} ({process.command}) can't be resumed and stays suspended: {error}"
                    ) from None
        for process in stopped:
            self._driver.unlock(process.pid)
        return [self._suspension(process, started) for process in stopped]

    def _suspension(self, process: CudaProcess, started: float) -> Suspension:
        seconds = self._clock() - started
        return Suspension(
            pid=process.pid, command=process.command, memory_mib=process.memory_mib, seconds=round(seconds, 3)
        )

    def _undo(self, locked: list[int], gone: list[int]) -> str:
        """Puts back what was done so far; says what that left."""
        lost = []
        for pid in locked:
            try:
                if pid in gone:
                    self._driver.restore(pid)
                self._driver.unlock(pid)
            except DeviceError:
                lost.append(str(pid))
        if lost:
            return f"process {', '.join(lost)} could not be put back either: end the pod"
        return "nothing is suspended"

    def _check_room(self, running: list[CudaProcess]) -> None:
        """Raises if host memory, or a memory cgroup above the processes, can't take what is on the GPUs."""
        asked: dict[str, int] = {}
        for process in running:
            for group in memory_cgroups(self._host, process.pid):
                asked[group] = asked.get(group, 0) + process.memory_mib
        for group, mib in asked.items():
            room = cgroup_room_mib(self._host, group)
            if room is not None and mib > room:
                raise InputError(
                    f"{mib} MiB on GPUs don't fit into the {room} MiB that its memory limit leaves ({group})",
                    remedy="raise the container's memory limit by what it has on GPUs",
                )
        total, room = sum(process.memory_mib for process in running), available_mib(self._host) - SPARE_MIB
        if total > room:
            raise InputError(
                f"{total} MiB on GPUs don't fit into the {max(0, room)} MiB of host memory that are free",
                remedy="suspend fewer pods of this node, or one that has less on its GPUs",
            )


def pod_uid(host: HostRoot, namespace: str, name: str) -> str:
    """From the folder `NAMESPACE_NAME_UID` of the kubelet's logs; the youngest, where there were several."""
    folders = [Path(path) for path in host.glob(f"/var/log/pods/{namespace}_{name}_*")]
    if not folders:
        raise InputError(
            f"this node has no pod {namespace}/{name}", remedy="run it on the pod's node, or name processes by --pid"
        )
    newest = max(folders, key=lambda folder: host.path(str(folder)).stat().st_mtime)
    return newest.name.rpartition("_")[2]


def running_pids(host: HostRoot) -> list[int]:
    folder = host.path("/proc")
    return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isascii() and entry.name.isdigit())


def memory_cgroups(host: HostRoot, pid: int) -> list[str]:
    """The process's cgroup (version 2) and all above it."""
    for line in host.read(f"/proc/{pid}/cgroup").splitlines():
        number, _, path = line.partition("::")
        if number == "0":
            parts = [part for part in path.split("/") if part and part != ".."]  # ".." in a container of its own
            return ["/" + "/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return []


def cgroup_room_mib(host: HostRoot, group: str) -> int | None:
    """What a cgroup may still take; None without a limit."""
    limit, used = (host.read(f"/sys/fs/cgroup{group}/memory.{name}") for name in ("max", "current"))
    if not (limit.isascii() and limit.isdigit() and used.isascii() and used.isdigit()):
        return None
    return max(0, int(limit) - int(used)) // MIB


def available_mib(host: HostRoot) -> int:
    for line in host.read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    raise DeviceError("/proc/meminfo has no MemAvailable")
