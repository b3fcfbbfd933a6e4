"""Writes history into a folder: a row of values every interval, closed once a day, the oldest days deleted.

The node agent has one for its samples, the scheduler one for its 5-minute means and outcomes. A row is in the file when
`append` returns, and on the disk within `SYNC_SECONDS`: kill -9 loses nothing, a power cut a minute. What can't be
written is lost and counted, and the next row is tried again; a gap is unmeasured.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Mapping
from typing import Any

from windlass.storage.disk import Disk
from windlass.storage.frames import intact_frames
from windlass.telemetry.history.day import Event, Facts, JournalRecord, Names, Row, encode_day, encode_journal_record
from windlass.telemetry.history.folder import DAY_SECONDS, HistoryFolder, day_name, journal_name

log = logging.getLogger(__name__)

SYNC_SECONDS = 60
NAMES_SHARE = 8
"""Names are written again after this many times their own bytes: a damaged frame of names costs no more than that."""


class HistoryWriter:
    def __init__(self, disk: Disk, step_seconds: int, days: int = 30) -> None:
        """`days`: how many days that have data are kept. Counted, not computed from the clock, which may be wrong."""
        if DAY_SECONDS % step_seconds:
            raise ValueError(f"a day has no whole number of steps of {step_seconds} s")
        self._disk, self._step, self._days = disk, step_seconds, days
        self._folder = HistoryFolder(disk)
        self._day = -1
        self._length = self._number = self._session = 0
        self._ids: dict[str, int] = {}
        self._names_bytes = self._bytes_since_names = 0
        self._synced_at: float | None = None
        self.lost_rows = 0
        self._failure = ""

    def append(self, at: float, values: Mapping[str, int | None]) -> bool:
        """The values at this time; series that are absent or None are unmeasured. False if it could not be written."""
        day, second = divmod(int(at), DAY_SECONDS)
        known = {name: value for name, value in values.items() if value is not None}
        if not self._begin(day):
            return False
        new = [name for name in known if name not in self._ids]
        must_repeat = self._bytes_since_names > NAMES_SHARE * max(1024, self._names_bytes)
        records: list[JournalRecord] = []
        if must_repeat:
            records.append(Names(self._session, 0, tuple(self._ids)))
            self._names_bytes = self._bytes_since_names = 0
        if new:
            first = len(self._ids)
            records.append(Names(self._session, first, tuple(new)))
            self._ids.update(zip(new, range(first, first + len(new)), strict=True))
        ids = array("I", [self._ids[name] for name in known]).tobytes()
        records.append(Row(self._session, second // self._step, ids, tuple(known.values())))
        is_written = self._write(records)
        self._sync_if_due(at)
        return is_written

    def add_facts(self, at: float, facts: dict[str, dict[str, str]]) -> bool:
        return self._begin(int(at) // DAY_SECONDS) and self._write([Facts(facts)])

    def add_event(self, at: float, kind: str, fields: dict[str, Any]) -> bool:
        return self._begin(int(at) // DAY_SECONDS) and self._write([Event(int(at), kind, fields)])

    def sync(self) -> None:
        if self._day >= 0:
            self._disk.sync(journal_name(self._day))

    def sync_or_log(self) -> bool:
        """For callers whose values are of an earlier time than the clock's, so that `append` can't tell what is due."""
        try:
            self.sync()
        except OSError as error:
            self._on_failure(error)
            return False
        return True

    def close(self) -> None:
        """The journal stays open for the next writer; the day is closed when a later one begins."""
        self.sync_or_log()
        self._disk.close()

    # Days

    def _begin(self, day: int) -> bool:
        """Makes `day` the current one, and closes the others."""
        if day == self._day:
            return True
        try:
            if self._day >= 0:
                self.sync()
            self._open(day)
        except OSError as error:
            self._on_failure(error)
            self._day = -1
            return False
        for other in self._folder.journals():
            if other != day:
                self._close_day(other)
        self._prune()
        return True

    def _open(self, day: int) -> None:
        """Goes on with the day's journal behind the last frame that is whole."""
        name = journal_name(day)
        data = self._disk.read(name) if name in self._disk.names() else b""
        length, number = whole_length(data)
        self._disk.truncate(name, length)
        self._disk.sync_folder()
        self._day, self._length, self._number, self._ids = day, length, number, {}
        self._session = number
        self._names_bytes = self._bytes_since_names = 0

    def _close_day(self, day: int) -> None:
        """Writes the day's own file. Until it has its name, the journal counts; then the file does."""
        temporary, final = f"{day_name(day)}.new", day_name(day)
        try:
            data = encode_day(self._folder.read_day(day))
            self._disk.truncate(temporary, 0)
            self._disk.write(temporary, 0, data)
            self._disk.sync(temporary)
            self._disk.rename(temporary, final)
            self._disk.sync_folder()
            self._disk.remove(journal_name(day))
        except OSError as error:  # a full disk: the journal stays, and is tried again with the next day
            self._on_failure(error)

    def _prune(self) -> None:
        for day in self._folder.days()[: -self._days]:
            for name in (day_name(day), journal_name(day)):
                if name in self._disk.names():
                    try:
                        self._disk.remove(name)
                    except OSError as error:
                        self._on_failure(error)

    # Writing

    def _write(self, records: list[JournalRecord]) -> bool:
        frames = [encode_journal_record(self._number + place, record) for place, record in enumerate(records)]
        data, name = b"".join(frames), journal_name(self._day)
        try:
            self._disk.write(name, self._length, data)
        except OSError as error:
            self._on_failure(error)
            self.lost_rows += 1
            self._day = -1  # the next row opens the journal again, behind the last whole frame
            return False
        names = sum(len(frame) for frame, record in zip(frames, records, strict=True) if isinstance(record, Names))
        self._length += len(data)
        self._number += len(records)
        self._names_bytes += names
        self._bytes_since_names += len(data) - names
        self._failure = ""
        return True

    def _sync_if_due(self, at: float) -> None:
        if self._synced_at is None or not 0 <= at - self._synced_at < SYNC_SECONDS:
            self._synced_at = at if self.sync_or_log() else None

    def _on_failure(self, error: OSError) -> None:
        if str(error) != self._failure:
            log.error("history can't be written, and what follows is lost until it can: %s", error)
        self._failure = str(error)


def whole_length(data: bytes) -> tuple[int, int]:
    """(length, number of the next frame) of a journal without what a crash has left unfinished at its end."""
    length = number = 0
    for _, frame in intact_frames(data):
        length, number = frame.end, frame.number + 1
    return length, number
