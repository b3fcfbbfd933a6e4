"""Claim: training that writes checkpoints costs 30 to 50 % less on spot nodes.

The training jobs of a trace run on nodes on demand and on spot nodes at half the price, which are taken away at
random moments, two minutes after a notice, and come back ten minutes later. Every job is a gang of whole GPUs; it needs
90 seconds to run again. What a useful GPU-hour costs is what was paid for held GPUs, by the hours that were not undone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from windlass.engine import EngineConfig
from windlass.model.codec import decode_object
from windlass.model.fleet import Fleet, FleetGpus, FleetPool, FleetSpec, expand_fleet
from windlass.model.meta import ObjectMeta
from windlass.model.names.kueue import (
    KUEUE_API_VERSION,
    KUEUE_POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    QUEUE_NAME_LABEL,
)
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.names.windlass import (
    CHECKPOINT_GRACE_ANNOTATION,
    CHECKPOINT_INTERVAL_ANNOTATION,
    FLAVOR_ORDER_ANNOTATION,
    GPU_HOUR_PRICE_ANNOTATION,
    INTERRUPTION_NOTICE_ANNOTATION,
    INTERRUPTIONS_ANNOTATION,
    ON_PREEMPTION_ANNOTATION,
)
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.placement.decision_context import GangSettings
from windlass.placement.timeplan.run_limits import PlannedStartSettings
from windlass.queueing.config import QueueConfig
from windlass.simulate.pod_templates import PodSize, TemplateCache, split_gpus_by_pod
from windlass.simulate.trace import Job
from windlass.simulate.traces import load_trace
from windlass_bench.claims.claim import FAILS, HOLDS, PARTLY, Claim, OnProgress
from windlass_bench.claims.oversubscription import WINDOW_START, jobs_in_window
from windlass_bench.claims.parks import GPUS_PER_NODE
from windlass_bench.claims.spot_cluster import SpotCluster
from windlass_bench.claims.task_cluster import Outage, TaskClusterSettings
from windlass_bench.claims.tasks import Task, TaskRecord
from windlass_bench.section import Column, Row, Section, columns

CLAIM = "Training jobs that checkpoint can run on cheaper preemptible nodes: 30 to 50 % saved on the training line."
DAY, HOUR = 86_400, 3600
ON_DEMAND, SPOT, POOL_LABEL, QUEUE = "on-demand", "spot", "example.com/pool", "train"
PRICES = {ON_DEMAND: 2.0, SPOT: 1.0}
NOTICE_S, WRITE_S, RESTART_S, AWAY_S = 120, 30, 90, 600

COLUMNS = (
    Column("setting", "setting"),
    Column("per_day", "interruptions of a node per day", "{:g}"),
    *columns("{:,.0f}", useful_gpu_hours="useful GPU-hours", stops="interrupted runs", spot_pct="on spot, %"),
    *columns("{:.2f}", lost_pct="done again, %", restart_pct="restarts, %"),
    *columns("{:.2f}", price="price of a useful GPU-hour"),
    Column("saved_pct", "saved, %", "{:.0f}"),
)


class Scale(msgspec.Struct, frozen=True):
    days: int = 2
    keep_every: int = 6
    """Every so-many-th job of the trace, so that a run takes minutes."""
    rates: tuple[float, ...] = (0.5, 2.0, 8.0)
    tick: int = 10


QUICK = Scale(days=1, keep_every=24, rates=(2.0,), tick=30)


class Setting(msgspec.Struct, frozen=True):
    name: str
    per_day: float
    flavors: tuple[str, ...] = (SPOT, ON_DEMAND)
    is_asked: bool = False
    checkpoint: int = HOUR
    fragile_every: int = 0
    """Every so-many-th job can write no checkpoint at all; 0: none."""
    by_cost: bool = False


def settings_of(scale: Scale) -> Iterator[Setting]:
    yield Setting("on demand", 0.0, (ON_DEMAND,))
    for rate in scale.rates:
        yield Setting("spot, killed, a checkpoint every hour", rate)
        yield Setting("spot, asked, a checkpoint every hour", rate, is_asked=True)
        yield Setting("spot, asked, no other checkpoints", rate, is_asked=True, checkpoint=0)
    for rate in scale.rates:
        yield Setting("a third can't write any, spot first", rate, is_asked=True, fragile_every=3)
        yield Setting("a third can't write any, by expected cost", rate, is_asked=True, fragile_every=3, by_cost=True)


def check_spot(scale: Scale, seed: int, traces_dir: Path | None, on_progress: OnProgress) -> Claim:
    name = "helios" if traces_dir is not None else "synthetic/training"
    trace = load_trace(name, seed=seed if traces_dir is None else None, traces_dir=traces_dir)
    window = scale.days * DAY
    found = jobs_in_window(trace.jobs, WINDOW_START * DAY, window)
    jobs = [job for number, job in enumerate(found) if number % scale.keep_every == 0]
    nodes = _park_size(jobs, window)
    rows: list[Row] = []
    chosen = [*settings_of(scale)]
    for done, setting in enumerate(chosen):
        on_progress(done / len(chosen))
        rows.append(_row(setting, *play(jobs, nodes, setting, scale, seed)))
    section = Section(
        "spot",
        f"{trace.name}: {len(jobs)} jobs in {scale.days} days, {nodes} nodes of 8 GPUs of each sort",
        COLUMNS,
        rows,
        note=f"Prices: {PRICES[ON_DEMAND]:g} on demand, {PRICES[SPOT]:g} on spot nodes. A checkpoint on request takes "
        f"{WRITE_S} s, the notice is {NOTICE_S} s, a restart {RESTART_S} s.",
    )
    return Claim("spot", CLAIM, _found(rows), _verdict(rows), _conditions(rows), (section,))


def _park_size(jobs: Sequence[Job], window: int) -> int:
    """Twice what is busy on average, and as much as the largest job wants."""
    busy = sum(_gpus(job) * min(job.duration or 0, window - job.arrival) for job in jobs) / window
    return max(2, round(2 * busy / GPUS_PER_NODE), *(-(-_gpus(job) // GPUS_PER_NODE) for job in jobs))


def _gpus(job: Job) -> int:
    return sum(int(pod.spec.containers[0].resources.requests.get(GPU_RESOURCE, 0)) for pod in job.pods)


# A run


def play(
    jobs: Sequence[Job], nodes: int, setting: Setting, scale: Scale, seed: int
) -> tuple[list[TaskRecord], dict[str, float]]:
    """The records, and GPU-seconds that were held by flavor."""
    templates = TemplateCache()
    tasks = [_task(job, number, setting, templates) for number, job in enumerate(jobs)]
    horizon = scale.days * DAY
    park = tuple(_fleet(nodes))
    spot_nodes = [node.name for node in park if node.labels[POOL_LABEL] == SPOT]
    settings = TaskClusterSettings(
        config=EngineConfig(
            queues=QueueConfig(restart_seconds=RESTART_S),
            gangs=GangSettings(planned_starts=PlannedStartSettings(depth=0)),
        ),
        nodes=park,
        objects=tuple(decode_object(tree) for tree in _queue_trees(setting, nodes)),
        horizon=horizon,
        tick=scale.tick,
        outages=tuple(outages(spot_nodes, setting.per_day, horizon, seed)),
    )
    cluster = SpotCluster(settings, tasks, NOTICE_S, WRITE_S)
    records = cluster.run()
    cluster.charge_running()
    by_flavor = {ON_DEMAND: 0.0, SPOT: 0.0}
    pool = {node.name: node.labels[POOL_LABEL] for node in park}
    for name, seconds in cluster.gpu_seconds.items():
        by_flavor[pool[name]] += seconds
    return records, by_flavor


def outages(nodes: Sequence[str], per_day: float, horizon: int, seed: int) -> Iterator[Outage]:
    """At random moments; the node is back some time after each."""
    for name in nodes:
        rng, at = Random(f"{seed} {name}"), 0.0
        while per_day and (at := at + rng.expovariate(per_day / DAY)) < horizon:
            yield Outage(int(at) + NOTICE_S, int(at) + NOTICE_S + AWAY_S, (name,))
            at += NOTICE_S + AWAY_S


def _task(job: Job, number: int, setting: Setting, templates: TemplateCache) -> Task:
    parts = split_gpus_by_pod(_gpus(job))
    is_fragile = bool(setting.fragile_every) and number % setting.fragile_every == 0
    checkpoint = 0 if is_fragile else setting.checkpoint
    annotations = {POD_GROUP_TOTAL_COUNT_ANNOTATION: str(len(parts))}
    if setting.is_asked and not is_fragile:
        annotations |= {ON_PREEMPTION_ANNOTATION: "ask", CHECKPOINT_GRACE_ANNOTATION: f"{2 * WRITE_S}s"}
    if checkpoint:
        annotations[CHECKPOINT_INTERVAL_ANNOTATION] = f"{checkpoint}s"
    labels = {QUEUE_NAME_LABEL: QUEUE, KUEUE_POD_GROUP_NAME: job.name}
    pods = tuple(
        Pod(
            metadata=ObjectMeta(name=f"{job.name}-{index}", labels=labels, annotations=annotations),
            spec=templates.get(PodSize(gpus=part)).spec,
        )
        for index, part in enumerate(parts)
    )
    return Task(job.name, pods, job.arrival, job.duration, checkpoint=checkpoint, restart=RESTART_S)


def _fleet(nodes: int) -> Iterator[Node]:
    for name in PRICES:
        pool = FleetPool(
            name=name,
            count=nodes,
            gpus=(FleetGpus(model="H100", count=GPUS_PER_NODE),),
            cpu="128",
            memory="2Ti",
            pods=1000,
            labels={POOL_LABEL: name},
        )
        yield from expand_fleet(Fleet(spec=FleetSpec(pools=(pool,))))


def _queue_trees(setting: Setting, nodes: int) -> Iterator[dict[str, Any]]:
    for name, price in PRICES.items():
        annotations = {GPU_HOUR_PRICE_ANNOTATION: str(price)}
        if name == SPOT:
            annotations |= {INTERRUPTIONS_ANNOTATION: str(setting.per_day)}
            annotations |= {INTERRUPTION_NOTICE_ANNOTATION: f"{NOTICE_S}s"}
        yield _tree("ResourceFlavor", name, {"nodeLabels": {POOL_LABEL: name}}, annotations)
    quota = [{"name": GPU_RESOURCE, "nominalQuota": nodes * GPUS_PER_NODE}]
    flavors = [{"name": name, "resources": quota} for name in setting.flavors]
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": [GPU_RESOURCE], "flavors": flavors}],
    }
    yield _tree("ClusterQueue", QUEUE, spec, {FLAVOR_ORDER_ANNOTATION: "expected-cost"} if setting.by_cost else {})
    yield _tree("LocalQueue", QUEUE, {"clusterQueue": QUEUE}, {}, "default")


def _tree(
    kind: str, name: str, spec: dict[str, Any], annotations: dict[str, str], namespace: str = ""
) -> dict[str, Any]:
    metadata = {"name": name, "annotations": annotations, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": KUEUE_API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _row(setting: Setting, records: Sequence[TaskRecord], by_flavor: dict[str, float]) -> Row:
    def gpu_seconds(of: str) -> float:
        return sum(record.gpus * float(getattr(record, of)) for record in records)

    held, lost, restarts = gpu_seconds("held"), gpu_seconds("lost"), gpu_seconds("restarting")
    useful = held - lost - restarts
    paid = sum(PRICES[flavor] * seconds for flavor, seconds in by_flavor.items())
    price = paid / useful if useful else 0.0
    return {
        "setting": setting.name,
        "per_day": setting.per_day,
        "useful_gpu_hours": useful / HOUR,
        "stops": sum(len(record.stops) for record in records),
        "spot_pct": 100 * by_flavor[SPOT] / sum(by_flavor.values()),
        "lost_pct": 100 * lost / held,
        "restart_pct": 100 * restarts / held,
        "price": price,
        "saved_pct": 100 * (1 - price / PRICES[ON_DEMAND]),
    }


# What it comes to


def _named(rows: Sequence[Row], part: str) -> list[Row]:
    return [row for row in rows if part in str(row["setting"])]


def _found(rows: Sequence[Row]) -> str:
    killed, asked = _named(rows, "killed"), _named(rows, "asked, a checkpoint")
    return (
        f"At half the price {_range(killed, 'saved_pct', '.0f')} % are saved where jobs are killed and write a "
        f"checkpoint every hour, and {_range(asked, 'saved_pct', '.0f')} % where they are asked."
    )


def _verdict(rows: Sequence[Row]) -> str:
    saved = [float(row["saved_pct"] or 0) for row in _named(rows, "spot, ")]
    if min(saved) >= 30:
        return HOLDS
    return PARTLY if max(saved) >= 30 else FAILS


def _conditions(rows: Sequence[Row]) -> tuple[str, ...]:
    killed, asked, alone = (_named(rows, part) for part in ("killed", "asked, a checkpoint", "no other checkpoints"))
    first, by_cost = _named(rows, "spot first"), _named(rows, "by expected cost")
    return (
        f"Work that is done again: {_range(killed, 'lost_pct', '.2f')} % of all GPU-time where jobs are killed, "
        f"{_range(asked, 'lost_pct', '.2f')} % where they are asked, {_range(alone, 'lost_pct', '.2f')} % where they "
        "are asked and write no other checkpoints.",
        f"Where a third of the jobs can write none, spot nodes for all save {_range(first, 'saved_pct', '.0f')} "
        f"%, and flavors by expected cost {_range(by_cost, 'saved_pct', '.0f')} %, with "
        f"{_range(by_cost, 'spot_pct', '.0f')} % of the GPU-time on spot nodes.",
        "Interruptions are independent of each other, a node is back after ten minutes, and held GPUs are paid for, "
        "not idle nodes. Clouds take many nodes at once; then jobs wait, or fall back to nodes on demand.",
    )


def _range(rows: Sequence[Row], name: str, form: str) -> str:
    values = [float(row[name] or 0) for row in rows]
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"
