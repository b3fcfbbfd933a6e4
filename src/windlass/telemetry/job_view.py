"""A job's past: what happened to it, what its GPUs did, and what to change so that it wastes fewer of them.

    points, events ─► make_job_view ─► timeline, GPUs by state over time, advice with the field to change

Points and events are those of the recorded ledger, by its name for the job (`Kind namespace/name`), or of a
Prometheus, from which curves of single GPUs come, too (`prometheus_job`). The advice is a list of rules about the sums
that stand beside it; what was not measured leads to no advice but to measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil

import msgspec

from windlass.model.times import format_duration
from windlass.telemetry.activity import COMPUTING, HELD_IDLE, SPINNING, UNMEASURED
from windlass.telemetry.history.day import Event
from windlass.telemetry.history.reader import HistoryReader
from windlass.telemetry.ledger import ALLOCATED_STATES
from windlass.telemetry.starts import LOAD, PHASES
from windlass.telemetry.step_table import Line, StepTable, ratio
from windlass.telemetry.usage import MILLI_SECONDS_PER_HOUR
from windlass.telemetry.usage_history import (
    COVERED,
    EVICTED,
    SLOT_SECONDS,
    STARTED,
    SUM,
    WORKED,
    join_name,
    parse_series_name,
)

LOW_USE = 0.15
"""Busy for less of its measured GPU time: it hardly needs a GPU."""
MUCH = 0.2
"""Of its GPU time: a share that is worth a sentence."""
LEAST_HOURS = 0.5
"""Of GPU time that was measured: less says nothing about a job."""
LONG_LOAD_SECONDS = 600
StatePoint = tuple[str, int, int]
"""State of GPUs or `covered`, time, milli-GPU-seconds or seconds."""
GROUP = "Group"
"""The page's kind for gangs without an owner, whatever object makes them one."""


class Moment(msgspec.Struct, frozen=True):
    at: int
    what: str
    detail: str


class Advice(msgspec.Struct, frozen=True):
    text: str
    change: str = ""
    """The field, flag or command."""


class GpuLine(msgspec.Struct, frozen=True):
    name: str
    line: Line


class Curves(msgspec.Struct, frozen=True):
    metric: str
    unit: str
    most: float
    """End of the scale; 0: as high as the highest value."""
    gpus: list[GpuLine]


class JobPast(msgspec.Struct, frozen=True, rename="camel"):
    start: int
    end: int
    step: int
    job: str
    states: dict[str, Line]
    gpu_hours: dict[str, float]
    utilisation: float | None
    lost_gpu_hours: float
    story: str
    timeline: list[Moment]
    advice: list[Advice]
    curves: list[Curves]
    notes: list[str]


class JobSums(msgspec.Struct, frozen=True):
    """What the rules look at. Hours are GPU-hours."""

    hours: dict[str, float]
    most_held: float = 0.0
    """GPUs at once, as a mean over five minutes."""
    most_busy: float = 0.0
    lost_hours: float = 0.0
    evictions: int = 0
    load_seconds: int = 0
    """The longest time from the start of its container to the first GPU work."""


def recorded_points(reader: HistoryReader, job: str, start: int, end: int) -> Iterator[StatePoint]:
    """Out of the history of the scheduler."""
    for name in reader.names(start, end):
        found = parse_series_name(name)
        if name == COVERED or (found is not None and is_job(found[0].job, job)):
            state = COVERED if found is None else found[1]
            yield from ((state, at, value) for at, value in reader.points(name, start, end))


def make_job_view(
    job: str,
    points: Iterable[StatePoint],
    events: Iterable[Event],
    start: int,
    end: int,
    *,
    names_others: bool = True,
    curves: Sequence[Curves] = (),
    notes: Sequence[str] = (),
) -> JobPast:
    """`events` may be those of all jobs. `names_others`: whether the timeline may name for whom work was evicted."""
    table = StepTable(start, end)
    most_held = most_busy = 0
    slots: dict[int, dict[str, int]] = {}
    for state, at, value in points:
        table.add(state if state == COVERED else join_name(SUM, state, ""), at, value)
        slot = slots.setdefault(at, {})
        slot[state] = slot.get(state, 0) + value
    for slot in slots.values():
        seconds = max(1, slot.get(COVERED, 0))
        most_held = max(most_held, sum(slot.get(state, 0) for state in ALLOCATED_STATES) // seconds)
        most_busy = max(most_busy, slot.get(COMPUTING, 0) // seconds)
    events = [event for event in events if is_job(str(event.fields.get("job")), job)]
    sums = JobSums(
        {state: table.totals.get((SUM, state), 0) / MILLI_SECONDS_PER_HOUR for state in ALLOCATED_STATES},
        most_held / 1000,
        most_busy / 1000,
        sum(_number(event, "lost") for event in events if event.kind == EVICTED) / 3600,
        sum(event.kind == EVICTED for event in events),
        max((_number(event, LOAD) for event in events if event.kind == WORKED), default=0),
    )
    busy, measured = table.busy(table.totals)
    return JobPast(
        start=table.start,
        end=table.end,
        step=table.step,
        job=job,
        states={state: table.line((SUM, state)) for state in ALLOCATED_STATES if sums.hours[state]},
        gpu_hours=sums.hours,
        utilisation=ratio(busy, measured),
        lost_gpu_hours=sums.lost_hours,
        story=_story(job, sums, ratio(busy, measured)),
        timeline=[_moment(event, names_others) for event in events],
        advice=advise(sums),
        curves=list(curves),
        notes=[*_notes(table), *notes],
    )


def is_job(name: str, wanted: str) -> bool:
    kind, _, path = wanted.partition(" ")
    return name == wanted or (kind == GROUP and name.partition(" ")[2] == path)


def advise(sums: JobSums) -> list[Advice]:
    """What to change, the most GPU time first as far as it is known."""
    held = sum(sums.hours.values())
    measured = held - sums.hours[UNMEASURED]
    found: list[Advice] = []
    if held >= LEAST_HOURS and not measured:
        found.append(Advice("What its GPUs did was not measured.", "windlass scheduler --prometheus URL"))
    if measured >= LEAST_HOURS:
        found += _about_use(sums, measured)
    if sums.lost_hours >= LEAST_HOURS:
        what = f"{sums.evictions} evictions" if sums.evictions != 1 else "One eviction"
        text = f"{what} lost {sums.lost_hours:,.1f} GPU-hours of work: write checkpoints more often, and say when."
        found.append(Advice(text, "windlass.dev/last-checkpoint: 2026-01-01T00:00:00Z  (annotation, kept up to date)"))
    if sums.load_seconds >= LONG_LOAD_SECONDS:
        text = (
            f"Its GPUs waited {format_duration(sums.load_seconds)} for the first work after its container had started: "
        )
        found.append(Advice(f"{text}keep data and weights near the node, or load them before it asks for GPUs."))
    return found


def _about_use(sums: JobSums, measured: float) -> Iterator[Advice]:
    idle, spinning = sums.hours[HELD_IDLE], sums.hours[SPINNING]
    if spinning > MUCH * measured:
        yield Advice(
            f"For {spinning:,.1f} GPU-hours its GPUs were at 100 % without computing: most often one of its pods "
            "waits for a peer that hangs or is gone. Let the collective time out.",
            "torch.distributed.init_process_group(timeout=timedelta(minutes=10))",
        )
    if idle > (1 - LOW_USE) * measured:
        yield Advice(
            f"Its GPUs computed for {(measured - idle) / measured:.0%} of the time that was measured: end it when it "
            "is not used, or do without a GPU.",
            "spec.suspend: true",
        )
    elif sums.most_held >= 2 and 0 < sums.most_busy <= sums.most_held / 2:
        yield Advice(
            f"Of {sums.most_held:g} GPUs at most {sums.most_busy:.1f} computed at the same time: ask for fewer.",
            f"nvidia.com/gpu: {ceil(sums.most_busy)}  (in all of its pods together)",
        )
    elif idle > MUCH * measured:
        yield Advice(
            f"Its GPUs were held and idle for {idle:,.1f} GPU-hours ({idle / measured:.0%} of what was measured): "
            "read data in more processes, or ask for fewer GPUs.",
            "DataLoader(num_workers=8, pin_memory=True)",
        )


def _story(job: str, sums: JobSums, utilisation: float | None) -> str:
    held = sum(sums.hours.values())
    if not held:
        return f"{job} held no GPU in this time."
    used = (
        "what they did was not measured" if utilisation is None else f"busy for {utilisation:.0%} of what was measured"
    )
    lost = f"; {sums.lost_hours:,.1f} GPU-hours were lost by evictions" if sums.lost_hours else ""
    return f"{job}: {held:,.1f} GPU-hours on up to {sums.most_held:g} GPUs, {used}{lost}."


def _moment(event: Event, names_others: bool) -> Moment:
    fields = event.fields
    if event.kind == STARTED:
        gpus = f"{_number(event, 'milli') / 1000:g} GPUs"
        return Moment(event.at, "started", f"{gpus} after waiting for {format_duration(_number(event, 'waited'))}")
    if event.kind == WORKED:
        parts = (f"{phase} {format_duration(_number(event, phase))}" for phase in PHASES if phase in fields)
        return Moment(event.at, "first GPU work" if LOAD in fields else "running", ", ".join(parts))
    gainer = f" for {fields['gainer']}" if names_others and fields.get("gainer") else ""
    lost = f"{_number(event, 'lost') / 3600:,.1f} GPU-hours lost"
    return Moment(event.at, "evicted", f"{fields.get('reason', '')}{gainer}, {lost}")


def _notes(table: StepTable) -> list[str]:
    missing = table.end - table.start - table.covered
    if missing <= SLOT_SECONDS:
        return []
    return [f"{missing / 3600:,.1f} of {(table.end - table.start) / 3600:,.1f} hours were not recorded."]


def _number(event: Event, field: str) -> int:
    found: object = event.fields.get(field, 0)
    return found if isinstance(found, int) else 0
