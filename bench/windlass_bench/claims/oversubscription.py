"""Claim: oversubscription with preemption and checkpoints lifts a park from 40 % to 80 %.

The jobs of a recorded cluster (Helios; without the trace files, a synthetic trace with published statistics) own a park
of the size on which they keep 40 % of the GPUs busy. A second queue without quota of its own runs spare work on what
they leave: jobs of the same trace at other times, which write a checkpoint every ten minutes, give way at once when an
owner's job needs their GPUs, and need a minute to start again. Queues, victims and places are the engine's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from windlass.engine import EngineConfig
from windlass.model.meta import ObjectMeta
from windlass.model.names.kueue import (
    KUEUE_POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    QUEUE_NAME_LABEL,
)
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.pod import Pod
from windlass.placement.decision_context import GangSettings
from windlass.placement.timeplan.run_limits import PlannedStartSettings
from windlass.queueing.config import QueueConfig
from windlass.simulate.pod_templates import PodSize, TemplateCache, split_gpus_by_pod
from windlass.simulate.random_stream import RandomStream
from windlass.simulate.trace import Job
from windlass.simulate.traces import load_trace
from windlass_bench.claims.claim import FAILS, PARTLY, Claim, OnProgress, Panel, Series, percentile
from windlass_bench.claims.parks import GPUS_PER_NODE, rack_fleet
from windlass_bench.claims.queues import QueueSpec, queue_objects
from windlass_bench.claims.task_cluster import TaskCluster, TaskClusterSettings
from windlass_bench.claims.tasks import Task, TaskRecord, waits_of
from windlass_bench.section import Column, Row, Section, columns

CLAIM = "A cluster at 40 % average utilisation might run at 80 % with oversubscription, preemption and checkpoints."
DAY = 86_400
OWN_PERCENT = 40
CHECKPOINT_S, RESTART_S = 600, 60
OWN, SPARE = "own", "spare"
WINDOW_START = 5
"""Days into the trace: it begins on an empty cluster, and fills within a few days."""
MAX_SPARE_COPIES = 4
"""How often the trace's jobs may come again as spare work, each time at another time of the window."""

COLUMNS = (
    Column("setting", "setting"),
    Column("extra_pct", "spare work offered, % of the park", "{:.0f}"),
    *columns("{:.1f}", allocated_pct="GPU-time allocated, %", useful_pct="useful, %", own_pct="owners', %"),
    Column("evictions", "evictions", "{:,}"),
    *columns("{:.2f}", lost_pct="spare work lost, %", restart_pct="restarts, %"),
    *columns("{:,.0f}", lost_gpu_hours="lost, GPU-hours", own_wait_s="owners wait, s", own_p99_s="p99, s"),
    Column("spare_wait_s", "spare waits, s", "{:,.0f}"),
)


class Scale(msgspec.Struct, frozen=True):
    days: int = 2
    keep_every: int = 3
    """Every so-many-th job of the trace, so that a run takes minutes."""
    spare_loads: tuple[float, ...] = (0.5, 1.0, 1.5, 2.0)
    """Spare work offered, in terms of the owners' own."""
    compared: float = 1.5
    """The amount of it with which the other settings are compared."""
    tick: int = 120


QUICK = Scale(days=1, spare_loads=(1.0, 2.0), compared=2.0, tick=300)


class Setting(msgspec.Struct, frozen=True):
    name: str
    spare_load: float
    checkpoint: int = CHECKPOINT_S
    preempt: bool = True


class OwnerLoad(msgspec.Struct, frozen=True):
    """The owners' jobs in the window, and the park that they keep at 40 %."""

    trace: str
    jobs: tuple[Job, ...]
    nodes: int
    window: int

    @property
    def gpu_seconds(self) -> float:
        return self.nodes * GPUS_PER_NODE * self.window


def check_oversubscription(scale: Scale, seed: int, traces_dir: Path | None, on_progress: OnProgress) -> Claim:
    load = load_owner_jobs(scale, seed, traces_dir)
    settings = [Setting("owners alone", 0.0)]
    settings += [Setting("spare work, checkpoints", extra) for extra in scale.spare_loads]
    settings += [
        Setting("spare work, no checkpoints", scale.compared, checkpoint=0),
        Setting("the same work, no preemption", scale.compared, preempt=False),
    ]
    rows = []
    for done, setting in enumerate(settings):
        on_progress(done / len(settings))
        spare = spare_jobs(load, setting.spare_load, seed)
        rows.append(_row(setting, load, spare, play(load, setting, spare, scale.tick)))
    return Claim(
        "oversubscription",
        CLAIM,
        _found(rows),
        _verdict(rows),
        _conditions(rows, load),
        (
            Section(
                "oversubscription",
                f"{load.trace}: {scale.days} days on {load.nodes} nodes of 8 GPUs",
                COLUMNS,
                rows,
                note="Useful: allocated, less work that was undone and restarts. Lost work and restarts in percent of "
                "what the spare jobs held. Waiting of jobs that never started is counted until the end.",
            ),
        ),
        (_panel(rows),),
    )


# The work


def load_owner_jobs(scale: Scale, seed: int, traces_dir: Path | None) -> OwnerLoad:
    name = "helios" if traces_dir is not None else "synthetic/training"
    trace = load_trace(name, seed=seed if traces_dir is None else None, traces_dir=traces_dir)
    window = scale.days * DAY
    jobs = tuple(
        job
        for number, job in enumerate(jobs_in_window(trace.jobs, WINDOW_START * DAY, window))
        if number % scale.keep_every == 0
    )
    busy = sum(_work(job, window) for job in jobs) / window
    return OwnerLoad(trace.name, jobs, max(1, round(busy / (OWN_PERCENT / 100) / GPUS_PER_NODE)), window)


def jobs_in_window(jobs: Sequence[Job], start: int, window: int) -> Iterator[Job]:
    """Jobs with GPUs that come in the window; what runs when it begins comes at once, with what is left of it."""
    for job in jobs:
        left = job.arrival + (job.duration or 0) - start
        if not _gpus(job) or left <= 0 or job.arrival >= start + window:
            continue
        arrival = max(0, job.arrival - start)
        yield msgspec.structs.replace(job, arrival=arrival, duration=min(job.duration or 0, left))


def spare_jobs(load: OwnerLoad, extra: float, seed: int) -> list[Job]:
    """Jobs of the same trace at other times, drawn until they ask for so much of the owners' work."""
    target = extra * sum(_work(job, load.window) for job in load.jobs)
    chosen: list[Job] = []
    offered = 0.0
    for copy in range(MAX_SPARE_COPIES):
        shift = (2 * copy + 1) * load.window // (2 * MAX_SPARE_COPIES)
        for number in RandomStream(seed, copy).permutation(len(load.jobs)).tolist():
            if offered >= target:
                return chosen
            job = load.jobs[number]
            moved = msgspec.structs.replace(job, name=f"{job.name}-{copy}", arrival=(job.arrival + shift) % load.window)
            chosen.append(moved)
            offered += _work(moved, load.window)
    return chosen


def _gpus(job: Job) -> int:
    return sum(int(pod.spec.containers[0].resources.requests.get(GPU_RESOURCE, 0)) for pod in job.pods)


def _work(job: Job, window: int) -> float:
    """GPU-seconds that it can make use of in the window."""
    return _gpus(job) * min(job.duration or 0, window - job.arrival)


def _task(job: Job, kind: str, queue: str, checkpoint: int, templates: TemplateCache) -> Task:
    parts = split_gpus_by_pod(_gpus(job))
    labels = {QUEUE_NAME_LABEL: queue}
    annotations: dict[str, str] = {}
    if len(parts) > 1:
        labels[KUEUE_POD_GROUP_NAME] = job.name
        annotations = {POD_GROUP_TOTAL_COUNT_ANNOTATION: str(len(parts))}
    pods = tuple(
        Pod(
            metadata=ObjectMeta(name=f"{job.name}-{index}", labels=labels, annotations=annotations),
            spec=templates.get(PodSize(gpus=part)).spec,
        )
        for index, part in enumerate(parts)
    )
    return Task(f"{kind}-{job.name}", pods, job.arrival, job.duration, kind, checkpoint, RESTART_S)


# A run


def play(load: OwnerLoad, setting: Setting, spare: Sequence[Job], tick: int) -> list[TaskRecord]:
    templates = TemplateCache()
    spare_queue = SPARE if setting.preempt else OWN
    tasks = [_task(job, OWN, OWN, 0, templates) for job in load.jobs]
    tasks += [_task(job, SPARE, spare_queue, setting.checkpoint, templates) for job in spare]
    queues = [QueueSpec(OWN, load.nodes * GPUS_PER_NODE, {"reclaimWithinCohort": "Any"}), QueueSpec(SPARE, 0)]
    config = EngineConfig(
        queues=QueueConfig(restart_seconds=RESTART_S),
        gangs=GangSettings(
            planned_starts=PlannedStartSettings(depth=0)
        ),  # nobody declares a run time, so there is nothing to plan
    )
    settings = TaskClusterSettings(
        config=config,
        nodes=rack_fleet(load.nodes, 16),
        objects=queue_objects(queues),
        horizon=load.window,
        tick=tick,
        evictable=SPARE,
    )
    return TaskCluster(settings, tasks).run()


def _row(setting: Setting, load: OwnerLoad, spare_work: Sequence[Job], records: Sequence[TaskRecord]) -> Row:
    def gpu_seconds(kind: str, of: str) -> float:
        return sum(record.gpus * float(getattr(record, of)) for record in records if record.task.kind == kind)

    own, spare = gpu_seconds(OWN, "held"), gpu_seconds(SPARE, "held")
    lost, restarts = gpu_seconds(SPARE, "lost"), gpu_seconds(SPARE, "restarting")
    waits = {kind: waits_of(records, kind, load.window) for kind in (OWN, SPARE)}
    return {
        "setting": setting.name,
        "extra_pct": 100 * sum(_work(job, load.window) for job in spare_work) / load.gpu_seconds,
        "allocated_pct": 100 * (own + spare) / load.gpu_seconds,
        "useful_pct": 100 * (own + spare - lost - restarts) / load.gpu_seconds,
        "own_pct": 100 * own / load.gpu_seconds,
        "evictions": sum(len(record.stops) for record in records),
        "lost_pct": 100 * lost / spare if spare else None,
        "restart_pct": 100 * restarts / spare if spare else None,
        "lost_gpu_hours": (lost + restarts) / 3600,
        "own_wait_s": fmean(waits[OWN]),
        "own_p99_s": percentile(waits[OWN], 99),
        "spare_wait_s": fmean(waits[SPARE]) if waits[SPARE] else None,
        "spare_jobs": len(waits[SPARE]),
    }


# What it comes to


def _with_checkpoints(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["setting"] == "spare work, checkpoints"]


def _named(rows: Sequence[Row], name: str) -> Row:
    return next(row for row in rows if row["setting"] == name)


def _found(rows: Sequence[Row]) -> str:
    alone = _named(rows, "owners alone")
    steps = ", ".join(
        f"{row['useful_pct']:.0f} % with spare work for {row['extra_pct']:.0f} %" for row in _with_checkpoints(rows)
    )
    lost = max(float(row["lost_pct"]) + float(row["restart_pct"]) for row in _with_checkpoints(rows))
    return (
        f"From {alone['useful_pct']:.0f} % to {steps}. At most {lost:.2f} % of the spare work is lost to evictions "
        "and restarts."
    )


def _verdict(rows: Sequence[Row]) -> str:
    return PARTLY if any(float(row["useful_pct"]) >= 80 for row in _with_checkpoints(rows)) else FAILS


def _conditions(rows: Sequence[Row], load: OwnerLoad) -> tuple[str, ...]:
    reached = next((row for row in _with_checkpoints(rows) if float(row["useful_pct"]) >= 80), None)
    without, queued = (_named(rows, name) for name in ("spare work, no checkpoints", "the same work, no preemption"))
    like = next(row for row in _with_checkpoints(rows) if row["extra_pct"] == queued["extra_pct"])
    return (
        "It holds only where preemptible work waits: the park can't be used more than is asked of it. 80 % useful was "
        + (
            f"first reached with spare work for {reached['extra_pct']:.0f} % of the park."
            if reached is not None
            else "not reached with any of these amounts."
        ),
        f"Preemption isn't what fills the park. The same work in one queue uses {queued['useful_pct']:.0f} % as well "
        f"(with preemption {like['useful_pct']:.0f} %); but then owners wait {queued['own_wait_s']:,.0f} s on average "
        f"and {queued['own_p99_s']:,.0f} s at the 99th percentile, instead of {like['own_wait_s']:,.0f} and "
        f"{like['own_p99_s']:,.0f} s.",
        f"Without checkpoints {float(without['lost_pct']):.1f} % of the spare work is done in vain, instead of "
        f"{float(like['lost_pct']):.2f} %.",
        f"{load.trace}, {len(load.jobs)} jobs of owners; GPU-time is allocated time, whatever a job does with it. "
        "Evicted pods go at once; a checkpoint itself costs nothing.",
    )


def _panel(rows: Sequence[Row]) -> Panel:
    steps = [_named(rows, "owners alone"), *_with_checkpoints(rows)]
    offered = tuple(float(row["extra_pct"]) for row in steps)
    return Panel(
        "What spare work makes of a park at 40 %",
        "spare work offered, % of the park",
        "GPU-time, %",
        (
            Series("asked for", offered, tuple(min(100.0, OWN_PERCENT + each) for each in offered)),
            Series("allocated", offered, tuple(float(row["allocated_pct"]) for row in steps)),
            Series("useful", offered, tuple(float(row["useful_pct"]) for row in steps)),
            Series("owners'", offered, tuple(float(row["own_pct"]) for row in steps)),
        ),
    )
