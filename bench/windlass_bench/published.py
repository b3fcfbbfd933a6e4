"""The published results that the benchmarks compare with: facts, with where they come from.

`published.csv` holds the allocated GPUs in percent that hkust-adsl/kubernetes-scheduler-simulator (Apache-2.0) prints
in experiments/analysis/expected_results/analysis_allo_discrete.csv for 17 pod lists, six policies and seeds 42 to 51
when 130 % of the park's GPUs have been asked for ("Beware of Fragmentation", USENIX ATC 2023). Feeds `equality`
and, with how long that simulator takes, `speed`.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache
from importlib import resources

import msgspec

SEEDS = tuple(range(42, 52))
TUNING_SEEDS = tuple(range(42, 47))
"""What our own policy was tuned on."""
HELD_OUT_SEEDS = tuple(range(47, 52))
OTHER_POLICIES = ("random", "dot-product", "gpu-clustering", "gpu-packing", "best-fit")
"""Published beside `fgd`."""
LAST_PERCENT = 130


class SimulatorCost(msgspec.Struct, frozen=True):
    """What one run of openb/default, seed 42, took in the published simulator on a machine of two shared cores."""

    wall_s: float
    cpu_s: float
    peak_rss_mib: float


MIB_PER_GB = 1e9 / 2**20
PUBLISHED_COST = {
    "fgd": SimulatorCost(3388, 3432, 3.68 * MIB_PER_GB),
    "best-fit": SimulatorCost(610, 340, 2.49 * MIB_PER_GB),
    "gpu-packing": SimulatorCost(633, 406, 2.72 * MIB_PER_GB),
    "gpu-clustering": SimulatorCost(669, 433, 2.98 * MIB_PER_GB),
    "dot-product": SimulatorCost(740, 378, 2.54 * MIB_PER_GB),
    "random": SimulatorCost(690, 430, 3.04 * MIB_PER_GB),
}
"""Measured with its own fragmentation report after every pod (fgd) or every 100 pods (the others). That report paces
it: without, placements go wrong, so it can't be run faster. Its authors say about ten minutes a run."""


@cache
def published() -> dict[tuple[str, str, int], float]:
    """Percent allocated by (list, policy, seed)."""
    text = resources.files(__package__).joinpath("published.csv").read_text(encoding="utf-8")
    return {
        (row["list"], row["policy"], seed): float(row[str(seed)])
        for row in csv.DictReader(text.splitlines())
        for seed in SEEDS
    }


@cache
def published_lists() -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name, _, _ in published()))


def published_statistic(
    arrived: Sequence[int], allocated: Sequence[int], park: int, at: int = LAST_PERCENT
) -> float | None:
    """The number that is printed for `at` percent: not a state, but the mean of the percentages allocated, each rounded
    to two digits, after all arrivals at which the demand rounds to `at` percent. None where there are none.

    `arrived` and `allocated` are milli-GPUs after each arrival, `park` those of the park.
    """
    points = [
        round(100 * used / park, 2)
        for asked, used in zip(arrived, allocated, strict=True)
        if round(100 * asked / park) == at
    ]
    return round(sum(points) / len(points), 2) if points else None
