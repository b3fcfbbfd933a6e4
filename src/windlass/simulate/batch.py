"""Many runs: policies × seeds, one after another or over several processes, stopped cleanly by Ctrl-C.

Fed by `cli.simulate` with what to run; loads traces, calls `simulate.run`, and hands back results in the order in
which they were asked for, however many processes there were.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path
from types import FrameType

from windlass.model.node import Node
from windlass.simulate.result import RunResult
from windlass.simulate.run import simulate
from windlass.simulate.trace import Trace
from windlass.simulate.traces import load_trace

OnProgress = Callable[[float], None]
"""Called with the number of runs done so far, a run in progress counting as its fraction."""

REPORT_EVERY = 0.1
"""Seconds between two progress messages of a worker."""


@dataclass(frozen=True)
class RunSpec:
    trace: str
    policy: str
    seed: int | None


@dataclass(frozen=True)
class BatchSettings:
    """What all runs of a batch share."""

    traces_dir: Path | None = None
    nodes: tuple[Node, ...] | None = None
    replay: str = "arrivals"
    mix: str = "declared"


@dataclass(frozen=True)
class Batch:
    """The results so far, in the order of the specs."""

    results: list[RunResult]
    interrupted: bool


class Runner:
    """Runs specs in this process, and keeps the last trace, since neighbouring specs share it."""

    def __init__(self, settings: BatchSettings) -> None:
        self._settings = settings
        self._loaded: tuple[str, int | None] | None = None
        self._trace: Trace | None = None

    def load(self, spec: RunSpec) -> Trace:
        wanted = (spec.trace, spec.seed)
        if self._trace is None or self._loaded != wanted:
            settings = self._settings
            self._trace = load_trace(
                spec.trace,
                seed=spec.seed,
                traces_dir=settings.traces_dir,
                nodes=settings.nodes,
                replay=settings.replay,
            )
            self._loaded = wanted
        return self._trace

    def run(self, spec: RunSpec, on_progress: Callable[[int, int], None]) -> RunResult:
        trace = self.load(spec)
        return simulate(
            trace,
            spec.policy,
            mix=self._settings.mix,
            seed=trace.seed or 0,
            placements=None,
            on_progress=on_progress,
        )


def run_batch(specs: Sequence[RunSpec], settings: BatchSettings, jobs: int, on_progress: OnProgress) -> Batch:
    """Runs all specs, those of one trace and seed next to each other, so that the trace is read once and an
    interrupted comparison still has pairs. A bad input raises before anything has run, if the first spec shows it.
    """
    runner = Runner(settings)
    for spec in specs[:1]:
        runner.load(spec)
    arrivals = list(dict.fromkeys((spec.trace, spec.seed) for spec in specs))
    order = sorted(
        range(len(specs)), key=lambda number: arrivals.index((specs[number].trace, specs[number].seed))
    )
    ordered = [specs[number] for number in order]
    jobs = min(jobs, len(specs))
    if jobs <= 1:
        results, interrupted = _run_here(ordered, runner, on_progress)
    else:
        results, interrupted = _run_apart(ordered, settings, jobs, on_progress)
    in_asked_order = sorted(zip(order, results, strict=True), key=lambda pair: pair[0])
    return Batch([result for _, result in in_asked_order if result is not None], interrupted)


_Outcome = tuple[list[RunResult | None], bool]
"""A result for each spec, None where there is none, and whether somebody interrupted."""


def _run_here(specs: Sequence[RunSpec], runner: Runner, on_progress: OnProgress) -> _Outcome:
    results: list[RunResult | None] = [None] * len(specs)
    try:
        for number, spec in enumerate(specs):

            def report(done: int, total: int, before: int = number) -> None:
                on_progress(before + done / max(total, 1))

            result = results[number] = runner.run(spec, report)
            if result.interrupted:
                return results, True
    except KeyboardInterrupt:
        return results, True
    return results, False


# The worker's side -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Started:
    process: int


@dataclass(frozen=True)
class _Progress:
    number: int
    fraction: float


_Messages = SimpleQueue  # of _Started and _Progress
_worker_runner: Runner
_worker_messages: _Messages[_Started | _Progress]
_worker_stopped: Event


def _start_worker(settings: BatchSettings, messages: _Messages[_Started | _Progress], stopped: Event) -> None:
    global _worker_runner, _worker_messages, _worker_stopped
    _worker_runner, _worker_messages, _worker_stopped = Runner(settings), messages, stopped
    messages.put(_Started(os.getpid()))


def _work(number: int, spec: RunSpec) -> RunResult | None:
    """One run in a worker; None if it was stopped before there was anything to tell."""
    last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > REPORT_EVERY:
            last = time.monotonic()
            _worker_messages.put(_Progress(number, done / max(total, 1)))

    signal.signal(signal.SIGINT, _interrupt_once)
    try:
        return None if _worker_stopped.is_set() else _worker_runner.run(spec, report)
    except KeyboardInterrupt:
        return None
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interrupt_once(number: int, frame: FrameType | None) -> None:
    """The terminal and the parent may both pass on the same Ctrl-C; only the first may stop the run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


# The parent's side -----------------------------------------------------------------------------------------------


def _run_apart(
    specs: Sequence[RunSpec], settings: BatchSettings, jobs: int, on_progress: OnProgress
) -> _Outcome:
    context = multiprocessing.get_context("spawn")
    messages: _Messages[_Started | _Progress] = context.SimpleQueue()
    stopped = context.Event()
    overview = _Overview(messages, stopped, on_progress)
    with ProcessPoolExecutor(jobs, context, _start_worker, (settings, messages, stopped)) as pool:
        with _interrupts_ignored():  # workers are born here, and inherit it until a run begins
            futures = [pool.submit(_work, number, spec) for number, spec in enumerate(specs)]
        try:
            overview.follow(futures)
            interrupted = False
        except KeyboardInterrupt:
            interrupted = True
        finally:
            overview.stop(futures)
    results = [None if future.cancelled() else future.result() for future in futures]
    return results, interrupted or any(result is not None and result.interrupted for result in results)


class _Overview:
    """What the parent knows about its workers from their messages."""

    def __init__(
        self, messages: _Messages[_Started | _Progress], stopped: Event, on_progress: OnProgress
    ) -> None:
        self._messages = messages
        self._stopped = stopped
        self._on_progress = on_progress
        self._workers: set[int] = set()
        self._fractions: dict[int, float] = {}

    def follow(self, futures: Sequence[Future[RunResult | None]]) -> None:
        """Waits until all are done, or one fails: then its exception is raised."""
        pending = set(futures)
        while pending:
            done, pending = wait(pending, timeout=REPORT_EVERY, return_when=FIRST_COMPLETED)
            self._read_messages()
            for future in done:
                future.result()
                self._fractions[futures.index(future)] = 1.0
            self._on_progress(sum(self._fractions.values()))

    def stop(self, futures: Sequence[Future[RunResult | None]]) -> None:
        """Cancels what has not begun, and interrupts what runs so that it tells what it has.

        A run that lies ready in a worker's hands can't be cancelled any more; the event keeps it from beginning.
        """
        self._stopped.set()
        running = [future for future in futures if not future.cancel() and not future.done()]
        self._read_messages()
        if running:
            for process in self._workers:
                os.kill(process, signal.SIGINT)

    def _read_messages(self) -> None:
        while not self._messages.empty():
            message = self._messages.get()
            if isinstance(message, _Started):
                self._workers.add(message.process)
            else:
                self._fractions.setdefault(message.number, 0.0)
                self._fractions[message.number] = max(self._fractions[message.number], message.fraction)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
