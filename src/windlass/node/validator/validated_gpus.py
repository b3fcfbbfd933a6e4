"""Which GPUs have passed the validator on this boot.

`health_watch` asks when it starts: a GPU that passed stays usable over a restart of the agent, and has to pass
again after a reboot, when hardware faults show.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from windlass.node.atomic_file import write_atomically


class _Record(msgspec.Struct, kw_only=True):
    boot: str = ""
    passed: list[str] = []


class ValidatedGpus:
    def __init__(self, path: Path, boot: str) -> None:
        self._path = path
        try:
            record = msgspec.json.decode(path.read_bytes(), type=_Record)
        except (OSError, msgspec.MsgspecError):
            record = _Record()
        self._record = record if record.boot == boot else _Record(boot=boot)

    def has_passed(self, uuid: str) -> bool:
        return uuid in self._record.passed

    def mark_passed(self, uuid: str) -> None:
        if uuid not in self._record.passed:
            self._record.passed.append(uuid)
            self._write()

    def mark_failed(self, uuid: str) -> None:
        if uuid in self._record.passed:
            self._record.passed.remove(uuid)
            self._write()

    def _write(self) -> None:
        write_atomically(self._path, msgspec.json.encode(self._record))
