"""Plays many worlds and prints what happened in them, and what was wrong. Called by `make worlds`.

make worlds N=2000             new seeds, from the one that is printed, on the virtual clock
make worlds N=1 SEED=7 LOG=1   one world again, with everything that happened
make worlds N=10 LIVE=up       in real time on `windlass up`; LIVE=kube: on a real kube-apiserver
"""

from __future__ import annotations

import argparse
import functools
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from tests.worlds.happenings import HAPPENINGS
from tests.worlds.live import QUIET_SECONDS, play_live, servers
from tests.worlds.play import Report, play_virtually
from tests.worlds.themes import seeds_of
from tests.worlds.workers import in_order, world_pool

RARE_PERCENT = 1.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make worlds", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--steps", type=int, help="happenings in a world (by default as its theme has them)")
    parser.add_argument("--theme", default="", help="only worlds of this theme, of the seeds from the first on")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worlds side by side")
    parser.add_argument("--live", choices=["up", "kube"], help="in real time, on this server")
    parser.add_argument("--small", action="store_true", help="with --live: worlds of one pool and half a minute")
    parser.add_argument(
        "--quiet-seconds", type=float, default=QUIET_SECONDS, help="with --live: how long nothing happens at the end"
    )
    parser.add_argument("--moves", action="store_true", help="with work that asks to be asked, and nodes that go")
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
    seeds = [*islice(seeds_of(arguments.theme, arguments.seed), arguments.count)]
    with world_pool(arguments.jobs) as pool:
        yield from in_order(
            pool, functools.partial(play_virtually, steps=arguments.steps, moves=arguments.moves), seeds
        )


def _play_live(arguments: argparse.Namespace) -> Iterator[Report]:
    logging.disable(logging.CRITICAL)
    with servers(arguments.live) as shared:
        for seed in range(arguments.seed, arguments.seed + arguments.count):
            yield play_live(seed, arguments.live, shared, arguments.steps, arguments.quiet_seconds, arguments.small)


def _print_counts(reports: list[Report]) -> None:
    happened: Counter[str] = sum((report.happened for report in reports), Counter())
    drawn: Counter[str] = sum((report.drawn for report in reports), Counter())
    counts: Counter[str] = sum((report.counts for report in reports), Counter())
    print("\n| what happened | times | share | of worlds |\n| --- | ---: | ---: | ---: |")
    for name in [happening.__name__ for _, happening in HAPPENINGS]:
        share = happened[name] / max(1, happened.total())
        _print_share(name.replace("_", " "), happened[name], share, [report.happened[name] for report in reports])
    print("\n| what there was | times | share of its sort | of worlds |\n| --- | ---: | ---: | ---: |")
    for name, times in sorted(drawn.items()):
        sort = name.partition(":")[0]
        total = sum(other for what, other in drawn.items() if what.partition(":")[0] == sort)
        share = times / total if ":" in name else times / len(reports)
        _print_share(name, times, share, [report.drawn[name] for report in reports])
    print("\n| what came of it | times |\n| --- | ---: |")
    for what, times in sorted(counts.items()):
        print(f"| {what} | {times:,} |")
    cpu = sum(report.cpu_seconds for report in reports)
    print(f"\n{cpu:,.0f} s of CPU, {cpu / max(1, len(reports)):.1f} s for a world")


def _print_share(what: str, times: int, share: float, by_world: list[int]) -> None:
    """Rare is what has less than a hundredth of its sort, or is in fewer than a hundredth of all worlds."""
    worlds = sum(1 for count in by_world if count) / max(1, len(by_world))
    mark = " (rare)" if 100 * min(share, worlds) < RARE_PERCENT else ""
    print(f"| {what}{mark} | {times:,} | {share:.1%} | {worlds:.0%} |")


if __name__ == "__main__":
    sys.exit(main())
