"""Plays many worlds on the virtual clock and prints what happened in them, and what was wrong. Called by `make worlds`.

make worlds N=2000             new seeds, from the one that is printed
make worlds N=1 SEED=7 LOG=1   one world again, with everything that happened
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.worlds.happenings import HAPPENINGS
from tests.worlds.play import Report, play_virtually


def main() -> int:
    parser = argparse.ArgumentParser(prog="make worlds", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--steps", type=int, default=30, help="happenings in a world")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--log", action="store_true", help="print what happened in worlds where something was wrong")
    arguments = parser.parse_args()
    print(f"{arguments.count} worlds from seed {arguments.seed}", flush=True)
    reports: list[Report] = []
    with ProcessPoolExecutor(arguments.jobs, initializer=_be_quiet) as pool:
        seeds = range(arguments.seed, arguments.seed + arguments.count)
        for report in pool.map(play_virtually, seeds, [arguments.steps] * len(seeds)):
            reports.append(report)
            if report.problems:
                print(
                    f"\nseed {report.seed}: {len(report.problems)} problems", *report.problems, sep="\n  ", flush=True
                )
                if arguments.log:
                    print(*report.log, sep="\n")
            elif len(reports) % 25 == 0:
                print(f"  {len(reports)} of {arguments.count}", flush=True)
    _print_counts(reports)
    wrong = sum(1 for report in reports if report.problems)
    print(f"\n{wrong} of {len(reports)} worlds have problems")
    return 1 if wrong else 0


def _be_quiet() -> None:
    logging.disable(logging.CRITICAL)


def _print_counts(reports: list[Report]) -> None:
    happened: Counter[str] = sum((report.happened for report in reports), Counter())
    counts: Counter[str] = sum((report.counts for report in reports), Counter())
    print("\n| what happened | times | share |\n| --- | ---: | ---: |")
    for _, happening in HAPPENINGS:
        times = happened[happening.__name__]
        print(
            f"| {happening.__name__.replace('_', ' ')} | {times:,} | {100 * times / max(1, happened.total()):.1f} % |"
        )
    print("\n| what came of it | times |\n| --- | ---: |")
    for what, times in sorted(counts.items()):
        print(f"| {what} | {times:,} |")


if __name__ == "__main__":
    sys.exit(main())
