"""How fast, in how much memory, and how does it grow?

Fed by `runs`, every run in a process of its own; its tables go to `report`. Beside our numbers stand those
that the published simulator took on a machine of the same kind, and the ratio.
"""

from __future__ import annotations

from pathlib import Path

from windlass.simulate.trace_run import POLICIES
from windlass_bench.play import Case, Run, RunOutcome
from windlass_bench.published import PUBLISHED_COST
from windlass_bench.runs import Outcomes
from windlass_bench.scale import Scale
from windlass_bench.section import BenchPart, Column, Row, Section, columns

TRACE = "openb/default"
FALLBACK_TRACE = "synthetic/openb-like"
"""As large as the real one, where that is not at hand."""
LARGE = "synthetic/large"
SEED = 42

COST_COLUMNS = (
    *columns("{:,}", nodes="nodes", pods="pods"),
    *columns("{:.2f}", seconds="wall, s", cpu_s="CPU, s"),
    *columns("{:,.0f}", decisions_per_second="decisions/s", peak_rss_mib="peak memory, MiB"),
)
PUBLISHED_COLUMNS = (
    Column("policy", "policy"),
    *COST_COLUMNS[2:],
    Column("allocated_pct", "allocated, %", "{:.2f}"),
    *columns("{:,.0f}", published_s="published simulator, s", times_faster="times faster"),
    Column("published_rss_mib", "its memory, MiB", "{:,.0f}"),
    Column("times_smaller", "times smaller", "{:.0f}"),
)
LARGE_COLUMNS = (*columns(trace="trace", policy="policy"), *COST_COLUMNS)
GROWTH_COLUMNS = (
    Column("policy", "policy"),
    *COST_COLUMNS,
    *columns("{:.0f}", us_per_decision="CPU per decision, µs", growth_nodes="nodes, times"),
    Column("growth_cost", "cost per decision, times", "{:.2f}"),
)
BEST_OF_NOTE = "Of {} runs, each in a process of its own, the fastest; memory is that of the whole process."


def speed(scale: Scale, traces_dir: Path | None) -> BenchPart:
    trace = TRACE if traces_dir is not None else FALLBACK_TRACE
    by_policy = {policy: _runs(Case(trace, SEED), policy, scale) for policy in POLICIES}
    large = {policy: _runs(Case(LARGE, SEED), policy, scale) for policy in ("windlass", "fgd", "first-fit")}
    growth = _growth_runs(scale) if traces_dir is not None else {}

    def sections(outcomes: Outcomes) -> list[Section]:
        found = [
            Section(
                "speed",
                f"Speed, {trace}, seed {SEED}",
                PUBLISHED_COLUMNS,
                [_published_row(best) for best in _bests(outcomes, by_policy)],
                note=BEST_OF_NOTE.format(scale.repetitions)
                + " The published simulator was measured on a machine of two shared cores.",
            ),
            Section(
                "speed-large",
                "Speed, 10,000 nodes and 100,000 pods",
                LARGE_COLUMNS,
                [_cost_row(best) for best in _bests(outcomes, large)],
                note=BEST_OF_NOTE.format(scale.repetitions),
            ),
        ]
        rows = _growth_rows(_bests(outcomes, growth))
        if rows:
            title = "How the cost of a decision grows: openb/default on its park several times over"
            note = "Pods grow with the park, to 130 % of its GPUs, in an order of our own."
            found.append(Section("growth", title, GROWTH_COLUMNS, rows, note=note))
        return found

    groups = [*by_policy.values(), *large.values(), *growth.values()]
    # Repetition by repetition, so that a busy minute of the machine meets all alike.
    return BenchPart(
        sorted((run for runs in groups for run in runs), key=lambda run: run.isolated_repetition), sections
    )


def _runs(case: Case, policy: str, scale: Scale) -> list[Run]:
    return [Run(case, policy, isolated_repetition=1 + repetition) for repetition in range(scale.repetitions)]


def _growth_runs(scale: Scale) -> dict[str, list[Run]]:
    return {
        f"{policy}*{copies}": _runs(Case(TRACE, SEED, f"openb*{copies}"), policy, scale)
        for policy in ("windlass", "fgd")
        for copies in scale.copies
    }


def _bests(outcomes: Outcomes, groups: dict[str, list[Run]]) -> list[RunOutcome]:
    """The fastest run of each group: what else went on on the machine only ever slows down."""
    found = [outcomes.of(runs) for runs in groups.values()]
    return [min(of_group, key=lambda each: each.result.seconds) for of_group in found if of_group]


def _cost_row(outcome: RunOutcome) -> Row:
    result = outcome.result
    return {
        "trace": result.trace,
        "policy": result.policy,
        "nodes": result.nodes,
        "pods": result.pods_arrived,
        "seconds": result.seconds,
        "cpu_s": outcome.cpu_s,
        "decisions_per_second": result.decisions_per_second,
        "peak_rss_mib": result.peak_rss_mib,
        "allocated_pct": result.allocated_pct,
    }


def _published_row(outcome: RunOutcome) -> Row:
    row = _cost_row(outcome)
    cost = PUBLISHED_COST.get(row["policy"]) if row["trace"] == TRACE else None
    if cost is not None:
        row["published_s"], row["published_rss_mib"] = cost.wall_s, cost.peak_rss_mib
        row["times_faster"] = cost.wall_s / row["seconds"]
        row["times_smaller"] = cost.peak_rss_mib / row["peak_rss_mib"]
    return row


def _growth_rows(outcomes: list[RunOutcome]) -> list[Row]:
    rows: list[Row] = []
    smallest: dict[str, Row] = {}
    for outcome in outcomes:
        row = _cost_row(outcome)
        row["us_per_decision"] = 1e6 * row["cpu_s"] / row["pods"]
        base = smallest.setdefault(row["policy"], row)
        row["growth_nodes"] = row["nodes"] / base["nodes"]
        row["growth_cost"] = row["us_per_decision"] / base["us_per_decision"]
        rows.append(row)
    return rows
