"""What suspended processes had on which GPUs, in files under /run: the driver forgets it, and `resume` must know it.

Used by `node.suspension`. A record belongs to one process: its start time tells it from a later one with the same PID.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.node.atomic_file import write_atomically
from windlass.node.host_root import HostRoot

FOLDER = "/run/windlass/suspended"


class SuspensionRecords:
    def __init__(self, host: HostRoot) -> None:
        self._host = host

    def write(self, pid: int, memory_mib: Mapping[str, int]) -> None:
        """`memory_mib`: by the GPU's UUID."""
        write_atomically(self._host.path(self._name(pid)), msgspec.json.encode(dict(memory_mib)))

    def read(self, pid: int) -> dict[str, int]:
        """Empty for a process that something else has suspended."""
        text = self._host.read(self._name(pid))
        return msgspec.json.decode(text, type=dict[str, int]) if text else {}

    def remove(self, pid: int) -> None:
        self._host.path(self._name(pid)).unlink(missing_ok=True)

    def _name(self, pid: int) -> str:
        fields = self._host.read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        started = fields[19] if len(fields) > 19 else "0"
        return f"{FOLDER}/{pid}-{started}.json"
