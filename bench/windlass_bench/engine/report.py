"""`windlass bench engine` as a whole: which parts it has, and what their tables look like.

`cli.engine` calls it and prints what it returns, in the forms that `report` knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from windlass_bench.engine.measurement import Measurement
from windlass_bench.engine.peers import PEERS, PEERS_NOTE
from windlass_bench.engine.task_runner import Measurements
from windlass_bench.engine.tasks import GROWTH_NODE_COUNTS, TASKS
from windlass_bench.section import Column, Row, Section, columns


class Goal(msgspec.Struct, frozen=True):
    per_second: float | None = None
    seconds: float | None = None

    def is_met(self, measured: Measurement) -> bool:
        if self.per_second is not None:
            return measured.per_second >= self.per_second
        return self.seconds is not None and measured.decide_s / measured.units <= self.seconds

    @property
    def text(self) -> str:
        return f"≥ {self.per_second:,.0f}/s" if self.per_second is not None else f"≤ {self.seconds:g} s"


GOALS = {
    **dict.fromkeys(("plain-10k", "plain-50k"), Goal(per_second=20_000)),
    **dict.fromkeys(("shapes-10k", "shapes-50k", "mixed-10k", "mixed-50k"), Goal(per_second=5_000)),
    "gangs-1000x8": Goal(per_second=500),
    "gang-1x1000": Goal(seconds=0.2),
    **dict.fromkeys(
        ("preempt-pod", "preempt-node", "preempt-gang", "preempt-none", "preempt-crowd"), Goal(seconds=0.2)
    ),
    **dict.fromkeys(("never-full", "never-large"), Goal(seconds=0.05)),
}

CASE_TITLES = {
    "plain-10k": "10,000 pods of one shape, a GPU each",
    "plain-50k": "50,000 pods of one shape, half a GPU each",
    "shapes-10k": "10,000 pods of 200 shapes",
    "shapes-50k": "50,000 pods of 200 shapes, more than there is room for",
    "mixed-10k": "the same, a tenth with affinity or spread",
    "mixed-50k": "50,000 of those, more than there is room for",
    "gangs-1000x8": "1,000 gangs of 8, each within a rack",
    "gang-1x1000": "one gang of 1,000 pods, as close as can be",
    "preempt-pod": "a pod of 2 GPUs; one candidate a node would do",
    "preempt-node": "a pod of 8 GPUs; all of a node has to go",
    "preempt-gang": "4 pods of 8 GPUs in one rack",
    "preempt-none": "a pod of 8 GPUs; the candidates are on too many nodes",
    "preempt-crowd": "32 pods of 8 GPUs in a queue; 2,400 one-GPU pods fill all nodes",
    "plans-400": "300 workloads wait, 760 pods run, all with run times",
    "never-full": "10 pods of 8 GPUs, all nodes taken by others",
    "never-large": "10 pods of 9 GPUs, more than any node has",
    "kueue-baseline": "baseline: 15,000 workloads, 30 queues",
    "kueue-large-scale": "large-scale: 50,000 workloads, 1,000 queues",
    "kueue-tas": "tas: 15,000 workloads of 2, 4 and 8 pods, 30 queues, racks",
    "steady-pods": "pods on their own",
    "steady-queues": "20 queues, gangs in the backlog",
    "quick-plain": "2,000 pods of one shape",
    "quick-mixed": "1,000 pods of 200 shapes, a tenth with affinity or spread",
    "quick-gangs": "50 gangs of 8, each within a rack",
    "quick-gang": "one gang of 200 pods",
    "quick-preempt": "a pod of 8 GPUs; all of a node has to go",
    "quick-plans": "30 workloads wait, 80 pods run, all with run times",
    "quick-kueue": "large-scale, two queues of it",
    "quick-steady": "20 queues, gangs in the backlog",
}

_CASE = (Column("what", "case"), Column("nodes", "nodes", "{:,}"))
_COST = (
    Column("intake_s", "intake and snapshot, s", "{:.2f}"),
    Column("peak_rss_mib", "peak memory, MiB", "{:,.0f}"),
)
_GOAL = columns(goal="goal", met="met", peer="published by peers")
RATE_COLUMNS = (
    *_CASE,
    Column("decide_s", "decide, CPU s", "{:.3f}"),
    Column("per_second", "decided a second", "{:,.0f}"),
    Column("placed", "pods placed", "{:,}"),
    *_COST,
    *_GOAL,
)
SINGLE_DECISION_COLUMNS = (
    *_CASE,
    Column("decide_ms", "decide, CPU ms", "{:,.1f}"),
    Column("cold_ms", "with nothing remembered, ms", "{:,.0f}"),
    Column("evicted", "evicted", "{:,}"),
    *_COST,
    *_GOAL,
)
KUEUE_COLUMNS = (
    *_CASE,
    Column("decide_s", "store, snapshot and decide, CPU s", "{:.1f}"),
    *columns("{:,.0f}", per_second="workloads a second", decisions="decisions", slowest_ms="slowest, ms"),
    Column("makespan_s", "makespan, virtual s", "{:,.1f}"),
    *columns("{:,.0f}", wait_large_ms="wait large, ms", wait_medium_ms="medium", wait_small_ms="small"),
    Column("peak_rss_mib", "peak memory, MiB", "{:,.0f}"),
    Column("peer", "published by peers"),
)
STEADY_COLUMNS = (
    *_CASE,
    *columns("{:,.0f}", pods="pods", us_an_event="an event, µs"),
    *columns("{:,.1f}", snapshot_ms="snapshot, ms", decide_ms="decide, ms"),
    *columns("{:.2f}", load_s="all objects, s", first_s="first snapshot and decide, s"),
    Column("peak_rss_mib", "peak memory, MiB", "{:,.0f}"),
)
GROWTH_COLUMNS = (
    Column("what", "case"),
    Column("nodes", "nodes", "{:,}"),
    Column("decide_s", "decide, CPU s", "{:.3f}"),
    Column("per_second", "decided a second", "{:,.0f}"),
    Column("growth_nodes", "nodes, times", "{:.1f}"),
    Column("growth_cost", "cost, times", "{:.2f}"),
    Column("linear", "linear or better"),
)


class EnginePart(msgspec.Struct, frozen=True):
    tasks: tuple[str, ...]
    quick: tuple[str, ...]
    title: str
    columns: tuple[Column, ...]
    note: str = ""


PARTS = {
    "pods": EnginePart(
        tuple(list(TASKS)[:6]), ("quick-plain", "quick-mixed"), "Single pods", RATE_COLUMNS, note=PEERS_NOTE
    ),
    "gangs": EnginePart(
        ("gangs-1000x8", "gang-1x1000"), ("quick-gangs", "quick-gang"), "Gangs with topology", RATE_COLUMNS
    ),
    "preemption": EnginePart(
        ("preempt-pod", "preempt-node", "preempt-gang", "preempt-none", "preempt-crowd"),
        ("quick-preempt",),
        "Preemption (5,000 nodes: 20,000 running pods, 2,000 of them candidates)",
        SINGLE_DECISION_COLUMNS,
    ),
    "plans": EnginePart(("plans-400",), ("quick-plans",), "Planned starts (backfill)", SINGLE_DECISION_COLUMNS),
    "verdict": EnginePart(
        ("never-full", "never-large"),
        ("never-full",),
        "The verdict that a job can't start",
        SINGLE_DECISION_COLUMNS,
    ),
    "kueue": EnginePart(
        ("kueue-baseline", "kueue-large-scale", "kueue-tas"),
        ("quick-kueue",),
        "Kueue's performance configurations on the virtual clock",
        KUEUE_COLUMNS,
        note="Every workload is also placed on a node. A decision takes no virtual time, so the makespan is that of an "
        "unbounded scheduler; Kueue's own runs took 351, 1,179 and 401 s.",
    ),
    "steady": EnginePart(
        ("steady-pods", "steady-queues"),
        ("quick-steady",),
        "Deciding again after a change",
        STEADY_COLUMNS,
        note="Mean of 20 rounds: a pod ends, what starts in its place is assumed and then confirmed.",
    ),
    "growth": EnginePart(
        tuple(f"{case}@{nodes}" for case in ("plain", "mixed", "gangs") for nodes in GROWTH_NODE_COUNTS),
        ("quick-plain@250", "quick-plain@1000"),
        "How the cost grows with the nodes",
        GROWTH_COLUMNS,
        note="The same pods or gangs on more nodes.",
    ),
}
"""Part → what it measures and how its table looks."""


def tasks_of(parts: Iterable[str], quick: bool) -> list[str]:
    chosen = [PARTS[name].quick if quick else PARTS[name].tasks for name in PARTS if name in set(parts)]
    return list(dict.fromkeys(name for names in chosen for name in names))


def sections_of(parts: Iterable[str], quick: bool, measured: Measurements) -> list[Section]:
    """The tables that have at least one row."""
    found = []
    for name, part in PARTS.items():
        tasks = part.quick if quick else part.tasks
        rows = _rows([measured.by_task[task] for task in tasks if task in measured.by_task])
        if name in parts and rows:
            section = Section(name, part.title, part.columns, rows, note=part.note)
            found.append(section)
    return found


def _rows(measured: Sequence[Measurement]) -> list[Row]:
    rows = [_row(measurement) for measurement in measured]
    smallest: dict[str, Row] = {}
    for row in rows:
        if "@" not in row["task"]:
            continue
        base = smallest.setdefault(row["task"].partition("@")[0], row)
        row["growth_nodes"] = row["nodes"] / base["nodes"]
        row["growth_cost"] = row["decide_s"] / base["decide_s"]
        row["linear"] = row["growth_cost"] <= row["growth_nodes"]
    return rows


def _row(measurement: Measurement) -> Row:
    goal, peer = GOALS.get(measurement.task), PEERS.get(measurement.task)
    return {
        "task": measurement.task,
        "what": CASE_TITLES.get(measurement.task) or _grown_case(measurement),
        "nodes": measurement.nodes,
        "units": measurement.units,
        "unit": measurement.unit,
        "decide_s": round(measurement.decide_s, 6),
        "decide_ms": round(1000 * measurement.decide_s / measurement.units, 4),
        "per_second": round(measurement.per_second, 1),
        "placed": measurement.placed,
        "held": measurement.held,
        "evicted": measurement.evicted,
        "intake_s": round(measurement.intake_s, 6),
        "peak_rss_mib": measurement.peak_rss_mib,
        **{name: round(value, 4) for name, value in measurement.extra.items()},
        "goal": goal.text if goal is not None else None,
        "met": goal.is_met(measurement) if goal is not None else None,
        "peer": peer.text if peer is not None else None,
    }


def _grown_case(measurement: Measurement) -> str:
    kind = measurement.task.partition("@")[0].removeprefix("quick-")
    words = {"plain": "pods of one shape", "mixed": "pods of 200 shapes, some tied", "gangs": "gangs of 8"}
    return f"{measurement.units:,} {words[kind]}"
