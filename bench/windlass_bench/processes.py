"""What the benchmarks ask the system about processes: ports that are free, processor time, memory."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def free_ports(count: int) -> list[int]:
    """All are held until the last is found, so that no two are the same."""
    sockets = [socket.socket() for _ in range(count)]
    for connection in sockets:
        connection.bind(("127.0.0.1", 0))
    ports = [int(connection.getsockname()[1]) for connection in sockets]
    for connection in sockets:
        connection.close()
    return ports


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int | str, field: str) -> float:
    """`VmRSS` is what it has, `VmHWM` the most that it had."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024
