"""The results as tables: rates side by side, with the ratio to the peer and to the limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windlass_bench.live.contenders import LIMIT, PEER, WINDLASS
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
    return [section for section in made if section.rows]


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
