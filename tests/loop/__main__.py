"""Plays many seeds of the control loop and prints what was wrong. Called by `make loop-seeds`.

make loop-seeds N=500           new seeds, from the one that is printed
make loop-seeds N=1 SEED=7 LOG=1   one of them again, with everything that happened
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
from collections import Counter

from tests.loop.play import STEPS, play_seed
from tests.worlds.play import Report
from tests.worlds.workers import in_order, world_pool


def main() -> int:
    parser = argparse.ArgumentParser(prog="make loop-seeds", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--log", action="store_true", help="print what happened where something was wrong")
    arguments = parser.parse_args()
    print(f"{arguments.count} seeds from {arguments.seed}", flush=True)
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    reports: list[Report] = []
    with world_pool(arguments.jobs) as pool:
        for report in in_order(pool, functools.partial(play_seed, steps=arguments.steps), seeds):
            reports.append(report)
            if report.problems:
                said = [f"\nseed {report.seed}: {len(report.problems)} problems", *report.problems]
                print(*said, sep="\n  ", flush=True)
                if arguments.log:
                    print(*report.log, sep="\n")
            elif len(reports) % 25 == 0:
                print(f"  {len(reports)} of {arguments.count}", flush=True)
    _print_counts(reports)
    wrong = sum(1 for report in reports if report.problems)
    print(f"\n{wrong} of {len(reports)} seeds have problems")
    return 1 if wrong else 0


def _print_counts(reports: list[Report]) -> None:
    counts: Counter[str] = sum((report.counts for report in reports), Counter())
    happened: Counter[str] = sum((report.happened for report in reports), Counter())
    print("\n| what happened | times |\n| --- | ---: |")
    for what, times in sorted((happened + counts).items()):
        print(f"| {what.replace('_', ' ')} | {times:,} |")
    cpu = sum(report.cpu_seconds for report in reports)
    print(f"\n{cpu:,.0f} s of CPU, {cpu / max(1, len(reports)):.1f} s for a seed")


if __name__ == "__main__":
    sys.exit(main())
