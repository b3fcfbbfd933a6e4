"""Which GPUs have passed the validator on this boot.

The plugin asks it when it starts: a GPU that passed stays usable over a restart of the agent, and has to pass again
after a reboot, since that is when hardware is found wanting.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from windlass.node.whole_file import write_whole


class _Record(msgspec.Struct, kw_only=True):
    boot: str = ""
    passed: list[str] = []


class Gate:
    def __init__(self, path: Path, boot: str) -> None:
        self._path = path
        try:
            record = msgspec.json.decode(path.read_bytes(), type=_Record)
        except (OSError, msgspec.MsgspecError):
            record = _Record()
        self._record = record if record.boot == boot else _Record(boot=boot)

    def is_open(self, uuid: str) -> bool:
        return uuid in self._record.passed

    def open(self, uuid: str) -> None:
        if uuid not in self._record.passed:
            self._record.passed.append(uuid)
            self._write()

    def close(self, uuid: str) -> None:
        if uuid in self._record.passed:
            self._record.passed.remove(uuid)
            self._write()

    def _write(self) -> None:
        write_whole(self._path, msgspec.json.encode(self._record))
