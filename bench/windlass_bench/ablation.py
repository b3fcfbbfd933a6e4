"""What does each part of our policy bring? `windlass` with one term of its rule left out at a time.

Fed by `runs`; its table goes to `report`. Tuning seeds only: this is about the rule, not a claim about
other arrivals.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from windlass.placement.workload_mix import SCORE_TERMS
from windlass_bench.play import Case, Run
from windlass_bench.published import TUNING_SEEDS
from windlass_bench.runs import Outcomes
from windlass_bench.scale import Scale
from windlass_bench.section import BenchPart, Column, Row, Section, columns

BASELINE = "fgd"
LISTS = ("default", "cpu250", "gpushare60", "gpushare100", "gpuspec33", "multigpu50")
STEADY_TRACE = "synthetic/inference"
"""Pods that come and go at a steady load; what finds no room is dropped."""

COLUMNS = (
    *columns(trace="trace", measure="measure", runs="runs"),
    *columns("{:.2f}", fgd_pct="fgd", windlass_pct="windlass"),
    *(Column(f"without_{term}", f"without {term}", "{:+.2f}") for term in SCORE_TERMS),
)


def ablation(scale: Scale, traces_dir: Path | None) -> BenchPart:
    groups = _cases(scale, traces_dir)

    def sections(outcomes: Outcomes) -> list[Section]:
        rows = [_row(outcomes, cases) for cases in groups]
        return [
            Section(
                "ablation",
                "What each term of the windlass policy brings: points lost or won without it",
                COLUMNS,
                [row for row in rows if row is not None],
                note="GPUs allocated at the end, or GPU-time where pods come and go. Without price: in proportion to "
                "what is free, no premium on whole devices. Without stranded: only nodes without any CPU count.",
            )
        ]

    return BenchPart([run for cases in groups for case in cases for run in _runs(case)], sections)


def _cases(scale: Scale, traces_dir: Path | None) -> list[list[Case]]:
    """Groups of cases that differ in nothing but the seed."""
    tuning = [seed for seed in scale.seeds if seed in TUNING_SEEDS]
    if traces_dir is None:
        groups = [[Case("synthetic/openb-like", seed) for seed in tuning]]
    else:
        groups = [[Case(f"openb/{name}", seed) for seed in tuning] for name in LISTS]
    groups.append([Case(STEADY_TRACE, seed, drop=True) for seed in scale.own_seeds[:2]])
    return groups


def _runs(case: Case) -> list[Run]:
    ours = [Run(case, "windlass", without_terms=without) for without in ((), *((term,) for term in SCORE_TERMS))]
    return [Run(case, BASELINE), *ours]


def _row(outcomes: Outcomes, cases: list[Case]) -> Row | None:
    """Means over the seeds that are complete; differences to the whole policy, paired by seed."""
    complete = [case for case in cases if len(outcomes.of(_runs(case))) == 2 + len(SCORE_TERMS)]
    if not complete:
        return None
    by_run = {run: _measure(outcomes, run) for case in complete for run in _runs(case)}

    def mean(policy: str, *without: str) -> float:
        return fmean(by_run[Run(case, policy, without_terms=without)] for case in complete)

    whole = mean("windlass")
    steady = complete[0].trace == STEADY_TRACE
    return {
        "trace": complete[0].trace,
        "measure": "GPU-time, %" if steady else "allocated, %",
        "runs": len(complete),
        "fgd_pct": mean(BASELINE),
        "windlass_pct": whole,
        **{f"without_{term}": mean("windlass", term) - whole for term in SCORE_TERMS},
    }


def _measure(outcomes: Outcomes, run: Run) -> float:
    result = outcomes.by_run[run].result
    return result.allocated_pct if result.gpu_time_pct is None else result.gpu_time_pct
