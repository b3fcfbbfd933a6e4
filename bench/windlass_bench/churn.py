"""Does it hold when pods leave again? `windlass` and others where pods come and go.

Fed by `runs`; its table goes to `report`. The measure is GPU-time allocated until the last arrival (after
that the queue only runs dry), and how long what was placed had waited.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from windlass_bench.play import Case, Run
from windlass_bench.runs import Outcomes
from windlass_bench.scale import Scale
from windlass_bench.section import BenchPart, Column, Row, Section, columns

POLICIES = ("fgd", "windlass", "best-fit", "first-fit")
BASELINE = "fgd"
REPLAYS = ("times:100:10", "times:200:10")
"""The recorded load would leave the park almost empty: arrivals 100 and 200 times as fast, on a tenth of the nodes."""
LISTS = ("default", "cpu250", "gpushare60", "gpushare100", "gpuspec33")

COLUMNS = (
    *columns(trace="trace", replay="replay", no_room="no room", runs="runs"),
    *columns("{:.2f}", fgd_gpu_time_pct="fgd, GPU-time %", windlass_gpu_time_pct="windlass"),
    Column("windlass_difference", "difference", "{:+.2f}"),
    Column("best-fit_gpu_time_pct", "best-fit", "{:.2f}"),
    Column("first-fit_gpu_time_pct", "first-fit", "{:.2f}"),
    *columns("{:.2f}", fgd_placed_pct="fgd, pods placed %", windlass_placed_pct="windlass"),
    *columns("{:,.0f}", fgd_wait_mean_s="fgd, mean wait s", windlass_wait_mean_s="windlass"),
)
POLICY_COLUMNS = (
    *columns(trace="trace", replay="replay", no_room="no room", policy="policy", runs="runs"),
    Column("gpu_time_pct", "GPU-time, %", "{:.2f}"),
    Column("difference", "vs fgd", "{:+.2f}"),
    *columns("{:.2f}", most_allocated_pct="fullest moment, %", placed_pct="pods placed, %"),
    *columns("{:,.0f}", wait_mean_s="mean wait, s", wait_p99_s="p99 wait, s"),
)
COMPARED = ("gpu_time_pct", "difference", "placed_pct", "wait_mean_s")
"""Measures of which the short table has a column a policy."""


def churn(scale: Scale, traces_dir: Path | None) -> BenchPart:
    groups = _cases(scale, traces_dir)

    def sections(outcomes: Outcomes) -> list[Section]:
        by_case = [
            [row for policy in POLICIES if (row := _row(outcomes, cases, policy)) is not None] for cases in groups
        ]
        return [
            Section(
                "churn",
                "Pods that come and go: GPU-time allocated until the last arrival",
                COLUMNS,
                [_side_by_side(rows) for rows in by_case if len(rows) == len(POLICIES)],
                note="No room: what finds none waits first in first out, or is dropped. times:100:10 is the recorded "
                "times with arrivals 100 times as fast on a tenth of the nodes.",
            ),
            Section(
                "churn-policies",
                "Pods that come and go, every policy",
                POLICY_COLUMNS,
                [row for rows in by_case for row in rows],
                detail=True,
            ),
        ]

    return BenchPart([Run(case, policy) for cases in groups for case in cases for policy in POLICIES], sections)


def _side_by_side(rows: list[Row]) -> Row:
    """The rows of all policies on one case as one."""
    found = {key: rows[0][key] for key in ("trace", "replay", "no_room", "runs")}
    for row in rows:
        found |= {f"{row['policy']}_{key}": row[key] for key in COMPARED}
    return found


def _cases(scale: Scale, traces_dir: Path | None) -> list[list[Case]]:
    """Groups of cases that differ in nothing but the seed."""
    groups = []
    if traces_dir is not None:
        lists = LISTS if len(scale.own_seeds) > 1 else LISTS[:1]
        groups = [
            [Case(f"openb/{name}", replay=replay, drop=drop)]
            for name in lists
            for replay in REPLAYS
            for drop in (False, True)
        ]
    groups.append([Case("synthetic/inference", seed, drop=True) for seed in scale.own_seeds])
    groups.append([Case("synthetic/training", seed) for seed in scale.own_seeds])
    return groups


def _row(outcomes: Outcomes, cases: list[Case], policy: str) -> Row | None:
    found = outcomes.of(Run(case, policy) for case in cases)
    base = outcomes.of(Run(case, BASELINE) for case in cases)
    if not found or len(found) != len(base):
        return None
    case, results = cases[0], [outcome.result for outcome in found]
    used, used_by_base = (fmean(each.result.gpu_time_pct or 0.0 for each in of) for of in (found, base))
    waits = [result.waiting for result in results if result.waiting is not None]
    return {
        "trace": case.trace,
        "replay": case.replay if case.replay != "arrivals" else None,
        "no_room": "dropped" if case.drop else "waits",
        "policy": policy,
        "runs": len(found),
        "gpu_time_pct": used,
        "difference": None if policy == BASELINE else used - used_by_base,
        "most_allocated_pct": fmean(result.allocated_pct for result in results),
        "placed_pct": 100 * fmean(result.pods_placed / result.pods_arrived for result in results),
        "wait_mean_s": None if case.drop else fmean(wait.mean for wait in waits),
        "wait_p99_s": None if case.drop else fmean(wait.p99 for wait in waits),
    }
