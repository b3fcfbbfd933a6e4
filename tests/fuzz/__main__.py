"""Fuzzes and prints what fails. Called by `make fuzz`.

make fuzz N=100000              new inputs, from the seed that is printed
make fuzz N=1 SEED=7            one of them again
make fuzz ARGS='--target worlds --keep'   one target; what fails goes into the corpus, which the tests play again
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
from collections import Counter
from multiprocessing import get_context

from tests.fuzz.runner import CORPUS, CPU_SECONDS, MAX_MEMORY_MIB, Played, keep, play_seeds, prepare
from tests.fuzz.targets import TARGETS

CHUNK = 250


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--target", default="", choices=["", *(target.name for target in TARGETS)])
    parser.add_argument("--keep", action="store_true", help="put what fails into the corpus")
    arguments = parser.parse_args()
    print(f"{arguments.count} inputs from seed {arguments.seed}", flush=True)
    first, end = arguments.seed, arguments.seed + arguments.count
    chunks = [range(at, min(at + CHUNK, end)) for at in range(first, end, CHUNK)]
    played: list[Played] = []
    signs: set[str] = set()
    prepare(arguments.target)
    with get_context("fork").Pool(arguments.jobs) as pool:
        for result in pool.imap_unordered(functools.partial(play_seeds, only=arguments.target), chunks):
            played.append(result)
            for failure in result.failures:
                if failure.sign not in signs:
                    signs.add(failure.sign)
                    print(f"\nseed {failure.seed}: {failure.message}\n  {str(failure.drawn)[:1500]}", flush=True)
                    if arguments.keep:
                        print(f"  kept in {keep(failure, CORPUS)}", flush=True)
    return _print_result(played, len(signs))


def _print_result(played: list[Played], faults: int) -> int:
    counts: Counter[str] = sum((result.counts for result in played), Counter())
    print("\n| target | inputs |\n| --- | ---: |")
    for target, count in counts.items():
        print(f"| {target} | {count:,} |")
    seconds, seed = max(result.slowest for result in played)
    memory = max(result.memory_mib for result in played)
    print(
        f"\nslowest: {seconds:.2f} s of CPU (seed {seed}; {CPU_SECONDS:.0f} is a fault); memory: {memory} MiB at most"
    )
    print(f"{faults} faults in {sum(counts.values()):,} inputs")
    return 1 if faults or memory > MAX_MEMORY_MIB else 0


if __name__ == "__main__":
    sys.exit(main())
