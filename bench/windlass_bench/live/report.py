"""The results as tables: rates side by side, with the ratio to the peer and to the limit."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from windlass_bench.live.churn import ChurnResult
from windlass_bench.live.contenders import BEFORE, LIMIT, PACKING, PEER, WINDLASS
from windlass_bench.live.queues import QueueResult
from windlass_bench.live.run import BACKLOG, GANGS, MEMORY, STEADY, Result
from windlass_bench.section import Column, Row, Section, columns

_COMMON = (
    Column("contender", "contender"),
    *columns("{:,}", nodes="nodes", pods="pods", bound="bound"),
    Column("rate", "bound/s", "{:.0f}"),
)
_COST = (Column("cpu_seconds", "CPU s", "{:.1f}"), Column("peak_rss_mib", "peak RSS MiB", "{:.0f}"))
_RATIOS = (Column("of_peer", "× kube-scheduler", "{:.1f}"), Column("of_limit", "of the limit", "{:.0%}"))
_WAITS = columns("{:.3f}", p50="p50 s", p99="p99 s")


def sections_of(results: Sequence[Result]) -> list[Section]:
    rows = {
        part: [_row(result, results) for result in _best(results, part)] for part in (BACKLOG, STEADY, GANGS, MEMORY)
    }
    made = [
        Section(
            "backlog",
            "A backlog is let go: pods bound a second",
            (*_COMMON, *_RATIOS, *_COST),
            rows[BACKLOG],
            note="Pods of fifty shapes, all there before the contender may look. The limit decides nothing.",
        ),
        Section(
            "steady",
            "Steady arrivals with churn: seconds from creation to bound",
            (*_COMMON, *_WAITS, *_COST),
            rows[STEADY],
        ),
        Section("gangs", "Gangs of eight pods of eight GPUs", (*_COMMON, *_COST), rows[GANGS]),
        Section(
            "memory",
            "Memory on a full cluster, ten pods a node",
            (*_COMMON[:3], _COST[1]),
            rows[MEMORY],
            note="Read five seconds after the contender is in step with it.",
        ),
    ]
    return [section for section in (*made, _before_section(results)) if section.rows]


def _before_section(results: Sequence[Result]) -> Section:
    """Medians of all rounds of this build and of the other one, and their ratios."""
    rows: list[Row] = []
    for part, nodes in dict.fromkeys((result.task.part, result.task.nodes) for result in results):
        by_build: dict[str, list[Result]] = {WINDLASS: [], BEFORE: []}
        for result in results:
            if (result.task.part, result.task.nodes) == (part, nodes) and result.task.contender in by_build:
                by_build[result.task.contender].append(result)
        if not all(by_build.values()):
            continue
        for measure in ("rate", *(("p50", "p99") if part == STEADY else ()), "cpu_seconds", "peak_rss_mib"):
            before, now = (
                statistics.median(getattr(result, measure) for result in by_build[name]) for name in (BEFORE, WINDLASS)
            )
            row: Row = {"part": part, "nodes": nodes, "measure": measure, "before": before, "now": now}
            rows.append({**row, "ratio": now / before if before else None})
    texts = columns(part="part", measure="measure")
    numbers = (*columns("{:.3f}", before="before", now="now"), Column("ratio", "ratio", "{:.2f}"))
    title = "Beside another build: medians of all rounds"
    return Section("before", title, (texts[0], *columns("{:,}", nodes="nodes"), texts[1], *numbers), rows)


def _best(results: Iterable[Result], part: str) -> list[Result]:
    """Of several rounds the fastest (for arrivals: the one with the shortest waits)."""
    best: dict[tuple[str, int], Result] = {}
    for result in results:
        if result.task.part != part:
            continue
        key = result.task.contender, result.task.nodes
        known = best.get(key)
        if known is None or _merit(result) > _merit(known):
            best[key] = result
    return sorted(best.values(), key=lambda result: (result.task.nodes, _ORDER[result.task.contender]))


_ORDER = {WINDLASS: 0, BEFORE: 1, PEER: 2, PACKING: 3, LIMIT: 4}


def _merit(result: Result) -> float:
    return -result.p99 if result.task.part == STEADY else result.rate


def _row(result: Result, results: Sequence[Result]) -> Row:
    task = result.task
    rates = {
        other.task.contender: other.rate
        for other in _best(results, task.part)
        if other.task.nodes == task.nodes and other.rate
    }
    mine = task.contender == WINDLASS
    return {
        "contender": task.contender,
        "nodes": task.nodes,
        "pods": task.pods or result.bound,
        "bound": result.bound,
        "rate": result.rate,
        "of_peer": result.rate / rates[PEER] if mine and PEER in rates else None,
        "of_limit": result.rate / rates[LIMIT] if task.contender != LIMIT and LIMIT in rates else None,
        "p50": result.p50,
        "p99": result.p99,
        "cpu_seconds": result.cpu_seconds,
        "peak_rss_mib": result.peak_rss_mib or None,
    }


_QUEUE_COLUMNS = (
    Column("contender", "contender"),
    *columns("{:,}", nodes="nodes", jobs="jobs"),
    Column("arrival", "created"),
    Column("started", "started", "{:,}"),
    Column("rate", "jobs/s", "{:.1f}"),
    Column("of_kueue", "× Kueue", "{:.1f}"),
    *_WAITS,
    Column("writes_per_job", "writes/job", "{:.2f}"),
    Column("writes_per_change", "writes/change", "{:.2f}"),
    *columns("{:,}", conflicts="conflicts", duplicate_creates="created twice"),
    *_COST,
)


def queue_section(results: Sequence[QueueResult]) -> Section:
    return Section(
        "queues",
        "Queued Jobs of one to four pods",
        _QUEUE_COLUMNS,
        [_queue_row(result, results) for result in results],
        note="A Job is started when its last pod is bound. A Workload's creation, its status, the Job and a binding are"
        " changes.",
    )


def _queue_row(result: QueueResult, results: Sequence[QueueResult]) -> Row:
    task = result.task
    same = [other for other in results if (other.task.jobs, other.task.rate) == (task.jobs, task.rate)]
    kueue = max((other.rate for other in same if other.task.contender != WINDLASS), default=0.0)
    jobs = max(1, result.started)
    return {
        "contender": task.name,
        "nodes": task.nodes,
        "jobs": task.jobs,
        "arrival": f"{task.rate:g} a second" if task.rate else "at once",
        "started": result.started,
        "rate": result.rate,
        "of_kueue": result.rate / kueue if kueue and task.contender == WINDLASS and not task.rate else None,
        "p50": result.p50,
        "p99": result.p99,
        "writes_per_job": result.writes / jobs,
        "writes_per_change": result.writes / max(1, result.needed_writes),
        "conflicts": result.conflicts,
        "duplicate_creates": result.duplicate_creates,
        "cpu_seconds": result.cpu_seconds,
        "peak_rss_mib": result.peak_rss_mib,
    }


_CHURN_COLUMNS = (
    Column("contender", "contender"),
    *columns("{:,}", nodes="nodes", pods="pods", bound="bound"),
    *columns("{:.0f}", asked="pods/s asked", rate="pods/s reached"),
    *_WAITS,
    Column("decision_p99", "decision p99 ≤ s", "{:.3f}"),
    *columns("{:.2%}", allocated="GPUs allocated", fgd="FGD's replay"),
    *_COST,
)


def churn_section(results: Sequence[ChurnResult]) -> Section:
    rows: list[Row] = [
        {
            "contender": result.contender,
            "nodes": result.nodes,
            "pods": result.arrived,
            "bound": result.bound,
            "asked": result.asked_rate,
            "rate": result.arrived / result.seconds,
            "p50": result.p50,
            "p99": result.p99,
            "decision_p99": result.decision_p99,
            "allocated": result.allocated,
            "fgd": result.fgd_allocated,
            "cpu_seconds": result.cpu_seconds,
            "peak_rss_mib": result.peak_rss_mib,
        }
        for result in results
    ]
    return Section(
        "churn",
        "Pods that come and go on a nearly full cluster, a tenth of them in gangs",
        _CHURN_COLUMNS,
        rows,
        note="A decision of Windlass is on all pods that wait, one of kube-scheduler on one pod; which knows no gangs.",
    )
