"""Mutation testing of the rooms that decide: would a test notice if this line were wrong? Called by `make mutants`.

Draws changes of the code, runs for each the tests that reach the changed line, and lists the changes that no test
noticed. Which test reaches which line is measured once per state of the code. With `--tests` these tests are run for
every mutant instead, which is the quick way while writing tests for one file:

    make mutants ARGS='--module queueing/admit.py --tests tests/queueing --count 40'
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest
from tools.mutants.draw import Mutant, draw_mutants

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
FOLDER = ROOT / ".mutants"
ROOMS = ("queueing", "placement", "apply", "scheduler")
TESTS = (
    "apply",
    "cluster",
    "defrag",
    "engine",
    "invariants",
    "peers",
    "placement",
    "queueing",
    "scheduler",
    "simulate",
)
SECONDS_OF_TESTS = 25.0
"""The fastest tests that reach a line are run first, for so long as they took without the mutant."""
MOST_TESTS = 200
KERNELS = ("placement/kernels/", "placement/kernel_arrays.py")
"""Numba would run what it compiled of the unchanged module."""


@dataclass
class Outcome:
    mutant: Mutant
    result: str  # killed, timeout, survived, not reached
    tests: int

    @property
    def room(self) -> str:
        return self.mutant.path.relative_to(SOURCE / "windlass").parts[0]

    @property
    def noticed(self) -> bool:
        return self.result in ("killed", "timeout")


class TestsByLine:
    """Which tests reach a line, the fastest first; measured by `coverage_plugin`."""

    def __init__(self, rooms: tuple[str, ...]) -> None:
        import coverage

        if not (FOLDER / "lines").exists():
            _measure(rooms)
        self._data = coverage.CoverageData(str(FOLDER / "lines"))
        self._data.read()
        self._seconds: dict[str, float] = {}
        for file in FOLDER.glob("seconds.*.json"):
            self._seconds |= json.loads(file.read_text())
        self._contexts: dict[Path, dict[int, list[str]]] = {}

    def reaching(self, mutant: Mutant) -> list[str]:
        lines = self._contexts.get(mutant.path)
        if lines is None:
            lines = self._contexts[mutant.path] = self._data.contexts_by_lineno(str(mutant.path))
        tests = set(lines.get(mutant.line, ()))
        if tests <= {""}:  # a line that runs when the module is imported, or in the middle of a statement
            near = [lines[line] for line in range(mutant.line, mutant.line - 8, -1) if line in lines]
            tests = set(next((names for names in near if set(names) - {""}), ()))
        if tests <= {""} and mutant.line in lines:
            tests = {name for names in lines.values() for name in names}
        chosen: list[str] = []
        left = SECONDS_OF_TESTS
        # A test that fails without a mutant would notice every one.
        for test in sorted(tests & self._seconds.keys(), key=lambda name: self._seconds[name]):
            left -= self._seconds[test]
            if (left < 0 and chosen) or len(chosen) == MOST_TESTS:
                break
            chosen.append(test)
        return chosen


def _measure(rooms: tuple[str, ...]) -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    environment = {
        **os.environ,
        "WINDLASS_MUTANTS_FOLDER": str(FOLDER),
        "WINDLASS_MUTANTS_ROOMS": ",".join(rooms),
    }
    folders = [f"tests/{name}" for name in TESTS if (ROOT / "tests" / name).exists()]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tools.mutants.coverage_plugin",
        "-n",
        "2",
        "-q",
        *folders,
    ]
    print("Measuring which test reaches which line", flush=True)
    subprocess.run(command, cwd=ROOT, env=environment, check=False)
    subprocess.run(
        [sys.executable, "-m", "coverage", "combine", f"--data-file={FOLDER / 'lines'}", str(FOLDER)],
        cwd=ROOT,
        check=True,
    )


class _MutantLoader(importlib.machinery.SourceFileLoader):
    source = ""

    def get_code(self, fullname: str):  # type: ignore[no-untyped-def]
        return compile(self.source, self.path, "exec", dont_inherit=True)


class _MutantFinder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        parts = mutant.path.relative_to(SOURCE).with_suffix("").parts
        self._name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self._mutant = mutant

    def find_spec(self, fullname, path, target=None):  # type: ignore[no-untyped-def]
        if fullname != self._name:
            return None
        loader = _MutantLoader(fullname, str(self._mutant.path))
        loader.source = self._mutant.source
        return importlib.util.spec_from_file_location(fullname, self._mutant.path, loader=loader)


def _child(mutant: Mutant, tests: list[str]) -> None:
    """In a process of its own: the tests, on the changed module."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    sys.meta_path.insert(0, _MutantFinder(mutant))
    name = mutant.path.as_posix()
    if any(kernel in name for kernel in KERNELS):
        import numba

        from windlass import kernel_library

        numba.config.DISABLE_JIT = True
        kernel_library.FOLDER = ROOT / "no-library"  # it was compiled from the unchanged sources
    code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests])
    os._exit(int(code))


class Runs:
    """The mutants under test, as many at a time as there are workers."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._running: dict[int, tuple[Mutant, int, float]] = {}
        self.outcomes: list[Outcome] = []

    def start(self, mutant: Mutant, tests: list[str], seconds: float) -> None:
        if not tests:
            self._add(Outcome(mutant, "not reached", 0))
            return
        while len(self._running) >= self._workers:
            self._collect()
        child = os.fork()
        if child == 0:
            _child(mutant, tests)
        self._running[child] = (mutant, len(tests), time.monotonic() + seconds)

    def finish(self) -> list[Outcome]:
        while self._running:
            self._collect()
        return self.outcomes

    def _collect(self) -> None:
        for child, (mutant, tests, deadline) in list(self._running.items()):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                del self._running[child]
                code = os.waitstatus_to_exitcode(status)
                self._add(Outcome(mutant, "survived" if code == 0 else "killed", tests))
            elif time.monotonic() > deadline:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                del self._running[child]
                self._add(Outcome(mutant, "timeout", tests))
        time.sleep(0.02)

    def _add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if not outcome.noticed:
            mutant = outcome.mutant
            where = f"{mutant.path.relative_to(SOURCE / 'windlass')}:{mutant.line}"
            print(f"{outcome.result:12} {where}  {mutant.changed_line}", flush=True)


def main() -> int:
    arguments = _arguments()
    modules = _modules(arguments.module or arguments.rooms.split(","))
    mutants = draw_mutants(modules, arguments.count, arguments.seed)
    print(f"{len(mutants)} mutants of {len(modules)} modules, seed {arguments.seed}", flush=True)
    by_line = None if arguments.tests else TestsByLine(tuple(arguments.rooms.split(",")))
    runs = Runs(arguments.jobs)
    for number, mutant in enumerate(mutants, 1):
        tests = list(arguments.tests) if by_line is None else by_line.reaching(mutant)
        runs.start(mutant, tests, arguments.timeout)
        if number % 25 == 0:
            print(f"  {number} of {len(mutants)}", flush=True)
    _report(runs.finish(), arguments.seed)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--rooms", default=",".join(ROOMS), help="packages of windlass, with commas between them")
    parser.add_argument("--module", action="append", help="only this file or folder of src/windlass; repeatable")
    parser.add_argument("--tests", nargs="+", help="run these tests for every mutant, instead of the measured ones")
    parser.add_argument("--count", type=int, default=400, help="how many mutants (400)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the draw; a new one without it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time (one per core)")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds after which a mutant counts as noticed")
    return parser.parse_args()


def _modules(names: list[str]) -> list[Path]:
    found: list[Path] = []
    for name in names:
        path = SOURCE / "windlass" / name
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return found


def _report(outcomes: list[Outcome], seed: int) -> None:
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        rooms[outcome.room][outcome.result] += 1
        rooms["all"][outcome.result] += 1
    print(
        f"\nseed {seed}\n\n| room | mutants | noticed | survived | not reached | score |\n| --- " + "| ---: " * 5 + "|"
    )
    for room, counts in sorted(rooms.items(), key=lambda pair: (pair[0] == "all", pair[0])):
        noticed, total = counts["killed"] + counts["timeout"], counts.total()
        print(
            f"| {room} | {total} | {noticed} | {counts['survived']} | {counts['not reached']} "
            f"| {100 * noticed / total:.0f} % |"
        )


if __name__ == "__main__":
    # The tests' own imports happen in each child; what they share is loaded once, here.
    import hypothesis  # noqa: F401
    import msgspec  # noqa: F401
    import numba  # noqa: F401
    import numpy  # noqa: F401

    os.chdir(ROOT)
    sys.exit(main())
