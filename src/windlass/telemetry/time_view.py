"""The page's Time view: what a range of the recorded ledger says, as one document.

    history ─► summaries ─► make_time_view ─► utilisation against allocation, bottleneck, waits, preemptions, shares

Every number is a sum of the ledger. Steps in which no ledger was recorded are None, and so is utilisation where nothing
was measured: a gap is nobody's idle time. A viewer who may not see all namespaces gets the sums of the fleet, and
queues and jobs of its own namespaces only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any, Protocol

import msgspec

from windlass.telemetry.bottleneck import BottleneckLine
from windlass.telemetry.history.day import Event
from windlass.telemetry.ledger import ALLOCATED_STATES, FREE, IN_CHANGE, STATES, UNHEALTHY
from windlass.telemetry.starts import PHASES
from windlass.telemetry.step_table import Key, Line, StepTable, ratio
from windlass.telemetry.usage import MILLI_SECONDS_PER_HOUR
from windlass.telemetry.usage_history import (
    COVERED,
    EVICTED,
    HELD,
    QUOTA,
    RACK,
    RACK_FACT,
    SLOT_SECONDS,
    STARTED,
    SUM,
    WAITING,
    WORKED,
)

TARGET_UTILISATION = 0.7
"""The line that the guides draw: a fleet that is busy for less of the time that it is held wastes money."""
SIZES = ((1000, "1 GPU"), (8000, "2 to 8 GPUs"), (10**12, "more than 8 GPUs"))
"""Milli-GPU up to which a start is of that size."""


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
    evictions: int | None
    """None: what was read tells only what they lost."""
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
    racks: list[RackRow]
    phases: list[PhaseRow]
    notes: list[str] = []
    target: float = TARGET_UTILISATION


class RackRow(msgspec.Struct, frozen=True, rename="camel"):
    rack: str
    gpus: float
    """As the last record of it says."""
    unhealthy_hours: float
    in_change_hours: float
    in_service: float | None
    """Of its GPUs, over the time that was recorded."""
    line: Line
    """GPUs out of service."""


class PhaseRow(msgspec.Struct, frozen=True):
    phase: str
    """`queue`, `prepare` or `load`."""
    jobs: int
    p50: int
    p95: int
    share: float | None
    """Of the seconds of all phases and jobs."""


class SummarySource(Protocol):
    """`summaries.Summaries`, or a Prometheus (`prometheus_time`)."""

    def points(self, start: int, end: int) -> Iterable[tuple[str, int, int]]: ...

    def events(self, start: int, end: int) -> Iterable[Event]: ...

    def facts(self, start: int, end: int) -> Mapping[str, Mapping[str, str]]: ...

    notes: list[str]
    """What is not in it, and why."""


class Audience(msgspec.Struct, frozen=True):
    """What a viewer may see by name; None: everything."""

    namespaces: frozenset[str] | None = None
    queues: frozenset[str] = frozenset()
    sees_nodes: bool = True
    """Nodes and racks by name."""

    def may_see_queue(self, queue: str) -> bool:
        return self.namespaces is None or queue in self.queues

    def may_see_job(self, job: str) -> bool:
        """`job`: `Kind namespace/name`."""
        return self.namespaces is None or job.partition(" ")[2].partition("/")[0] in self.namespaces


EVERYBODY = Audience()


def make_time_view(summaries: SummarySource, start: int, end: int, audience: Audience = EVERYBODY) -> TimeView:
    """`end` is at least a slot after `start`."""
    table = StepTable(start, end)
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
        mean_allocation=ratio(held, everything),
        mean_utilisation=ratio(busy, measured),
        measured_share=ratio(measured, held),
        story=_story(causes, ratio(held, everything), table.covered),
        bottleneck=causes,
        waits=_waits(events, audience),
        preemptions=_preemptions(events, audience),
        shares=_shares(table, audience),
        racks=_racks(table, summaries.facts(table.start, table.end)) if audience.sees_nodes else [],
        phases=_phases(events, audience),
        notes=[*_notes(table, held, measured), *summaries.notes],
    )


def _bottleneck(table: StepTable) -> list[BottleneckCause]:
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


def _free_meanwhile(table: StepTable, waiting: Key) -> dict[str, int]:
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
    groups: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        if event.kind == EVICTED and _may_see_eviction(event, audience):
            groups.setdefault((_text(event, "queue"), _text(event, "reason")), []).append(event)
    rows = [
        PreemptionRow(
            *key,
            None if any(event.fields.get("evictions", 1) is None for event in found) else len(found),
            sum(_number(event, "lost") for event in found) / 3600,
        )
        for key, found in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row.lost_gpu_hours, row.queue, row.reason))


def _may_see_eviction(event: Event, audience: Audience) -> bool:
    """A sum of a queue that names no job is for those who may see the queue."""
    job = _text(event, "job")
    return audience.may_see_job(job) if job else audience.may_see_queue(_text(event, "queue"))


def _shares(table: StepTable, audience: Audience) -> list[ShareRow]:
    queues = {key[1] for key in table.totals if key[0] in (HELD, QUOTA) and audience.may_see_queue(key[1])}
    rows = []
    for queue in queues:
        held, quota = ((kind, queue) for kind in (HELD, QUOTA))
        nominal = table.mean_milli(quota) / 1000 if quota in table.totals else None
        rows.append(ShareRow(queue, table.mean_milli(held) / 1000, nominal, table.line(held)))
    return sorted(rows, key=lambda row: (-row.held, row.queue))


def _racks(table: StepTable, facts: Mapping[str, Mapping[str, str]]) -> list[RackRow]:
    """The rack with the most GPU time out of service first."""
    rows = []
    for name, fact in facts.items():
        if not name.startswith(RACK_FACT):
            continue
        rack = name.removeprefix(RACK_FACT)
        gpus = int(fact.get("milli", "0")) / 1000
        ill, cordoned = ((RACK, rack, state) for state in (UNHEALTHY, IN_CHANGE))
        lost = table.totals.get(ill, 0) + table.totals.get(cordoned, 0)
        all_time = round(gpus * 1000) * table.covered
        rows.append(
            RackRow(
                rack,
                gpus,
                table.totals.get(ill, 0) / MILLI_SECONDS_PER_HOUR,
                table.totals.get(cordoned, 0) / MILLI_SECONDS_PER_HOUR,
                ratio(max(0, all_time - lost), all_time),
                table.sum_line(ill, cordoned),
            )
        )
    return sorted(rows, key=lambda row: (-(row.unhealthy_hours + row.in_change_hours), row.rack))


def _phases(events: Iterable[Event], audience: Audience) -> list[PhaseRow]:
    worked = [event for event in events if event.kind == WORKED and audience.may_see_job(_text(event, "job"))]
    seconds = {phase: [_number(event, phase) for event in worked if phase in event.fields] for phase in PHASES}
    total = sum(map(sum, seconds.values()))
    return [
        PhaseRow(phase, len(found), percentile(found, 0.5), percentile(found, 0.95), ratio(sum(found), total))
        for phase, found in seconds.items()
        if found
    ]


def _notes(table: StepTable, held: int, measured: int) -> list[str]:
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


def _round(milli: float) -> int:
    """To whole GPUs, and small numbers to tenths: a mean has no thousandths that say anything."""
    step = 1000 if milli >= 10_000 else 100
    return round(milli / step) * step


def _text(event: Event, field: str) -> str:
    return str(event.fields.get(field, ""))


def _number(event: Event, field: str) -> int:
    found: Any = event.fields.get(field, 0)
    return found if isinstance(found, int) else 0
