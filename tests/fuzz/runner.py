"""Plays inputs one by one, each by its own seed, and keeps what fails. `__main__` runs it in several processes."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NamedTuple

from tests.fuzz.shrink import shrunk
from tests.fuzz.target import Finding, Target
from tests.fuzz.targets import TARGETS

from windlass.model.bug import bug_of

CORPUS = Path(__file__).parent / "corpus"
CPU_SECONDS = 2.0
"""More for one input is a hang."""
ABORT_SECONDS = 20.0
MAX_MEMORY_MIB = 1024


class Hang(BaseException):
    """It takes too long; nothing that is being tested may catch it."""


class Failure(NamedTuple):
    seed: int
    target: str
    sign: str
    """The same for the same fault."""
    message: str
    drawn: Any


class Played(NamedTuple):
    counts: Counter[str]
    failures: list[Failure]
    slowest: tuple[float, int]
    """CPU seconds and seed."""
    memory_mib: int


@functools.cache
def target_named(name: str) -> Target:
    return next(target for target in TARGETS if target.name == name)()


def draw(seed: int, only: str = "") -> tuple[Target, Any]:
    rng = Random(seed)
    drawn = rng.choices([target.name for target in TARGETS], weights=[target.share for target in TARGETS])[0]
    target = target_named(only or drawn)
    return target, target.draw(rng)


def play_seeds(seeds: range, only: str = "") -> Played:
    counts: Counter[str] = Counter()
    failures: dict[str, Failure] = {}
    slowest = (0.0, 0)
    for seed in seeds:
        target, drawn = draw(seed, only)
        began = time.process_time()
        failure = play(target, drawn, seed)
        slowest = max(slowest, (time.process_time() - began, seed))
        counts[target.name] += 1
        if failure is not None and failure.sign not in failures:
            failures[failure.sign] = _smaller(target, failure)
    return Played(counts, [*failures.values()], slowest, memory_mib())


def play(target: Target, drawn: Any, seed: int = 0) -> Failure | None:
    """None if nothing is wrong with it."""
    began = time.process_time()
    try:
        with _aborted_if_it_hangs():
            target.play(drawn)
    except Hang:
        return Failure(seed, target.name, f"{target.name}: hang", f"over {ABORT_SECONDS:.0f} s of CPU", drawn)
    except Finding as finding:
        words = "".join(letter for letter in str(finding) if not letter.isdigit())[:120]
        return Failure(seed, target.name, f"{target.name}: {words}", str(finding), drawn)
    except Exception as error:  # this is what is looked for
        bug = bug_of(error)
        sign = f"{target.name}: {bug.kind} in {bug.where.partition(',')[0]}"
        return Failure(seed, target.name, sign, f"{sign}: {str(error)[:500]} ({bug.where})", drawn)
    took = time.process_time() - began
    if took > CPU_SECONDS:
        return Failure(seed, target.name, f"{target.name}: slow", f"{took:.1f} s of CPU", drawn)
    return None


def _smaller(target: Target, failure: Failure) -> Failure:
    if failure.sign.endswith((": hang", ": slow")):
        return failure

    def still_fails(drawn: Any) -> bool:
        found = play(target, drawn)
        return found is not None and found.sign == failure.sign

    return failure._replace(drawn=shrunk(failure.drawn, still_fails))


@contextlib.contextmanager
def _aborted_if_it_hangs() -> Iterator[None]:
    def abort(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGVTALRM, abort)
    signal.setitimer(signal.ITIMER_VIRTUAL, ABORT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def memory_mib() -> int:
    """The most that this process has ever used."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def prepare(only: str = "") -> None:
    """Before the processes are made: what the first of its kind does, such as imports, is not the input's."""
    logging.disable(logging.CRITICAL)
    for target in TARGETS:
        for seed in range(3 if not only or target.name == only else 0):
            play(*draw(seed, target.name))


def corpus() -> Iterator[tuple[str, Target, Any]]:
    """Name, target and input of everything that has failed once."""
    for file in sorted(CORPUS.glob("*.json")):
        entry = json.loads(file.read_text(encoding="utf-8"))
        yield file.stem, target_named(entry["target"]), entry["input"]


def keep(failure: Failure, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    words = "".join(letter if letter.isalnum() else "-" for letter in failure.sign.lower())
    file = folder / f"{'-'.join(part for part in words.split('-') if part)[:90]}.json"
    entry = {"target": failure.target, "seed": failure.seed, "found": failure.message[:300], "input": failure.drawn}
    file.write_text(json.dumps(entry, indent=1, ensure_ascii=True) + "\n", encoding="utf-8")
    return file
