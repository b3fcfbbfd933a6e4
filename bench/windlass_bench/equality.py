"""Is the simulator right? The published runs again, compared digit by digit.

Fed by `runs`; its tables go to `report`.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from windlass_bench.play import Case, Run, RunOutcome
from windlass_bench.published import OTHER_POLICIES, SEEDS, published
from windlass_bench.runs import Outcomes
from windlass_bench.scale import Scale
from windlass_bench.section import BenchPart, Column, Row, Section, columns

REFERENCE = "fgd"
TOLERANCE = 0.3
"""Points by which a policy's mean may differ where the published draws can't be repeated (`random`)."""

RUN_COLUMNS = (
    *columns(list="pod list", policy="policy", seed="seed"),
    Column("gpu_milli_allocated", "milli-GPU at the end", "{:,}"),
    Column("allocated_pct", "% at the end", "{:.3f}"),
    *columns("{:.2f}", at_130_pct="% as published tables count", published_pct="published"),
    Column("equal", "equal"),
)
MEAN_COLUMNS = (
    *columns(policy="policy", list="pod list", seeds="seeds"),
    *columns("{:.2f}", at_130_pct="ours, %", published_pct="published, %"),
    Column("difference", "difference", "{:+.3f}"),
    *columns(equal="equal runs", within_tolerance=f"within {TOLERANCE}"),
)
POLICY_COLUMNS = (
    Column("policy", "policy"),
    *columns("{:,}", runs="runs", equal="equal to the printed digits"),
    Column("largest_run_difference", "largest difference of a run", "{:.2f}"),
    Column("largest_mean_difference", "of a list's mean", "{:.3f}"),
    Column("within_tolerance", f"all means within {TOLERANCE}"),
)


def equality(scale: Scale) -> BenchPart:
    def sections(outcomes: Outcomes) -> list[Section]:
        rows = [_run_row(outcome) for outcome in outcomes.of(runs)]
        means = [_mean_row(group) for group in _grouped(rows, "policy", "list")]
        return [
            Section(
                "equality",
                "Equality with the published numbers",
                POLICY_COLUMNS,
                [_policy_row(group) for group in _grouped(rows, "policy")],
                note="At 130 % of the GPUs asked for. Of `random` only the distribution can be repeated.",
            ),
            Section(
                "equality-means",
                "Equality, mean of the seeds of every list",
                MEAN_COLUMNS,
                means,
                detail=True,
            ),
            Section(
                "equality-fgd",
                "Equality, fgd, every list and seed",
                RUN_COLUMNS,
                [row for row in rows if row["policy"] == REFERENCE],
                note="Published is the mean over the last half percent of arrivals, so the end may be a little above.",
                detail=True,
            ),
        ]

    runs = [
        Run(Case(f"openb/{name}", seed), policy)
        for name in scale.lists
        for seed in scale.seeds
        for policy in (REFERENCE, *OTHER_POLICIES)
    ]
    return BenchPart(runs, sections)


def _run_row(outcome: RunOutcome) -> Row:
    case, result = outcome.run.case, outcome.result
    name = case.trace.partition("/")[2]
    assert case.seed is not None
    expected = published()[name, outcome.run.policy, case.seed]
    return {
        "list": name,
        "policy": outcome.run.policy,
        "seed": case.seed,
        "gpu_milli_allocated": result.gpu_milli_allocated,
        "allocated_pct": result.allocated_pct,
        "at_130_pct": outcome.published_pct,
        "published_pct": expected,
        "equal": outcome.published_pct == expected,
    }


def _mean_row(rows: Sequence[Row]) -> Row:
    ours, expected = (fmean(row[key] for row in rows) for key in ("at_130_pct", "published_pct"))
    return {
        "policy": rows[0]["policy"],
        "list": rows[0]["list"],
        "seeds": len(rows),
        "at_130_pct": ours,
        "published_pct": expected,
        "difference": ours - expected,
        "equal": sum(row["equal"] for row in rows),
        "within_tolerance": abs(ours - expected) <= TOLERANCE if len(rows) == len(SEEDS) else None,
    }


def _policy_row(rows: Sequence[Row]) -> Row:
    means = [_mean_row(group) for group in _grouped(rows, "list")]
    return {
        "policy": rows[0]["policy"],
        "runs": len(rows),
        "equal": sum(row["equal"] for row in rows),
        "largest_run_difference": max(abs(row["at_130_pct"] - row["published_pct"]) for row in rows),
        "largest_mean_difference": max(abs(mean["difference"]) for mean in means),
        "within_tolerance": _all_or_unknown([mean["within_tolerance"] for mean in means]),
    }


def _all_or_unknown(answers: Sequence[bool | None]) -> bool | None:
    """A mean of a few seeds says nothing about the published mean of ten."""
    return None if None in answers else all(answers)


def _grouped(rows: Sequence[Row], *keys: str) -> list[list[Row]]:
    """Rows that agree in the keys, in the order in which they first come."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return list(groups.values())
