"""Plays many worlds and prints what happened in them, and what was wrong. Called by `make worlds`.

make worlds N=2000             new seeds, from the one that is printed, on the virtual clock
make worlds N=1 SEED=7 LOG=1   one world again, with everything that happened
make worlds N=10 LIVE=up       in real time on `windlass up`; LIVE=kube: on a real kube-apiserver
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.worlds.happenings import HAPPENINGS
from tests.worlds.live import play_live, servers
from tests.worlds.play import Report, play_virtually

RARE_PERCENT = 1.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make worlds", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--steps", type=int, default=30, help="happenings in a world")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--live", choices=["up", "kube"], help="in real time, on this server")
    parser.add_argument("--small", action="store_true", help="with --live: worlds of one pool and half a minute")
    parser.add_argument(
        "--quiet-seconds", type=float, default=60.0, help="with --live: how long nothing happens at the end"
    )
    parser.add_argument("--log", action="store_true", help="print what happened in worlds where something was wrong")
    arguments = parser.parse_args()
    print(f"{arguments.count} worlds from seed {arguments.seed}", flush=True)
    reports: list[Report] = []
    for report in _play_live(arguments) if arguments.live else _play(arguments):
        reports.append(report)
        if report.problems:
            print(f"\nseed {report.seed}: {len(report.problems)} problems", *report.problems, sep="\n  ", flush=True)
            if arguments.log:
                print(*report.log, sep="\n")
        elif len(reports) % 25 == 0 or arguments.live:
            print(f"  {len(reports)} of {arguments.count}", flush=True)
    _print_counts(reports)
    wrong = sum(1 for report in reports if report.problems)
    print(f"\n{wrong} of {len(reports)} worlds have problems")
    return 1 if wrong else 0


def _play(arguments: argparse.Namespace) -> Iterator[Report]:
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    with ProcessPoolExecutor(arguments.jobs, initializer=_be_quiet) as pool:
        yield from pool.map(play_virtually, seeds, [arguments.steps] * len(seeds))


def _play_live(arguments: argparse.Namespace) -> Iterator[Report]:
    _be_quiet()
    with servers(arguments.live) as shared:
        for seed in range(arguments.seed, arguments.seed + arguments.count):
            yield play_live(seed, arguments.live, shared, arguments.steps, arguments.quiet_seconds, arguments.small)


def _be_quiet() -> None:
    logging.disable(logging.CRITICAL)


def _print_counts(reports: list[Report]) -> None:
    happened: Counter[str] = sum((report.happened for report in reports), Counter())
    drawn: Counter[str] = sum((report.drawn for report in reports), Counter())
    counts: Counter[str] = sum((report.counts for report in reports), Counter())
    happened += Counter({happening.__name__: 0 for _, happening in HAPPENINGS})
    print("\n| what happened | times | share |\n| --- | ---: | ---: |")
    for name in [happening.__name__ for _, happening in HAPPENINGS]:
        _print_share(name.replace("_", " "), happened[name], happened.total())
    print("\n| what there was | times | share of its sort |\n| --- | ---: | ---: |")
    for name, times in sorted(drawn.items()):
        sort = name.partition(":")[0] if ":" in name else ""
        total = sum(other for what, other in drawn.items() if what.partition(":")[0] == sort) if sort else len(reports)
        _print_share(name, times, total)
    print("\n| what came of it | times |\n| --- | ---: |")
    for what, times in sorted(counts.items()):
        print(f"| {what} | {times:,} |")
    cpu = sum(report.cpu_seconds for report in reports)
    print(f"\n{cpu:,.0f} s of CPU, {cpu / max(1, len(reports)):.1f} s for a world")


def _print_share(what: str, times: int, total: int) -> None:
    share = 100 * times / max(1, total)
    print(f"| {what}{' (rare)' if share < RARE_PERCENT else ''} | {times:,} | {share:.1f} % |")


if __name__ == "__main__":
    sys.exit(main())
