"""Runs policies × seeds, one after another or in several processes; Ctrl-C stops them cleanly.

`cli.simulate` calls `run_batch`; results come in the order of the specs, whatever the number of processes.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType

from windlass.simulate.result import RunResult
from windlass.simulate.runner import BatchSettings, BatchTask, RunSpec, TaskRunner
from windlass.simulate.workers import BatchOutcome, OnProgress, run_in_processes


@dataclass(frozen=True)
class BatchResult:
    """The results so far, in the order of the specs."""

    results: list[RunResult]
    interrupted: bool


def run_batch(specs: Sequence[RunSpec], settings: BatchSettings, jobs: int, on_progress: OnProgress) -> BatchResult:
    """Runs all specs. Those of one trace and seed are neighbours, so that the trace is loaded once and an interrupted
    comparison still has pairs. An invalid input of the first spec raises before anything runs."""
    runner = TaskRunner(settings)
    for spec in specs[:1]:
        runner.load(spec)
    arrivals = list(dict.fromkeys((spec.trace, spec.seed) for spec in specs))
    tasks = [BatchTask(number, spec) for number, spec in enumerate(specs)]
    tasks.sort(key=lambda task: arrivals.index((task.spec.trace, task.spec.seed)))
    jobs = min(jobs, len(specs))
    if jobs <= 1:
        results, interrupted = _run_here(tasks, runner, on_progress)
    else:
        results, interrupted = run_in_processes(tasks, settings, jobs, on_progress)
    in_spec_order = sorted(zip(tasks, results, strict=True), key=lambda pair: pair[0].number)
    return BatchResult([result for _, result in in_spec_order if result is not None], interrupted)


def _run_here(tasks: Sequence[BatchTask], runner: TaskRunner, on_progress: OnProgress) -> BatchOutcome:
    results: list[RunResult | None] = [None] * len(tasks)
    try:
        with DeferredInterrupt() as interruption:
            for number, task in enumerate(tasks):

                def report(done: int, total: int, before: int = number) -> None:
                    on_progress(before + done / max(total, 1))
                    interruption.check()

                result = results[number] = runner.run(task, report)
                if result.interrupted:
                    return results, True
                interruption.check()
    except KeyboardInterrupt:
        return results, True
    return results, False


class DeferredInterrupt:
    """Defers Ctrl-C until `check`, which is called between two steps; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self._requested = False

    def __enter__(self) -> DeferredInterrupt:
        self._previous = signal.signal(signal.SIGINT, self._defer)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def check(self) -> None:
        if self._requested:
            raise KeyboardInterrupt

    def _defer(self, number: int, frame: FrameType | None) -> None:
        if self._requested:
            raise KeyboardInterrupt
        self._requested = True
