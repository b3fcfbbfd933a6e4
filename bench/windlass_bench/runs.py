"""Plays the runs of a benchmark, here or over several processes, and hands back what is finished also after Ctrl-C.

Fed by `report` with the runs of all sections; each run is played once, however many sections ask for it.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from windlass.simulate.batch import DeferredInterrupt
from windlass_bench.play import Case, OnProgress, Run, RunOutcome, RunPlayer


@dataclass
class Outcomes:
    """What has been played so far."""

    by_run: dict[Run, RunOutcome] = field(default_factory=dict)
    interrupted: bool = False

    def of(self, runs: Iterable[Run]) -> list[RunOutcome]:
        """Those of the runs that are finished, in order."""
        return [self.by_run[run] for run in runs if run in self.by_run]


def play_all(runs: Sequence[Run], traces_dir: Path | None, jobs: int, on_progress: OnProgress) -> Outcomes:
    """Runs for quality first, `jobs` at a time; then those for speed, one at a time, each in a process of its own."""
    runs = list(dict.fromkeys(runs))
    for_quality = _by_case(run for run in runs if not run.isolated_repetition)
    for_speed = [[run] for run in runs if run.isolated_repetition]
    outcomes = Outcomes()
    try:
        if jobs <= 1:
            _play_here(for_quality, traces_dir, outcomes, on_progress)
        else:
            with _pool(jobs) as pool:
                _play_in_pool(pool, for_quality, traces_dir, outcomes, on_progress)
        with _pool(1, tasks_per_process=1) as pool:
            _play_in_pool(pool, for_speed, traces_dir, outcomes, on_progress)
    except KeyboardInterrupt:
        outcomes.interrupted = True
    return outcomes


def _by_case(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs of one case stay together, so that its trace is read once."""
    cases: dict[Case, list[Run]] = {}
    for run in runs:
        cases.setdefault(run.case, []).append(run)
    return list(cases.values())


def _play_here(
    tasks: Sequence[list[Run]], traces_dir: Path | None, outcomes: Outcomes, on_progress: OnProgress
) -> None:
    player = RunPlayer(traces_dir)
    with DeferredInterrupt() as interruption:
        for run in chain.from_iterable(tasks):
            before = len(outcomes.by_run)

            def report(done: float, before: int = before) -> None:
                on_progress(before + done)
                interruption.check()

            outcomes.by_run[run] = player.play(run, report)
            interruption.check()


def _pool(jobs: int, tasks_per_process: int | None = None) -> ProcessPoolExecutor:
    """Workers are started afresh rather than forked, and leave Ctrl-C to the parent."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, context, _ignore_interrupts, max_tasks_per_child=tasks_per_process)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _play_in_pool(
    pool: ProcessPoolExecutor,
    tasks: Sequence[list[Run]],
    traces_dir: Path | None,
    outcomes: Outcomes,
    on_progress: OnProgress,
) -> None:
    try:
        for future in as_completed([pool.submit(_play_task, task, traces_dir) for task in tasks]):
            outcomes.by_run.update((outcome.run, outcome) for outcome in future.result())
            on_progress(len(outcomes.by_run))
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise


def _play_task(runs: list[Run], traces_dir: Path | None) -> list[RunOutcome]:
    player = RunPlayer(traces_dir)
    return [player.play(run) for run in runs]
