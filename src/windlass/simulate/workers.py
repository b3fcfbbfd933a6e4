"""Runs the tasks of a batch in several processes; workers send progress messages, and an event stops them.

Called by `simulate.batch`. Workers are spawned, not forked, so that they inherit no lock of the parent's threads. They
ignore Ctrl-C, since a KeyboardInterrupt inside the compiler may corrupt its state; they check the event between two
steps of their run instead.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from typing import TypeAlias

from windlass import jit
from windlass.simulate.result import RunResult
from windlass.simulate.runner import BatchSettings, BatchTask, TaskRunner

OnProgress = Callable[[float], None]
"""Called with the number of finished runs, plus the finished fractions of those in progress."""

BatchOutcome = tuple[list[RunResult | None], bool]
"""A result for each task, None if it has none, and whether the batch was interrupted."""

REPORT_INTERVAL_SECONDS = 0.1
"""Pause between two progress messages of a worker."""
STOP_TIMEOUT_SECONDS = 5.0
"""How long a worker may take to finish its step; then it is terminated, and its run has no result."""


@dataclass(frozen=True)
class _Progress:
    number: int
    fraction: float


_Messages: TypeAlias = "SimpleQueue[_Progress]"
_Run: TypeAlias = "Future[RunResult | None]"

# Set once per worker process, for all of its tasks.
_worker_runner: TaskRunner
_worker_messages: _Messages
_worker_stopped: Event


def _start_worker(settings: BatchSettings, messages: _Messages, stopped: Event) -> None:
    warnings.simplefilter("ignore", jit.InterpretedKernelsWarning)  # the parent has said it
    global _worker_runner, _worker_messages, _worker_stopped
    _worker_runner, _worker_messages, _worker_stopped = TaskRunner(settings), messages, stopped


def _work(task: BatchTask) -> RunResult | None:
    """Runs one task in a worker; None if the batch was stopped before."""
    last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > REPORT_INTERVAL_SECONDS:
            last = time.monotonic()
            _worker_messages.put(_Progress(task.number, done / max(total, 1)))
        if _worker_stopped.is_set():
            raise KeyboardInterrupt

    return None if _worker_stopped.is_set() else _worker_runner.run(task, report)


def run_in_processes(
    tasks: Sequence[BatchTask], settings: BatchSettings, jobs: int, on_progress: OnProgress
) -> BatchOutcome:
    """Runs the tasks in `jobs` processes; results are in the order of the tasks."""
    jit.can_compile()
    context = multiprocessing.get_context("spawn")
    messages: _Messages = context.SimpleQueue()
    stopped = context.Event()
    interrupted = False
    with ProcessPoolExecutor(jobs, context, _start_worker, (settings, messages, stopped)) as pool:
        with _interrupts_ignored():  # workers are started here and inherit the signal handler
            futures = {pool.submit(_work, task): task.number for task in tasks}
        try:
            _follow(futures, messages, on_progress)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            _stop(futures, stopped)
    return [_result(future) for future in futures], interrupted


def _follow(futures: Mapping[_Run, int], messages: _Messages, on_progress: OnProgress) -> None:
    """Waits until all runs have finished; raises the exception of one that fails."""
    fractions: dict[int, float] = {}
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=REPORT_INTERVAL_SECONDS, return_when=FIRST_COMPLETED)
        while not messages.empty():
            message = messages.get()
            fractions[message.number] = max(fractions.get(message.number, 0.0), message.fraction)
        for future in done:
            future.result()
            fractions[futures[future]] = 1.0
        on_progress(sum(fractions.values()))


def _stop(futures: Mapping[_Run, int], stopped: Event) -> None:
    """Cancels tasks that have not started and makes running ones return what they have; no-op after the last run."""
    stopped.set()
    running = [future for future in futures if not future.cancel()]
    late = wait(running, timeout=STOP_TIMEOUT_SECONDS).not_done
    if late:
        for process in multiprocessing.active_children():
            process.terminate()


def _result(future: _Run) -> RunResult | None:
    if future.cancelled():
        return None
    try:
        return future.result()
    except BrokenProcessPool:
        return None  # its worker was terminated


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
