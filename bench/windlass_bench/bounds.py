"""What no policy could beat, and how far from it fgd and windlass end.

The bounds in `bounds.csv` are optima of linear programs over the arrivals of one list and seed, solved beforehand with
HiGHS; docs/benchmarks.md describes the programs. Fed by `runs`; its table goes to `report`.

    offline         any subset of the arrived pods may be chosen
    must_place      a pod that fits somewhere is placed, as every policy here does it: since nothing leaves, a shape
                    that is refused once is refused ever after
    same_admission  the same, for policies that take the most frequent 810-milli pod at least as long as windlass does
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

import msgspec

from windlass_bench.play import Case, Run
from windlass_bench.runs import Outcomes
from windlass_bench.scale import Scale
from windlass_bench.section import BenchPart, Column, Row, Section, columns

COLUMNS = (
    *columns(list="pod list", seed="seed"),
    *columns("{:.2f}", offline_pct="offline bound, %", must_place_pct="must-place bound, %"),
    *columns("{:.2f}", same_admission_pct="same admission, %", fgd_pct="fgd, %", windlass_pct="windlass, %"),
    *columns("{:.2f}", fgd_gap="fgd to must-place", windlass_gap="windlass to must-place"),
    Column("gap_closed_pct", "of fgd's gap closed, %", "{:.0f}"),
)


class Bound(msgspec.Struct, frozen=True):
    """Percent of the park's GPUs allocated at the end that can't be passed."""

    offline: float
    must_place: float
    same_admission: float | None


@cache
def bounds() -> dict[tuple[str, int], Bound]:
    """By list and seed; not every seed has been solved."""
    text = resources.files(__package__).joinpath("bounds.csv").read_text(encoding="utf-8")
    return {
        (row["list"], int(row["seed"])): Bound(
            offline=float(row["offline"]),
            must_place=float(row["must_place"]),
            same_admission=float(row["same_admission"]) if row["same_admission"] else None,
        )
        for row in csv.DictReader(text.splitlines())
    }


def distance_to_bounds(scale: Scale) -> BenchPart:
    solved = [(name, seed) for name, seed in bounds() if name in scale.lists and seed in scale.seeds]

    def sections(outcomes: Outcomes) -> list[Section]:
        rows = [row for name, seed in solved if (row := _row(outcomes, name, seed)) is not None]
        return [
            Section(
                "bounds",
                "Distance to what no policy could beat",
                COLUMNS,
                rows,
                note="Bounds are linear relaxations: the best possible is somewhat lower.",
            )
        ]

    return BenchPart([run for name, seed in solved for run in _runs(name, seed)], sections)


def _runs(name: str, seed: int) -> list[Run]:
    return [Run(Case(f"openb/{name}", seed), policy) for policy in ("fgd", "windlass")]


def _row(outcomes: Outcomes, name: str, seed: int) -> Row | None:
    found = outcomes.of(_runs(name, seed))
    if len(found) < 2:
        return None
    bound = bounds()[name, seed]
    fgd, ours = (outcome.result.allocated_pct for outcome in found)
    return {
        "list": name,
        "seed": seed,
        "offline_pct": bound.offline,
        "must_place_pct": bound.must_place,
        "same_admission_pct": bound.same_admission,
        "fgd_pct": fgd,
        "windlass_pct": ours,
        "fgd_gap": bound.must_place - fgd,
        "windlass_gap": bound.must_place - ours,
        "gap_closed_pct": 100 * (ours - fgd) / (bound.must_place - fgd),
    }
