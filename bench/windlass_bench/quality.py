"""Is our policy better? `windlass` against `fgd`, the best published policy, on the same arrivals.

Fed by `runs`; its tables go to `report`. Seeds 42 to 46 were used to tune, 47 to 51 never were, and the
other traces neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from windlass_bench.fleets import FLEETS
from windlass_bench.play import Case, Run
from windlass_bench.published import HELD_OUT_SEEDS, TUNING_SEEDS
from windlass_bench.runs import Outcomes
from windlass_bench.scale import Scale
from windlass_bench.section import BenchPart, Column, Row, Section, columns

BASELINE = "fgd"
MIXES = ("declared", "seen")

LIST_COLUMNS = (
    *columns(list="pod list", seeds="seeds"),
    *columns("{:.2f}", fgd_pct="fgd, %", declared_pct="windlass, %"),
    *columns("{:+.2f}", declared_difference="difference", declared_tuning="42–46"),
    Column("declared_held_out", "47–51", "{:+.2f}"),
    Column("declared_wins", "wins"),
    Column("seen_pct", "windlass, seen mix, %", "{:.2f}"),
    *columns("{:+.2f}", seen_difference="difference", seen_tuning="42–46", seen_held_out="47–51"),
    Column("seen_wins", "wins"),
)
OTHER_COLUMNS = (
    *columns(trace="pods", park="park"),
    *columns("{:,}", nodes="nodes", gpus="GPUs"),
    Column("seeds", "seeds"),
    *columns("{:.2f}", fgd_pct="fgd, %", declared_pct="windlass, %"),
    Column("declared_difference", "difference", "{:+.2f}"),
    Column("declared_wins", "wins"),
    Column("seen_pct", "windlass, seen mix, %", "{:.2f}"),
    Column("seen_difference", "difference", "{:+.2f}"),
    Column("seen_wins", "wins"),
)

OTHER_LISTS = ("cpu0", "cpu300", "gpushare20", "gpuspec05")
"""Lists of openb that no published experiment used, and our tuning neither."""
PODS_ON_OTHER_PARKS = ("default", "cpu250", "gpushare60", "gpushare100", "multigpu30")


def better_than_fgd(scale: Scale) -> BenchPart:
    cases = {name: [Case(f"openb/{name}", seed) for seed in scale.seeds] for name in scale.lists}

    def sections(outcomes: Outcomes) -> list[Section]:
        rows = [{"list": name, **_comparison(outcomes, of_list)} for name, of_list in cases.items()]
        return [
            Section(
                "windlass-vs-fgd",
                "windlass against fgd, GPUs allocated when 130 % have been asked for, paired by seed",
                LIST_COLUMNS,
                [row for row in rows if row["seeds"]],
                note="Tuned on seeds 42–46 only. Declared: the list's class mix, as fgd has it. Seen: only what has "
                "arrived so far.",
            )
        ]

    return BenchPart([run for of_list in cases.values() for run in _runs(of_list)], sections)


def other_traces(scale: Scale, traces_dir: Path | None) -> BenchPart:
    groups = [[Case(trace, seed, park) for seed in scale.own_seeds] for trace, park in _unseen(traces_dir)]

    def sections(outcomes: Outcomes) -> list[Section]:
        rows = []
        for cases in groups:
            of_group = outcomes.of(_runs(cases))
            if of_group:
                result = of_group[0].result
                gpus = result.gpu_milli_total // 1000
                head = {"trace": cases[0].trace, "park": cases[0].fleet or "its own"}
                rows.append({**head, "nodes": result.nodes, "gpus": gpus, **_comparison(outcomes, cases)})
        return [
            Section(
                "other-traces",
                "windlass against fgd on traces and parks that the tuning never saw",
                OTHER_COLUMNS,
                rows,
                note="Arrival orders of our own, the published method.",
            )
        ]

    return BenchPart([run for cases in groups for run in _runs(cases)], sections)


def _unseen(traces_dir: Path | None) -> list[tuple[str, str]]:
    """(trace, park) pairs; those whose files are not at hand are left out."""
    pairs = [("synthetic/openb-like", "")]
    if traces_dir is None:
        return pairs
    pairs += [(f"openb/{name}", "") for name in OTHER_LISTS]
    pairs.append(("openb-all/default", ""))
    for park, (file, _) in FLEETS.items():
        if (traces_dir / file).is_file():
            pairs += [(f"openb/{name}", park) for name in PODS_ON_OTHER_PARKS]
    return pairs


def _runs(cases: Sequence[Case]) -> list[Run]:
    ours = [(("windlass", mix)) for mix in MIXES]
    return [Run(case, policy, mix) for case in cases for policy, mix in ((BASELINE, "declared"), *ours)]


def _comparison(outcomes: Outcomes, cases: Sequence[Case]) -> Row:
    """Both mixes against the baseline over the seeds for which all three are there."""
    complete = [case for case in cases if len(outcomes.of(_runs([case]))) == 1 + len(MIXES)]
    row: Row = {"seeds": len(complete)}
    if not complete:
        return row

    def allocated(case: Case, policy: str, mix: str) -> float:
        return outcomes.by_run[Run(case, policy, mix)].result.allocated_pct

    row["fgd_pct"] = fmean(allocated(case, BASELINE, "declared") for case in complete)
    for mix in MIXES:
        gains = {
            case.seed: allocated(case, "windlass", mix) - allocated(case, BASELINE, "declared") for case in complete
        }
        row[f"{mix}_pct"] = fmean(allocated(case, "windlass", mix) for case in complete)
        row[f"{mix}_difference"] = fmean(gains.values())
        row[f"{mix}_tuning"] = _mean_of(gains[seed] for seed in TUNING_SEEDS if seed in gains)
        row[f"{mix}_held_out"] = _mean_of(gains[seed] for seed in HELD_OUT_SEEDS if seed in gains)
        row[f"{mix}_wins"] = sum(gain > 0 for gain in gains.values())
    return row


def _mean_of(values: Iterable[float]) -> float | None:
    found = list(values)
    return fmean(found) if found else None
