"""A disk in memory that loses what was not synced; the process can end before and after every operation on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from windlass.storage.disk import Disk

Operation = tuple[int, bytes | None]
"""An offset with the bytes that are written there, or with None where the file is cut."""


class Crash(Exception):
    """The process ended here."""


class File:
    def __init__(self, synced: bytes = b"") -> None:
        self.synced = synced
        self.unsynced: list[Operation] = []

    def content(self, keep: Callable[[Operation], Operation | None] = lambda operation: operation) -> bytes:
        """With those of the unsynced operations that `keep` leaves."""
        data = bytearray(self.synced)
        for operation in self.unsynced:
            kept = keep(operation)
            if kept is None:
                continue
            offset, written = kept
            data.extend(bytes(max(0, offset - len(data))))
            if written is None:
                del data[offset:]
            else:
                data[offset : offset + len(written)] = written
        return bytes(data)


def _torn(operation: Operation) -> Operation:
    offset, data = operation
    return offset, None if data is None else data[: len(data) // 2]


FATES: dict[str, tuple[bool, Callable[[Operation], Operation | None]]] = {
    "all unsynced is lost": (False, lambda operation: None),
    "nothing is lost": (True, lambda operation: operation),
    "writes are torn": (True, _torn),
    "names are lost": (False, lambda operation: operation),
    "names stay, bytes are lost": (True, lambda operation: None),
}


class LossyDisk(Disk):
    def __init__(self, files: dict[str, bytes] | None = None, crash_at: int = -1) -> None:
        super().__init__(Path("/nowhere"))
        self.files = {name: File(data) for name, data in (files or {}).items()}
        self._synced_names = dict(self.files)
        self._crash_at, self.points = crash_at, 0
        self.operations: list[str] = []

    def after_crash(self, fate: str) -> dict[str, bytes]:
        """What is on the disk when the machine is up again."""
        keeps_names, keep = FATES[fate]
        names = self.files if keeps_names else self._synced_names
        return {name: file.content(keep) for name, file in names.items()}

    def names(self) -> list[str]:
        return sorted(self.files)

    def read(self, name: str) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name].content()

    def write(self, name: str, offset: int, data: bytes) -> None:
        self._step(f"write {name}", lambda: self._file(name).unsynced.append((offset, data)))

    def truncate(self, name: str, length: int) -> None:
        self._step(f"truncate {name}", lambda: self._file(name).unsynced.append((length, None)))

    def sync(self, name: str) -> None:
        self._step(f"sync {name}", lambda: self._sync(self._file(name)))

    def sync_folder(self) -> None:
        def sync() -> None:
            self._synced_names = dict(self.files)

        self._step("sync folder", sync)

    def rename(self, old: str, new: str) -> None:
        self._step(f"rename {old} {new}", lambda: self.files.__setitem__(new, self.files.pop(old)))

    def remove(self, name: str) -> None:
        self._step(f"remove {name}", lambda: self.files.__delitem__(name))

    def close(self) -> None:
        pass

    def _file(self, name: str) -> File:
        return self.files.setdefault(name, File())

    @staticmethod
    def _sync(file: File) -> None:
        file.synced, file.unsynced = file.content(), []

    def _step(self, operation: str, run: Callable[[], object]) -> None:
        self._point()
        run()
        self.operations.append(operation)
        self._point()

    def _point(self) -> None:
        self.points += 1
        if self.points == self._crash_at:
            raise Crash
