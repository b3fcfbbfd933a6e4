"""Compares the engine's victims with the exact solver's on many worlds, and prints the gap. Called by `make victims`.

make victims N=500           new seeds, from the one that is printed
make victims N=1 SEED=7      one world again
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import mean

from tests.victims.compare import Comparison, compare

MOST_IN_THE_MEAN, MOST_IN_ONE = 0.05, 0.25


def main() -> int:
    parser = argparse.ArgumentParser(prog="make victims", description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    print(f"{arguments.count} worlds from seed {arguments.seed}", flush=True)
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    found: list[Comparison] = []
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for one in pool.map(compare, seeds, chunksize=4):
            found.append(one)
            if not is_good(one):
                print(describe(one), flush=True)
    return report(found)


def is_good(one: Comparison) -> bool:
    return one.is_found and one.gap <= MOST_IN_ONE and one.is_bound_right


def describe(one: Comparison) -> str:
    if one.lost is None:
        return f"seed {one.seed} ({one.kind}): nothing starts, though victims would make room: {one.least}"
    if one.least is None:
        return f"seed {one.seed} ({one.kind}): starts with victims that may not go: {one.lost}"
    if not one.is_bound_right:
        return f"seed {one.seed} ({one.kind}): bound {one.bound} above the least: {one.least}"
    return f"seed {one.seed} ({one.kind}): {100 * one.gap:.1f} % above the least: {one.lost} instead of {one.least}"


def report(found: Sequence[Comparison]) -> int:
    print("\n| preemptor | worlds | with victims | candidates | mean gap | worst gap | proven |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for kind in sorted({one.kind for one in found}):
        _print_row(kind, [one for one in found if one.kind == kind])
    _print_row("all", found)
    missed = sum(1 for one in found if not one.is_found)
    print(f"\n{missed} of {len(found)} worlds decided otherwise than the exact solver: started or not")
    gaps = [one.gap for one in found if one.least]
    return 0 if all(map(is_good, found)) and (not gaps or mean(gaps) <= MOST_IN_THE_MEAN) else 1


def _print_row(kind: str, found: Sequence[Comparison]) -> None:
    """One row; proven: the plan's own lower bound shows that nothing less could be lost."""
    needed = [one for one in found if one.least and one.lost is not None]
    if not needed:
        return
    gaps, sizes = [100 * one.gap for one in needed], [one.candidates for one in needed]
    proven = 100 * mean(one.is_exact for one in needed)
    cells = f"{mean(sizes):.0f} (at most {max(sizes)}) | {mean(gaps):.2f} % | {max(gaps):.1f} % | {proven:.0f} %"
    print(f"| {kind} | {len(found)} | {len(needed)} | {cells} |")


if __name__ == "__main__":
    sys.exit(main())
