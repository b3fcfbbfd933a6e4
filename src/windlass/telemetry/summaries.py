"""The few series of the ledger's history that are no one's in particular, kept in memory: what a chart reads at once.

The page asks for any range, often, by several viewers. Closed days don't change, so they are read once; the day that is
written is read again after `OPEN_SECONDS`. Used by `telemetry.time_view`, in one thread at a time.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec

from windlass.storage.disk import Disk
from windlass.telemetry.history.day import Event
from windlass.telemetry.history.folder import DAY_SECONDS, HistoryFolder
from windlass.telemetry.usage_history import SLOT_SECONDS, SUMMARY_KINDS, kind_of

OPEN_SECONDS = 20.0


class DaySummary(msgspec.Struct):
    series: dict[str, tuple[array[int], array[int]]]
    """Name → slots of the day, values."""
    events: list[Event]
    facts: dict[str, dict[str, str]]
    read_at: float
    is_closed: bool


class Summaries:
    def __init__(self, folder: Path) -> None:
        self._folder = HistoryFolder(Disk(folder))
        self._days: dict[int, DaySummary] = {}
        self.notes: list[str] = []

    def has_any(self) -> bool:
        try:
            return bool(self._folder.days())
        except OSError:
            return False

    def load(self, start: int, end: int) -> None:
        """Reads ahead, so that the first viewer does not wait for it."""
        for _ in self._between(start, end):
            pass

    def points(self, start: int, end: int) -> Iterator[tuple[str, int, int]]:
        """(name, time, value) of every series."""
        for day, summary in self._between(start, end):
            base = day * DAY_SECONDS
            is_whole = start <= base and base + DAY_SECONDS <= end
            for name, (slots, values) in summary.series.items():
                for slot, value in zip(slots, values, strict=True):
                    at = base + slot * SLOT_SECONDS
                    if is_whole or start <= at < end:
                        yield name, at, value

    def events(self, start: int, end: int) -> Iterator[Event]:
        for _, summary in self._between(start, end):
            yield from (event for event in summary.events if start <= event.at < end)

    def facts(self, start: int, end: int) -> dict[str, dict[str, str]]:
        """The newest of everything that has any."""
        found: dict[str, dict[str, str]] = {}
        for _, summary in self._between(start, end):
            found |= summary.facts
        return found

    def _between(self, start: int, end: int) -> Iterator[tuple[int, DaySummary]]:
        days = self._folder.days()
        self._days = {day: found for day, found in self._days.items() if day in days}
        for day in days:
            if day * DAY_SECONDS < end and (day + 1) * DAY_SECONDS > start:
                yield day, self._day(day)

    def _day(self, day: int) -> DaySummary:
        found = self._days.get(day)
        if found is not None:
            is_fresh = time.monotonic() - found.read_at < OPEN_SECONDS
            if is_fresh or (found.is_closed and self._folder.is_closed(day)):
                return found
        found = self._days[day] = self._read(day)
        return found

    def _read(self, day: int) -> DaySummary:
        now = time.monotonic()
        if self._folder.is_closed(day):
            index = self._folder.index(day)
            names = [name for name in index.series if kind_of(name) in SUMMARY_KINDS]
            series = {name: _arrays(*self._folder.read_series(day, index, name)) for name in names}
            others = self._folder.read_others(day)
            return DaySummary(series, others.events, others.facts, now, True)
        whole = self._folder.read_day(day)
        series = {
            name: _arrays(list(values), list(values.values()))
            for name, values in whole.series.items()
            if kind_of(name) in SUMMARY_KINDS
        }
        return DaySummary(series, whole.events, whole.facts, now, False)


def _arrays(slots: list[int], values: list[int]) -> tuple[array[int], array[int]]:
    return array("H", slots), array("q", values)
