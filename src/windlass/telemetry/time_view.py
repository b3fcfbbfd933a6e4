"""The page's Time view: what a range of the recorded ledger says, as one document.

    history ─► summaries ─► make_time_view ─► utilisation against allocation, bottleneck, waits, preemptions, shares

Every number is a sum of the ledger. Steps in which no ledger was recorded are None, and so is utilisation where nothing
was measured: a gap is nobody's idle time. A viewer who may not see all namespaces gets the sums of the fleet, and
queues and jobs of its own namespaces only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Any

import msgspec

from windlass.telemetry.activity import COMPUTING, HELD_IDLE, SPINNING
from windlass.telemetry.bottleneck import BottleneckLine
from windlass.telemetry.history.day import Event
from windlass.telemetry.ledger import ALLOCATED_STATES, FREE, RESERVED, STATES, STRANDED
from windlass.telemetry.summaries import Summaries
from windlass.telemetry.usage import MILLI_SECONDS_PER_HOUR
from windlass.telemetry.usage_history import (
    COVERED,
    EVICTED,
    HELD,
    QUOTA,
    SLOT_SECONDS,
    STARTED,
    SUM,
    WAITING,
    split_name,
)

MAX_STEPS = 288
TARGET_UTILISATION = 0.7
"""The line that the guides draw: a fleet that is busy for less of the time that it is held wastes money."""
SIZES = ((1000, "1 GPU"), (8000, "2 to 8 GPUs"), (10**12, "more than 8 GPUs"))
"""Milli-GPU up to which a start is of that size."""
Line = list[float | None]


class BottleneckCause(msgspec.Struct, frozen=True, rename="camel"):
    cause: str
    models: tuple[str, ...]
    gpus: float
    """Mean over the time that was recorded."""
    sentence: str
    line: Line


class WaitRow(msgspec.Struct, frozen=True):
    queue: str
    size: str
    starts: int
    p50: int
    p95: int


class PreemptionRow(msgspec.Struct, frozen=True, rename="camel"):
    queue: str
    reason: str
    evictions: int
    lost_gpu_hours: float


class ShareRow(msgspec.Struct, frozen=True):
    queue: str
    held: float
    """Mean GPUs, as `quota`."""
    quota: float | None
    """None: the queue has no quota of GPUs, or there is no queue."""
    line: Line


class TimeView(msgspec.Struct, frozen=True, rename="camel"):
    start: int
    end: int
    step: int
    covered_seconds: int
    states: dict[str, Line]
    """State → mean GPUs in every step."""
    gpu_hours: dict[str, float]
    allocation: Line
    """Held GPUs of all GPUs, 0 to 1."""
    utilisation: Line
    """Busy GPUs of held ones that were measured, 0 to 1."""
    mean_allocation: float | None
    mean_utilisation: float | None
    measured_share: float | None
    """Of the held GPU time."""
    story: str
    bottleneck: list[BottleneckCause]
    waits: list[WaitRow]
    preemptions: list[PreemptionRow]
    shares: list[ShareRow]
    notes: list[str] = []
    target: float = TARGET_UTILISATION


class Audience(msgspec.Struct, frozen=True):
    """What a viewer may see by name; None: everything."""

    namespaces: frozenset[str] | None = None
    queues: frozenset[str] = frozenset()

    def may_see_queue(self, queue: str) -> bool:
        return self.namespaces is None or queue in self.queues

    def may_see_job(self, job: str) -> bool:
        """`job`: `Kind namespace/name`."""
        return self.namespaces is None or job.partition(" ")[2].partition("/")[0] in self.namespaces


EVERYBODY = Audience()


def make_time_view(summaries: Summaries, start: int, end: int, audience: Audience = EVERYBODY) -> TimeView:
    """`end` is at least a slot after `start`."""
    table = _Table(start, end)
    for name, at, value in summaries.points(table.start, table.end):
        table.add(name, at, value)
    events = list(summaries.events(table.start, table.end))
    total = table.totals
    held = sum(total.get((SUM, state), 0) for state in ALLOCATED_STATES)
    busy, measured = table.busy(total)
    everything = sum(total.get((SUM, state), 0) for state in STATES)
    causes = _bottleneck(table)
    return TimeView(
        start=table.start,
        end=table.end,
        step=table.step,
        covered_seconds=table.covered,
        states={state: table.line((SUM, state)) for state in STATES if total.get((SUM, state))},
        gpu_hours={state: total.get((SUM, state), 0) / MILLI_SECONDS_PER_HOUR for state in STATES},
        allocation=table.ratio_line(table.held_of_all),
        utilisation=table.ratio_line(table.busy),
        mean_allocation=_ratio(held, everything),
        mean_utilisation=_ratio(busy, measured),
        measured_share=_ratio(measured, held),
        story=_story(causes, _ratio(held, everything), table.covered),
        bottleneck=causes,
        waits=_waits(events, audience),
        preemptions=_preemptions(events, audience),
        shares=_shares(table, audience),
        notes=_notes(table, held, measured),
    )


Key = tuple[str, ...]
Sums = Mapping[Key, int]


class _Table:
    """Sums of every series by step. Models are added up, except those of free GPUs and of waiting work."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start // SLOT_SECONDS * SLOT_SECONDS
        slots = max(1, -(-(end - self.start) // SLOT_SECONDS))
        self.step = -(-slots // MAX_STEPS) * SLOT_SECONDS
        self.steps: list[dict[Key, int]] = [{} for _ in range(-(-slots * SLOT_SECONDS // self.step))]
        self.end = self.start + slots * SLOT_SECONDS
        self.totals: dict[Key, int] = {}
        self._keys: dict[str, tuple[Key, ...]] = {}

    @property
    def covered(self) -> int:
        return self.totals.get((COVERED,), 0)

    def mean_milli(self, key: Key) -> float:
        return self.totals.get(key, 0) / max(1, self.covered)

    def add(self, name: str, at: int, value: int) -> None:
        step = self.steps[(at - self.start) // self.step]
        keys = self._keys.get(name)
        if keys is None:
            keys = self._keys[name] = _keys_of(name)
        for key in keys:
            step[key] = step.get(key, 0) + value
            self.totals[key] = self.totals.get(key, 0) + value

    def line(self, key: Key) -> Line:
        """Mean GPUs in every step; None where nothing was recorded."""
        return [_gpus(step.get(key, 0), step.get((COVERED,), 0)) for step in self.steps]

    def ratio_line(self, parts: Callable[[Sums], tuple[int, int]]) -> Line:
        return [_ratio(*parts(step)) for step in self.steps]

    @staticmethod
    def held_of_all(sums: Sums) -> tuple[int, int]:
        amounts = {state: sums.get((SUM, state), 0) for state in STATES}
        return sum(amounts[state] for state in ALLOCATED_STATES), sum(amounts.values())

    @staticmethod
    def busy(sums: Sums) -> tuple[int, int]:
        """(busy, measured) milli-GPU-seconds."""
        busy = sums.get((SUM, COMPUTING), 0) + sums.get((SUM, SPINNING), 0)
        return busy, busy + sums.get((SUM, HELD_IDLE), 0)


def _keys_of(name: str) -> tuple[Key, ...]:
    parts = tuple(split_name(name))
    if parts[0] == SUM and len(parts) == 3:
        unused = ((FREE, parts[2]),) if parts[1] in (FREE, STRANDED, RESERVED) else ()
        return ((SUM, parts[1]), *unused)
    return (parts,)


def _bottleneck(table: _Table) -> list[BottleneckCause]:
    """The most GPUs first."""
    found = []
    for key in table.totals:
        if key[0] != WAITING:
            continue
        models = tuple(filter(None, key[2].split(","))) if len(key) > 2 else ()
        others = {model: milli for model, milli in _free_meanwhile(table, key).items() if model not in models}
        mean = table.mean_milli(key)
        line = BottleneckLine(key[1], models, _round(mean), 0, other_free=others)
        found.append(BottleneckCause(key[1], models, mean / 1000, line.sentence, table.line(key)))
    return sorted(found, key=lambda cause: (-cause.gpus, cause.cause, cause.models))


def _free_meanwhile(table: _Table, waiting: Key) -> dict[str, int]:
    """Model → mean milli-GPU that were free in those steps in which this was waited for, the most first."""
    steps = [step for step in table.steps if step.get(waiting)]
    seconds = max(1, sum(step.get((COVERED,), 0) for step in steps))
    free: dict[str, int] = {}
    for step in steps:
        for key, amount in step.items():
            if key[0] == FREE:
                free[key[1]] = free.get(key[1], 0) + amount
    means = {model: _round(amount / seconds) for model, amount in free.items()}
    return {model: milli for model, milli in sorted(means.items(), key=lambda item: -item[1]) if milli}


def _story(causes: Sequence[BottleneckCause], allocation: float | None, covered: int) -> str:
    """The one sentence that the view begins with."""
    if not covered or allocation is None:
        return "Nothing was recorded in this time."
    if not causes or causes[0].gpus < 0.05:
        return f"Nothing waited for GPUs; {allocation:.0%} of all GPUs were held."
    return f"{causes[0].sentence}; {allocation:.0%} of all GPUs are held (means of this time)."


def _waits(events: Iterable[Event], audience: Audience) -> list[WaitRow]:
    groups: dict[tuple[str, str], list[int]] = {}
    for event in events:
        if event.kind == STARTED and audience.may_see_job(_text(event, "job")):
            milli = _number(event, "milli")
            size = next(name for most, name in SIZES if milli <= most)
            groups.setdefault((_text(event, "queue"), size), []).append(_number(event, "waited"))
    order = {name: place for place, (_, name) in enumerate(SIZES)}
    rows = [
        WaitRow(queue, size, len(waits), percentile(waits, 0.5), percentile(waits, 0.95))
        for (queue, size), waits in groups.items()
    ]
    return sorted(rows, key=lambda row: (row.queue, order[row.size]))


def _preemptions(events: Iterable[Event], audience: Audience) -> list[PreemptionRow]:
    groups: dict[tuple[str, str], list[int]] = {}
    for event in events:
        if event.kind == EVICTED and audience.may_see_job(_text(event, "job")):
            key = (_text(event, "queue"), _text(event, "reason"))
            groups.setdefault(key, []).append(_number(event, "lost"))
    rows = [PreemptionRow(*key, len(lost), sum(lost) / 3600) for key, lost in groups.items()]
    return sorted(rows, key=lambda row: (-row.lost_gpu_hours, row.queue, row.reason))


def _shares(table: _Table, audience: Audience) -> list[ShareRow]:
    queues = {key[1] for key in table.totals if key[0] in (HELD, QUOTA) and audience.may_see_queue(key[1])}
    rows = []
    for queue in queues:
        held, quota = ((kind, queue) for kind in (HELD, QUOTA))
        nominal = table.mean_milli(quota) / 1000 if quota in table.totals else None
        rows.append(ShareRow(queue, table.mean_milli(held) / 1000, nominal, table.line(held)))
    return sorted(rows, key=lambda row: (-row.held, row.queue))


def _notes(table: _Table, held: int, measured: int) -> list[str]:
    notes = []
    missing = table.end - table.start - table.covered
    if missing > SLOT_SECONDS:
        of = f"{(table.end - table.start) / 3600:,.1f} hours"
        notes.append(f"{missing / 3600:,.1f} of {of} were not recorded; they are left out, and count as nothing.")
    if held and not measured:
        notes.append("What held GPUs did was not measured: the scheduler needs --prometheus for that.")
    elif held and measured < held * 0.995:
        notes.append(
            f"{1 - measured / held:.0%} of the held GPU time was not measured, and is left out of utilisation."
        )
    return notes


def percentile(values: Sequence[int], share: float) -> int:
    """The smallest value that so many are not above (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, ceil(round(share * len(ordered), 6)) - 1)]


def _gpus(milli_seconds: int, seconds: int) -> float | None:
    return round(milli_seconds / seconds / 1000, 3) if seconds else None


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _round(milli: float) -> int:
    """To whole GPUs, and small numbers to tenths: a mean has no thousandths that say anything."""
    step = 1000 if milli >= 10_000 else 100
    return round(milli / step) * step


def _text(event: Event, field: str) -> str:
    return str(event.fields.get(field, ""))


def _number(event: Event, field: str) -> int:
    found: Any = event.fields.get(field, 0)
    return found if isinstance(found, int) else 0
