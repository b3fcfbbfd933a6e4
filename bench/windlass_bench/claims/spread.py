"""Claim: spreading by default leaves no whole nodes for large jobs; packing does.

Jobs of 1 to 8 GPUs come and go on 64 nodes of 8 GPUs; the engine places them by its `spread` rule, its `pack` rule and
the default policy, at several loads. Every hour of the virtual clock counts the nodes that are wholly free, which is
what the next 8-GPU job needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec

from windlass.cluster.node_state import DEV_END, DEV_FIRST, FREE_MILLI
from windlass.cluster.snapshot import Snapshot
from windlass.engine import EngineConfig
from windlass.placement.policies import PlacementConfig
from windlass.simulate.pod_templates import PodSize, TemplateCache
from windlass.simulate.random_stream import RandomStream, mean_of_quantiles
from windlass_bench.claims.claim import FAILS, HOLDS, Claim, OnProgress, Panel, Series, percentile
from windlass_bench.claims.parks import GPUS_PER_NODE, rack_fleet
from windlass_bench.claims.task_cluster import TaskCluster, TaskClusterSettings
from windlass_bench.claims.tasks import Task, TaskRecord, waits_of
from windlass_bench.section import Column, Row, Section, columns

CLAIM = "The default scheduler spreads jobs over the cluster; packing leaves entire nodes empty for large jobs."
POLICIES = ("spread", "pack", "windlass")
HOUR = 3600
JOB_SIZES = ((50, 1), (20, 2), (20, 4), (10, 8))
"""Jobs by GPUs, in percent."""
QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)
SECONDS = (180.0, 3600.0, 21_600.0, 86_400.0, 172_800.0)
"""Run times at these shares of the jobs, straight in between: half within the hour, a hundredth over a day."""
GPUS_DRAWN, TIMES, ARRIVALS = range(3)

COLUMNS = (
    Column("load_pct", "load, %", "{:.0f}"),
    Column("policy", "rule"),
    Column("free_gpus", "GPUs free", "{:.0f}"),
    Column("whole_nodes", "whole nodes free", "{:.1f}"),
    *columns("{:.0f}", of_possible_pct="of those that could be, %", none_pct="of the time none, %"),
    *columns("{:,.0f}", large_wait_s="8-GPU jobs wait, s", large_p99_s="p99, s"),
    Column("small_wait_s", "others wait, s", "{:,.0f}"),
)


class Scale(msgspec.Struct, frozen=True):
    nodes: int = 64
    days: int = 5
    warm_up_days: int = 1
    loads: tuple[int, ...] = (15, 30, 50, 70, 85)


QUICK = Scale(nodes=16, days=2, warm_up_days=1, loads=(20, 60))


class Sample(msgspec.Struct, frozen=True):
    hour: float
    free_gpus: float
    whole_nodes: int


def check_spread(scale: Scale, seed: int, on_progress: OnProgress) -> Claim:
    cases = [(load, policy) for load in scale.loads for policy in POLICIES]
    rows, lines = [], []
    middle = scale.loads[len(scale.loads) // 2]
    for done, (load, policy) in enumerate(cases):
        on_progress(done / len(cases))
        looks, records = play(scale, load, policy, seed)
        rows.append(_row(scale, load, policy, looks, records))
        if load == middle:
            hours = tuple(look.hour for look in looks)
            lines.append(Series(policy, hours, tuple(float(look.whole_nodes) for look in looks)))
    return Claim(
        "spread",
        CLAIM,
        _found(rows, middle),
        _verdict(rows),
        _conditions(rows),
        (
            Section(
                "spread",
                f"Whole nodes left for 8-GPU jobs: {scale.nodes} nodes of 8 GPUs, {scale.days} days",
                COLUMNS,
                rows,
                note="What could be: free GPUs over 8, rounded down. Counted every hour after the first day.",
            ),
        ),
        (Panel(f"Whole nodes free at {middle} % load", "hours", "nodes with 8 GPUs free", tuple(lines), True),),
    )


def play(scale: Scale, load: int, policy: str, seed: int) -> tuple[list[Sample], list[TaskRecord]]:
    looks: list[Sample] = []

    def look(now: int, stage: TaskCluster) -> None:
        free = free_gpus_by_node(stage.snapshot(now))
        whole = sum(gpus >= GPUS_PER_NODE for gpus in free)
        looks.append(Sample(now / HOUR, sum(free), whole))

    settings = TaskClusterSettings(
        config=EngineConfig(PlacementConfig(policy)),
        nodes=rack_fleet(scale.nodes, 8),
        horizon=scale.days * 86_400,
        tick=30,
        sample_every=HOUR,
    )
    records = TaskCluster(settings, draw_jobs(scale, load, seed), look).run()
    return looks, records


def draw_jobs(scale: Scale, load: int, seed: int) -> list[Task]:
    """As many as keep `load` percent of the GPUs busy; those of a lower load are not those of a higher."""
    mean_s = mean_of_quantiles(QUANTILES, SECONDS)
    mean_gpus = sum(weight * gpus for weight, gpus in JOB_SIZES) / sum(weight for weight, _ in JOB_SIZES)
    span = scale.days * 86_400
    count = round(load / 100 * scale.nodes * GPUS_PER_NODE * span / (mean_s * mean_gpus))
    sizes = RandomStream(seed, GPUS_DRAWN).weighted_choice([weight for weight, _ in JOB_SIZES], count).tolist()
    seconds = RandomStream(seed, TIMES).from_quantiles(QUANTILES, SECONDS, count).tolist()
    arrivals = sorted(RandomStream(seed, ARRIVALS).integers_below(span, count).tolist())
    templates = TemplateCache()
    tasks = []
    for number, (size, duration, arrival) in enumerate(zip(sizes, seconds, arrivals, strict=True)):
        gpus = JOB_SIZES[size][1]
        name = f"job-{number:05}"
        # CPU in step with the GPUs: kube-scheduler's own spreading looks at CPU and memory.
        pod = templates.get(PodSize(8_000 * gpus, 65_536 * gpus, gpus)).make_pod(name)
        tasks.append(Task(name, (pod,), arrival, int(duration), "large" if gpus == 8 else "small"))
    return tasks


def free_gpus_by_node(snapshot: Snapshot) -> list[float]:
    """Free GPUs, node by node."""
    state = snapshot.node_state
    free = state.device_occupancy[:, FREE_MILLI]
    spans = zip(state.node_info[:, DEV_FIRST].tolist(), state.node_info[:, DEV_END].tolist(), strict=True)
    return [int(free[first:end].sum()) / 1000 for first, end in spans]


def _row(scale: Scale, load: int, policy: str, looks: Sequence[Sample], records: Sequence[TaskRecord]) -> Row:
    seen = [look for look in looks if look.hour >= 24 * scale.warm_up_days]
    possible = fmean(look.free_gpus // GPUS_PER_NODE for look in seen)
    whole = fmean(look.whole_nodes for look in seen)
    waits = {kind: waits_of(records, kind, scale.days * 86_400) for kind in ("large", "small")}
    return {
        "load_pct": load,
        "policy": policy,
        "free_gpus": fmean(look.free_gpus for look in seen),
        "whole_nodes": whole,
        "of_possible_pct": 100 * whole / possible if possible else None,
        "none_pct": 100 * fmean(look.whole_nodes == 0 for look in seen),
        "large_wait_s": fmean(waits["large"]),
        "large_p99_s": percentile(waits["large"], 99),
        "small_wait_s": fmean(waits["small"]),
    }


def _by(rows: Sequence[Row], load: object, policy: str) -> Row:
    return next(row for row in rows if row["load_pct"] == load and row["policy"] == policy)


def _found(rows: Sequence[Row], load: int) -> str:
    spread, pack = _by(rows, load, "spread"), _by(rows, load, "pack")
    return (
        f"At {load} % load, {spread['free_gpus']:.0f} GPUs are free either way: spreading leaves "
        f"{spread['whole_nodes']:.1f} whole nodes on average ({spread['none_pct']:.0f} % of the time none), packing "
        f"{pack['whole_nodes']:.1f}. 8-GPU jobs wait {spread['large_wait_s']:,.0f} s against "
        f"{pack['large_wait_s']:,.0f} s."
    )


def _verdict(rows: Sequence[Row]) -> str:
    better = all(
        _by(rows, load, "pack")["whole_nodes"] >= _by(rows, load, "spread")["whole_nodes"]
        for load in {row["load_pct"] for row in rows}
    )
    return HOLDS if better else FAILS


def _conditions(rows: Sequence[Row]) -> tuple[str, ...]:
    loads = sorted({row["load_pct"] for row in rows})
    worst = " ".join(
        f"{load:.0f} % load: {_by(rows, load, 'spread')['of_possible_pct']:.0f} % with spreading, "
        f"{_by(rows, load, 'pack')['of_possible_pct']:.0f} % with packing, "
        f"{_by(rows, load, 'windlass')['of_possible_pct']:.0f} % with the default policy."
        for load in loads
        if _by(rows, load, "spread")["of_possible_pct"] is not None
    )
    return (
        f"Of the whole nodes that the free GPUs could make up: {worst}",
        "Packing can't mend what departures leave: without moves, holes stay until the last job of a node ends.",
        "kube-scheduler's default scores CPU and memory and not GPUs. Where pods ask for CPU in step with GPUs, as "
        "here, it spreads GPUs; among nodes that score alike it draws.",
    )
