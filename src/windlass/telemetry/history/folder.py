"""The files of a history folder by day. `writer` and `reader` use it; neither needs the other."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from windlass.storage.disk import Disk
from windlass.telemetry.history.day import (
    Day,
    Index,
    index_offset,
    read_block,
    read_index,
    read_journal,
    read_other,
    scan_index,
)

DAY_SECONDS = 86_400
TAIL_BYTES = 64 << 10
_FILE = re.compile(r"([0-9]{8})\.(day|journal)")


def day_name(day: int) -> str:
    """The closed file of a day; `day` is counted from 1970."""
    return f"{_date(day)}.day"


def journal_name(day: int) -> str:
    return f"{_date(day)}.journal"


class HistoryFolder:
    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    def days(self) -> list[int]:
        """Days of which there is a file, in order."""
        return sorted({day for day, _ in self._files()})

    def journals(self) -> list[int]:
        return sorted(day for day, kind in self._files() if kind == "journal")

    def is_closed(self, day: int) -> bool:
        """Whether the day has its own file, and no journal beside it."""
        files = self._files()
        return (day, "day") in files and (day, "journal") not in files

    def read_day(self, day: int) -> Day:
        """All of it: the closed file, and over it the journal. The journal is read first: a writer that closes the day
        meanwhile removes it only when the closed file is there."""
        found, journal = Day(), self._read(journal_name(day))
        index, data = self._whole(day)
        for name, entry in index.series.items():
            slots, values = read_block(data[entry.offset : entry.offset + entry.length])
            found.series[name] = dict(zip(slots, values, strict=True))
        for offset, length in index.others:
            found.merge(read_other(data[offset : offset + length]))
        found.merge(read_journal(journal))
        return found

    def index(self, day: int) -> Index:
        """Of the closed file; empty where there is none."""
        name = day_name(day)
        try:
            length = self.disk.length(name)
        except FileNotFoundError:
            return Index(0, {}, ())
        tail = self.disk.read_part(name, max(0, length - TAIL_BYTES), TAIL_BYTES)
        offset = index_offset(tail, length)
        if offset is not None and length - offset > len(tail):
            tail = self.disk.read_part(name, offset, length - offset)
        return read_index(tail, length) or scan_index(self._read(name))

    def read_series(self, day: int, index: Index, name: str) -> tuple[list[int], list[int]]:
        """(slots, values) of a series of a closed day."""
        entry = index.series.get(name)
        if entry is None:
            return [], []
        return read_block(self.disk.read_part(day_name(day), entry.offset, entry.length))

    def read_others(self, day: int) -> Day:
        """Facts and events of a closed day."""
        found = Day()
        for offset, length in self.index(day).others:
            found.merge(read_other(self.disk.read_part(day_name(day), offset, length)))
        return found

    def _whole(self, day: int) -> tuple[Index, bytes]:
        data = self._read(day_name(day))
        if not data:
            return Index(0, {}, ()), b""
        return read_index(data, len(data)) or scan_index(data), data

    def _read(self, name: str) -> bytes:
        try:
            return self.disk.read(name)
        except FileNotFoundError:
            return b""

    def _files(self) -> set[tuple[int, str]]:
        found = set()
        for name in self.disk.names():
            match = _FILE.fullmatch(name)
            day = _day(match[1]) if match else None
            if match and day is not None:
                found.add((day, match[2]))
        return found


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_SECONDS, UTC).strftime("%Y%m%d")


def _day(text: str) -> int | None:
    try:
        return int(datetime.strptime(text, "%Y%m%d").replace(tzinfo=UTC).timestamp()) // DAY_SECONDS
    except ValueError:
        return None
