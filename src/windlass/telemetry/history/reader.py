"""Reads history out of a folder: series, sums, means, facts and events of any range of time.

`windlass usage` and the page read the scheduler's folder while it is written. What is not there is unmeasured: it is
left out of series, sums and means, and never counts as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from windlass.model.errors import InputError
from windlass.storage.disk import Disk
from windlass.telemetry.history.day import Day, Event
from windlass.telemetry.history.folder import DAY_SECONDS, HistoryFolder

Points = list[tuple[int, int]]
"""(time, value), in order."""


class HistoryReader:
    def __init__(self, disk: Disk, step_seconds: int) -> None:
        self._folder, self._step = HistoryFolder(disk), step_seconds
        self._open_days: dict[int, Day] = {}

    def refresh(self) -> None:
        """Forgets what was read of days that are still written."""
        self._open_days.clear()

    def points(self, name: str, start: int, end: int) -> Points:
        """The values of a series from `start` to before `end`."""
        found: Points = []
        for day in self._days(start, end):
            slots, values = self._series(day, name)
            base = day * DAY_SECONDS
            times = (base + slot * self._step for slot in slots)
            found += [(at, value) for at, value in zip(times, values, strict=True) if start <= at < end]
        return found

    def means(self, name: str, start: int, end: int, step: int) -> list[tuple[int, float]]:
        """Means over `step` seconds; steps without any value are left out."""
        sums: dict[int, list[int]] = {}
        for at, value in self.points(name, start, end):
            entry = sums.setdefault(start + (at - start) // step * step, [0, 0])
            entry[0] += value
            entry[1] += 1
        return [(at, total / count) for at, (total, count) in sorted(sums.items())]

    def sums(self, start: int, end: int, is_wanted: Callable[[str], bool] = lambda name: True) -> dict[str, int]:
        """Series → sum of its values. Whole days are summed up in their index already."""
        found: dict[str, int] = {}
        for day in self._days(start, end):
            base = day * DAY_SECONDS
            is_whole = start <= base and base + DAY_SECONDS <= end
            for name, total in self._day_sums(day, start, end, is_whole, is_wanted):
                found[name] = found.get(name, 0) + total
        return found

    def names(self, start: int, end: int) -> list[str]:
        found: set[str] = set()
        for day in self._days(start, end):
            found.update(self._folder.index(day).series if self._folder.is_closed(day) else self._open(day).series)
        return sorted(found)

    def facts(self, start: int, end: int) -> dict[str, dict[str, str]]:
        """The newest facts of everything that has any."""
        found: dict[str, dict[str, str]] = {}
        for day in self._days(start, end):
            found |= self._others(day).facts
        return found

    def events(self, start: int, end: int) -> list[Event]:
        found = [event for day in self._days(start, end) for event in self._others(day).events]
        return sorted((event for event in found if start <= event.at < end), key=lambda event: event.at)

    def _days(self, start: int, end: int) -> Iterator[int]:
        for day in self._folder.days():
            if day * DAY_SECONDS < end and (day + 1) * DAY_SECONDS > start:
                yield day

    def _series(self, day: int, name: str) -> tuple[list[int], list[int]]:
        if self._folder.is_closed(day):
            return self._folder.read_series(day, self._folder.index(day), name)
        values = self._open(day).series.get(name, {})
        slots = sorted(values)
        return slots, [values[slot] for slot in slots]

    def _day_sums(
        self, day: int, start: int, end: int, is_whole: bool, is_wanted: Callable[[str], bool]
    ) -> Iterator[tuple[str, int]]:
        if is_whole and self._folder.is_closed(day):
            entries = self._folder.index(day).series.items()
            yield from ((name, entry.total) for name, entry in entries if is_wanted(name))
            return
        base = day * DAY_SECONDS
        for name, values in self._open(day).series.items():
            inside = [value for slot, value in values.items() if start <= base + slot * self._step < end]
            if inside and is_wanted(name):
                yield name, sum(inside)

    def _others(self, day: int) -> Day:
        if not self._folder.is_closed(day):
            return self._open(day)
        return self._folder.read_others(day)

    def _open(self, day: int) -> Day:
        """All of a day that has no index: it is still written, or a part of it is asked for."""
        found = self._open_days.get(day)
        if found is None:
            found = self._open_days[day] = self._folder.read_day(day)
        return found


def open_history(folder: Path, step_seconds: int) -> HistoryReader:
    """Raises an `InputError` where there is no history."""
    if not folder.is_dir():
        raise InputError("there is no such folder", file=str(folder), remedy="name the folder of `--history`")
    reader = HistoryReader(Disk(folder), step_seconds)
    if not HistoryFolder(Disk(folder)).days():
        raise InputError(
            "has no history", file=str(folder), remedy="name the folder that `windlass scheduler --history` writes"
        )
    return reader
