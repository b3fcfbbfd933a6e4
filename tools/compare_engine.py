"""Compares the engine of this tree with that of another one, task by task.

    git worktree add ../before COMMIT && make -C ../before env
    .venv/bin/python tools/compare_engine.py ../before --rounds 25
    .venv/bin/python tools/compare_engine.py ../before --rounds 5 --tasks simulate

A task is one of `windlass bench engine`; `simulate` stands for the traces of `windlass bench simulate --part=speed`,
which need WINDLASS_TRACES for all but the large one.

Both trees play each task in turn, in processes that stay, on one core: where a machine's speed changes from minute to
minute, two whole runs one after the other say little. Printed are the medians in milliseconds of processor time, and
the median of the ratios of neighbours. Garbage is not collected in tasks of the engine: where that falls is chance.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from windlass.placement.policies import POLICIES

TASKS = (
    *("quick-plain", "quick-mixed", "quick-gangs", "quick-gang", "quick-preempt"),
    *("quick-plans", "never-full", "quick-kueue", "quick-steady"),
)
SIMULATIONS = (
    *(f"openb/default {policy}" for policy in POLICIES),
    *(f"synthetic/large {policy}" for policy in ("windlass", "fgd", "first-fit")),
)
"""Trace and policy."""
WORKER = """
import gc, json, os, pathlib, sys
try:
    from windlass_bench.engine.tasks import TASKS
    from windlass_bench.play import Case, Run, RunPlayer as Player
except ImportError:  # before the benchmarks became a distribution of their own
    from windlass.bench.engine.tasks import TASKS
    from windlass.bench.play import Case, Run, Player
folder = os.environ.get("WINDLASS_TRACES")
player = Player(pathlib.Path(folder) if folder else None)
def play(trace, policy):
    return {"CPU": player.play(Run(Case(trace, 42), policy, "declared", 1)).cpu_s}
def decide(name):
    gc.disable()
    found = TASKS[name](name)
    gc.enable()
    return {"decide": found.decide_s, "intake": found.intake_s}
for line in sys.stdin:
    words = line.split()
    found = play(*words) if len(words) == 2 else decide(*words)
    gc.collect()
    print(json.dumps(found), flush=True)
"""


class Tree:
    """A tree whose engine plays tasks, one at a time."""

    def __init__(self, root: Path) -> None:
        program = root / ".venv" / "bin" / "python"
        if not program.exists():
            sys.exit(f"{program} doesn't exist: run `make env` in {root}")
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([str(program), "-c", WORKER], stdin=pipe, stdout=pipe, text=True, cwd=root)

    def play(self, task: str) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{task}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            sys.exit(f"{task} has failed, see above")
        found: dict[str, float] = json.loads(answer)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the other tree, with its .venv")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--core", type=int, default=0)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.core})
    trees = (Tree(arguments.before.resolve()), Tree(Path(__file__).resolve().parents[1]))
    print("| task | part | before, ms | now, ms | ratio of neighbours |\n| --- | --- | ---: | ---: | ---: |")
    tasks = SIMULATIONS if arguments.tasks == "simulate" else arguments.tasks.split(",")
    for task in tasks:
        for tree in trees:
            tree.play(task)  # loads what it needs
        rounds = [_in_turn(trees, task, number) for number in range(arguments.rounds)]
        for part in rounds[0][0]:
            before, now = ([found[place][part] for found in rounds] for place in (0, 1))
            if statistics.median(before) > 0:
                ratio = statistics.median(after / earlier for earlier, after in zip(before, now, strict=True))
                medians = (f"{1000 * statistics.median(times):.2f}" for times in (before, now))
                print(f"| {task} | {part} | {' | '.join(medians)} | {ratio:.2f} |", flush=True)


def _in_turn(trees: tuple[Tree, Tree], task: str, number: int) -> tuple[dict[str, float], dict[str, float]]:
    """Each round begins with the other tree."""
    if number % 2:
        after = trees[1].play(task)
        return trees[0].play(task), after
    return trees[0].play(task), trees[1].play(task)


if __name__ == "__main__":
    main()
