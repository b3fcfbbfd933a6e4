"""Ledgers into history, and `Usage` out of it again.

The scheduler has a `LedgerHistory` and gives it a ledger every now and then; `windlass usage --history` reads the
folder. Kept are the milli-GPU-seconds of every holder, model and state in slots of five minutes, exactly: the sums of a
slot are all GPUs times the seconds that were observed. Time in which no ledger came is not covered, and so is nobody's
idle time.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from windlass.storage.disk import Disk
from windlass.telemetry.history.reader import HistoryReader, open_history
from windlass.telemetry.history.writer import HistoryWriter
from windlass.telemetry.ledger import STATES, Ledger
from windlass.telemetry.usage import Usage, UsageKey

SLOT_SECONDS = 300
MAX_GAP_SECONDS = 120
"""A ledger says what the GPUs did since the one before, if that was not longer ago."""
FLUSH_SECONDS = 60
"""A process that is killed loses no more than that."""
HISTORY_DAYS = 395
"""Thirteen months."""
COVERED = "covered"
"""Series: seconds of the slot that ledgers cover."""
EVICTED = "evicted"
_USE, _WAITING = "use", "waiting"
_SEPARATOR = "\x1f"


class LedgerHistory:
    def __init__(self, folder: Path, days: int = HISTORY_DAYS) -> None:
        """Raises `BlockingIOError` if another process writes there, and `OSError` if the folder can't be used."""
        folder.mkdir(parents=True, exist_ok=True)
        disk = Disk(folder)
        disk.lock()
        self.writer, self._disk = HistoryWriter(disk, SLOT_SECONDS, days), disk
        self._last: Ledger | None = None
        self._slot, self._newest_slot = -1, -1
        self._flushed_at = 0
        self._usage = Usage(0, 0)
        self._waiting: dict[str, int] = {}

    def observe(self, ledger: Ledger) -> None:
        """What the ledger before said holds until this one, cut at the ends of slots."""
        last, self._last = self._last, ledger
        if last is not None and 0 < ledger.at - last.at <= MAX_GAP_SECONDS:
            at = last.at
            while at < ledger.at:
                until = min(ledger.at, (at // SLOT_SECONDS + 1) * SLOT_SECONDS)
                self._add(last, at, until - at)
                at = until
        if abs(ledger.at - self._flushed_at) >= FLUSH_SECONDS:
            self.flush()
            self.writer.sync_or_log()
            self._flushed_at = ledger.at

    def evicted(self, at: int, key: UsageKey, lost_gpu_seconds: int, reason: str, gainer: str) -> None:
        fields = {**msgspec.structs.asdict(key), "lost": lost_gpu_seconds, "reason": reason, "gainer": gainer}
        self.writer.add_event(at, EVICTED, fields)

    def flush(self) -> None:
        """Writes what is known of the current slot. It is written again, with more, when more is known."""
        if self._slot < 0 or not self._usage.covered_seconds:
            return
        row: dict[str, int | None] = {COVERED: self._usage.covered_seconds}
        for key, states in self._usage.sums.items():
            row |= {series_name(key, state): amount for state, amount in states.items() if amount}
        row |= {f"{_WAITING}{_SEPARATOR}{cause}": amount for cause, amount in self._waiting.items()}
        self.writer.append(self._slot * SLOT_SECONDS, row)

    def close(self) -> None:
        self.flush()
        self.writer.close()

    def _add(self, ledger: Ledger, at: int, seconds: int) -> None:
        slot = at // SLOT_SECONDS
        if slot != self._slot:
            self.flush()
            self._begin_slot(slot)
        seconds = min(seconds, SLOT_SECONDS - self._usage.covered_seconds)
        if seconds <= 0:
            return  # the clock was set back: these seconds are in the history already
        self._usage.add_ledger(ledger, seconds)
        for work in ledger.demand.waiting:
            self._waiting[work.cause] = self._waiting.get(work.cause, 0) + work.milli * seconds

    def _begin_slot(self, slot: int) -> None:
        """Goes on with what is known of the slot, after a restart or where the clock was set back."""
        self._usage, self._waiting = Usage(0, 0), {}
        if self._newest_slot < 0 or slot <= self._newest_slot:
            reader = HistoryReader(self._disk, SLOT_SECONDS)
            start, end = slot * SLOT_SECONDS, (slot + 1) * SLOT_SECONDS
            self._usage, self._waiting = read_usage(reader, start, end), read_waiting(reader, start, end)
        self._slot, self._newest_slot = slot, max(slot, self._newest_slot)


def read_usage(reader: HistoryReader, start: int, end: int) -> Usage:
    usage = Usage(start, end)
    for name, total in reader.sums(start, end, _is_usage).items():
        if name == COVERED:
            usage.covered_seconds = total
        else:
            found = parse_series_name(name)
            if found is not None:
                usage.add(*found, total)
    for event in reader.events(start, end):
        if event.kind == EVICTED:
            key = UsageKey(*(str(event.fields.get(field, "")) for field in ("team", "queue", "user", "job")))
            usage.add_lost(key, int(event.fields.get("lost", 0)))
    missing = end - start - usage.covered_seconds
    if missing > SLOT_SECONDS:
        usage.notes.append(f"{missing / 3600:.1f} of {(end - start) / 3600:.1f} hours are not in the history")
    return usage


def open_ledger_history(folder: Path) -> HistoryReader:
    return open_history(folder, SLOT_SECONDS)


def read_waiting(reader: HistoryReader, start: int, end: int) -> dict[str, int]:
    """Cause → milli-GPU-seconds that waited for it."""
    prefix = f"{_WAITING}{_SEPARATOR}"
    sums = reader.sums(start, end, lambda name: name.startswith(prefix))
    return {name.removeprefix(prefix): total for name, total in sums.items()}


def series_name(key: UsageKey, state: str) -> str:
    return _SEPARATOR.join((_USE, state, key.model, key.team, key.queue, key.user, key.job))


def parse_series_name(name: str) -> tuple[UsageKey, str] | None:
    """None for a name that another version, or nobody, has written."""
    parts = name.split(_SEPARATOR)
    if len(parts) != 7 or parts[1] not in STATES:
        return None
    _, state, model, team, queue, user, job = parts
    return UsageKey(team, queue, user, job, model), state


def _is_usage(name: str) -> bool:
    return name == COVERED or name.startswith(f"{_USE}{_SEPARATOR}")
