"""The file operations of a folder, one by one, so that tests can lose what was not synced.

`embedded.store.state_log` and its neighbours, and `telemetry.history`, do nothing to files except through a `Disk`. A
write is certain only after `sync`, a file's name only after `sync_folder`.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

LOCK_FILE = "state.lock"
LOCK_SECONDS = 2.0
"""How long to wait for a process that is just ending."""


class Disk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptors: dict[str, int] = {}

    def lock(self, seconds: float = LOCK_SECONDS) -> None:
        """Raises `BlockingIOError` if another process has the folder. The lock ends with this process."""
        descriptor = self._open(LOCK_FILE)
        give_up_at = time.monotonic() + seconds
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= give_up_at:
                    raise
            time.sleep(0.05)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder))

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def read_part(self, name: str, offset: int, length: int) -> bytes:
        """Fewer bytes where the file ends before."""
        with (self.folder / name).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def length(self, name: str) -> int:
        return (self.folder / name).stat().st_size

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Creates the file if it doesn't exist. It may contain Secrets, so only its owner may read it."""
        descriptor, view = self._open(name), memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, offset)
            offset, view = offset + written, view[written:]

    def truncate(self, name: str, length: int) -> None:
        os.ftruncate(self._open(name), length)

    def sync(self, name: str) -> None:
        os.fdatasync(self._open(name))

    def sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        self._forget(old)
        self._forget(new)
        os.replace(self.folder / old, self.folder / new)

    def remove(self, name: str) -> None:
        self._forget(name)
        os.unlink(self.folder / name)

    def close(self) -> None:
        for name in tuple(self._descriptors):
            self._forget(name)

    def _open(self, name: str) -> int:
        descriptor = self._descriptors.get(name)
        if descriptor is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = self._descriptors[name] = os.open(self.folder / name, flags, 0o600)
        return descriptor

    def _forget(self, name: str) -> None:
        descriptor = self._descriptors.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)
