"""The results as tables: rates side by side, with the ratio to the peer and to the limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from windlass.model.names.windlass import WINDLASS_API_VERSION
from windlass_bench.live.contenders import LIMIT, PEER, WINDLASS
from windlass_bench.live.run import BACKLOG, GANGS, MEMORY, STEADY, Result
from windlass_bench.report import KIND, machine
from windlass_bench.section import Column, Row, Section

_COMMON = (
    Column("contender", "contender"),
    Column("nodes", "nodes", "{:,}"),
    Column("pods", "pods", "{:,}"),
    Column("bound", "bound", "{:,}"),
    Column("rate", "bound/s", "{:.0f}"),
)
_COST = (
    Column("cpu_seconds", "CPU s", "{:.1f}"),
    Column("peak_rss_mib", "peak RSS MiB", "{:.0f}"),
)
_RATIOS = (
    Column("of_peer", "× kube-scheduler", "{:.1f}"),
    Column("of_limit", "of the limit", "{:.0%}"),
)
_WAITS = (Column("p50", "p50 s", "{:.3f}"), Column("p99", "p99 s", "{:.3f}"))


def sections_of(results: Sequence[Result]) -> list[Section]:
    backlog = [_row(result, results) for result in _best(results, BACKLOG)]
    steady = [_row(result, results) for result in _best(results, STEADY)]
    gangs = [_row(result, results) for result in _best(results, GANGS)]
    made = [
        Section(
            name="backlog",
            title="A backlog is let go: pods bound a second",
            note="Pods of fifty shapes, all there before the contender may look. The limit decides nothing.",
            columns=(*_COMMON, *_RATIOS, *_COST),
            rows=backlog,
        ),
        Section(
            name="steady",
            title="Steady arrivals with churn: seconds from creation to bound",
            columns=(*_COMMON, *_WAITS, *_COST),
            rows=steady,
        ),
        Section(
            name="gangs",
            title="Gangs of eight pods of eight GPUs",
            columns=(*_COMMON, *_COST),
            rows=gangs,
        ),
        Section(
            name="memory",
            title="Memory on a full cluster, ten pods a node",
            note="Read five seconds after the contender is in step with it.",
            columns=(*_COMMON[:3], Column("peak_rss_mib", "peak RSS MiB", "{:.0f}")),
            rows=[_row(result, results) for result in _best(results, MEMORY)],
        ),
    ]
    return [section for section in made if section.rows]


def report_document(sections: Sequence[Section]) -> dict[str, Any]:
    listed = [
        {"name": section.name, "title": section.title, "note": section.note, "rows": section.rows}
        for section in sections
    ]
    return {"apiVersion": WINDLASS_API_VERSION, "kind": KIND, "machine": machine(), "sections": listed}


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


_ORDER = {WINDLASS: 0, PEER: 1, LIMIT: 2}


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
