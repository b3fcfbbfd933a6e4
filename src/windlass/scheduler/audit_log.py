"""Keeps the records of admissions and evictions: JSON lines on stdout, or in files that are rotated by day and size.

`scheduler.scheduler` makes one for `--audit` and hands `write` to `apply`. Files are called `audit-DAY.jsonl`, and
`audit-DAY.1.jsonl` and so on when one is full; those that are too old are deleted when a new one is begun. A record
that can't be written is counted and logged, and scheduling goes on.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from windlass.apply.audit import AuditRecord
from windlass.model.errors import InputError
from windlass.model.times import format_timestamp

log = logging.getLogger(__name__)

STDOUT = "-"
PATTERN = "audit-*.jsonl"
DAY_SECONDS = 86_400
MAX_FILE_BYTES = 64 << 20


class AuditLogOptions(msgspec.Struct, frozen=True):
    target: str = ""
    """A folder, `-` for stdout, or empty for none."""
    days: int = 90
    megabytes: int = 4096
    """The files together take no more; the oldest go first, also before their days are over."""


class AuditLog:
    def __init__(self, options: AuditLogOptions, on_lost: Callable[[], None] = lambda: None) -> None:
        """`on_lost` is called for each record that could not be written."""
        self._options, self._on_lost = options, on_lost
        self._folder = Path(options.target) if options.target not in ("", STDOUT) else None
        self._file: BinaryIO | None = None
        self._day, self._size = "", 0
        self._failure = ""
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._open(_day_of(time.time()))
            except OSError as error:
                raise InputError(f"the audit log can't be written: {error.strerror}", file=options.target) from None

    def write(self, record: AuditRecord) -> None:
        if not self._options.target:
            return
        now = time.time()
        line = msgspec.json.encode(msgspec.structs.replace(record, time=format_timestamp(int(now)))) + b"\n"
        try:
            self._append(line, _day_of(now))
        except OSError as error:
            self._on_lost()
            if str(error) != self._failure:
                log.error("a line of the audit log was lost, and more may follow: %s: %s", error, line.decode())
            self._failure = str(error)
        else:
            self._failure = ""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, line: bytes, day: str) -> None:
        if self._folder is None:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            return
        if self._file is None or day != self._day or self._size + len(line) > MAX_FILE_BYTES:
            self._open(day, len(line))
        assert self._file is not None
        self._file.write(line)  # unbuffered: one write, which replicas that share the folder don't tear apart
        self._size += len(line)

    def _open(self, day: str, needed: int = 0) -> None:
        """Opens the file of that day that has so much room, and deletes what is too old or too much."""
        assert self._folder is not None
        self.close()
        number = 0
        while True:
            path = self._folder / f"audit-{day}{f'.{number}' if number else ''}.jsonl"
            size = path.stat().st_size if path.exists() else 0
            if not size or size + needed <= MAX_FILE_BYTES:
                break
            number += 1
        self._file, self._day, self._size = path.open("ab", buffering=0), day, size
        self._prune(path)

    def _prune(self, current: Path) -> None:
        assert self._folder is not None
        oldest = time.time() - self._options.days * DAY_SECONDS
        files = sorted((found.stat().st_mtime, found) for found in self._folder.glob(PATTERN) if found != current)
        total = sum(found.stat().st_size for _, found in files) + self._size
        for modified, found in files:
            is_too_much = total > self._options.megabytes << 20
            if modified >= oldest and not is_too_much:
                break
            if modified >= oldest:
                log.warning("%s is deleted before %d days are over: the audit log is full", found, self._options.days)
            total -= found.stat().st_size
            found.unlink(missing_ok=True)


def _day_of(seconds: float) -> str:
    return format_timestamp(int(seconds))[:10]
