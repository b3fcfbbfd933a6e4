"""Ledgers into history, and `Usage` out of it again.

The scheduler has a `LedgerHistory` and gives it a ledger every now and then; `windlass usage --history` reads the
folder. Kept are the milli-GPU-seconds of every holder, model and state in slots of five minutes, exactly: the sums of a
slot are all GPUs times the seconds that were observed. Time in which no ledger came is not covered, and so is nobody's
idle time.

    use      state, model, team, queue, user, job     what `usage` adds up
    sum      state, model                             the same without holders, and
    held     queue                                    by queue: few series, which the page's Time view reads at once
    quota    queue                                    nominal quota
    waiting  cause, models                            what waiting work asks for
    rack     rack, state                              GPUs that are out of service
    covered                                           seconds
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from windlass.storage.disk import Disk
from windlass.telemetry.history.folder import DAY_SECONDS
from windlass.telemetry.history.reader import HistoryReader, open_history
from windlass.telemetry.history.writer import HistoryWriter
from windlass.telemetry.ledger import ALLOCATED_STATES, IN_CHANGE, STATES, UNHEALTHY, Ledger
from windlass.telemetry.starts import FirstWork, Start
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
STARTED = "started"
WORKED = "worked"
"""Event: a job's GPUs compute for the first time."""
RACK_FACT = "rack/"
"""Facts: the GPUs of a rack, when they change."""
_SEPARATOR = "\x1f"
_USE, SUM, HELD, QUOTA, WAITING, RACK = "use", "sum", "held", "quota", "waiting", "rack"
SUMMARY_KINDS = (SUM, HELD, QUOTA, WAITING, RACK, COVERED)


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
        self._amounts: dict[str, int] = {}
        """Series of `quota`, `waiting` and `rack` → milli-GPU-seconds of the slot."""
        self._rack_milli: dict[str, int] = {}
        self._facts_day = -1

    def observe(self, ledger: Ledger) -> None:
        """What the ledger before said holds until this one, cut at the ends of slots."""
        last, self._last = self._last, ledger
        self._keep_racks(ledger)
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

    def started(self, at: int, start: Start) -> None:
        fields = {**msgspec.structs.asdict(start.holder), "milli": start.milli, "waited": start.waited_seconds}
        self.writer.add_event(at, STARTED, fields)

    def worked(self, at: int, work: FirstWork) -> None:
        fields: dict[str, object] = {**msgspec.structs.asdict(work.holder), **work.seconds}
        self.writer.add_event(at, WORKED, fields)

    def flush(self) -> None:
        """Writes what is known of the current slot. It is written again, with more, when more is known."""
        if self._slot < 0 or not self._usage.covered_seconds:
            return
        row: dict[str, int | None] = {COVERED: self._usage.covered_seconds}
        for key, states in self._usage.sums.items():
            row |= {series_name(key, state): amount for state, amount in states.items() if amount}
        row |= summary_of(self._usage) | self._amounts
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
            self._add_amount(join_name(WAITING, work.cause, ",".join(work.models)), work.milli * seconds)
        for queue, milli in ledger.quota_milli.items():
            self._add_amount(join_name(QUOTA, queue), milli * seconds)
        for share in ledger.shares:
            if share.state in (UNHEALTHY, IN_CHANGE):
                self._add_amount(join_name(RACK, ledger.racks.get(share.node, ""), share.state), share.milli * seconds)

    def _keep_racks(self, ledger: Ledger) -> None:
        """Once a day, and when they change: a day has to say by itself how large its racks were."""
        found: dict[str, int] = {}
        for share in ledger.shares:
            rack = ledger.racks.get(share.node, "")
            found[rack] = found.get(rack, 0) + share.milli
        day = ledger.at // DAY_SECONDS
        if (found, day) != (self._rack_milli, self._facts_day):
            gone = self._rack_milli.keys() - found.keys()
            facts = {**found, **dict.fromkeys(gone, 0)}
            self.writer.add_facts(ledger.at, {f"{RACK_FACT}{rack}": {"milli": str(m)} for rack, m in facts.items()})
            self._rack_milli, self._facts_day = found, day

    def _add_amount(self, name: str, milli_seconds: int) -> None:
        self._amounts[name] = self._amounts.get(name, 0) + milli_seconds

    def _begin_slot(self, slot: int) -> None:
        """Goes on with what is known of the slot, after a restart or where the clock was set back."""
        self._usage, self._amounts = Usage(0, 0), {}
        if self._newest_slot < 0 or slot <= self._newest_slot:
            reader = HistoryReader(self._disk, SLOT_SECONDS)
            start, end = slot * SLOT_SECONDS, (slot + 1) * SLOT_SECONDS
            self._usage = read_usage(reader, start, end)
            self._amounts = reader.sums(start, end, lambda name: kind_of(name) in (QUOTA, WAITING, RACK))
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
    found: dict[str, int] = {}
    for name, total in reader.sums(start, end, lambda name: kind_of(name) == WAITING).items():
        cause = split_name(name)[1]
        found[cause] = found.get(cause, 0) + total
    return found


def summary_of(usage: Usage) -> dict[str, int]:
    """Series of `sum` and `held` → milli-GPU-seconds."""
    found: dict[str, int] = {}
    for key, states in usage.sums.items():
        for state, amount in states.items():
            if amount:
                name = join_name(SUM, state, key.model)
                found[name] = found.get(name, 0) + amount
        held = sum(states.get(state, 0) for state in ALLOCATED_STATES)
        if held:
            name = join_name(HELD, key.queue)
            found[name] = found.get(name, 0) + held
    return found


def join_name(*parts: str) -> str:
    return _SEPARATOR.join(parts)


def kind_of(name: str) -> str:
    return name.partition(_SEPARATOR)[0]


def split_name(name: str) -> list[str]:
    return name.split(_SEPARATOR)


def series_name(key: UsageKey, state: str) -> str:
    return join_name(_USE, state, key.model, key.team, key.queue, key.user, key.job)


def parse_series_name(name: str) -> tuple[UsageKey, str] | None:
    """None for a name that another version, or nobody, has written."""
    parts = split_name(name)
    if len(parts) != 7 or parts[1] not in STATES:
        return None
    _, state, model, team, queue, user, job = parts
    return UsageKey(team, queue, user, job, model), state


def _is_usage(name: str) -> bool:
    return kind_of(name) in (_USE, COVERED)
