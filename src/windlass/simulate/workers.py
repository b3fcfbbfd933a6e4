"""The tasks of a batch over several processes: progress comes in as messages, Ctrl-C goes out as a signal.

Called by `simulate.batch`. Workers are started afresh rather than forked, so that no lock of the parent's threads is
taken along.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from types import FrameType
from typing import TypeAlias

from windlass.simulate.result import RunResult
from windlass.simulate.runner import BatchSettings, Runner, Task

OnProgress = Callable[[float], None]
"""Called with the number of runs done so far, a run in progress counting as its fraction."""

Outcome = tuple[list[RunResult | None], bool]
"""A result for each task, None where there is none, and whether somebody interrupted."""

REPORT_EVERY = 0.1
"""Seconds between two progress messages of a worker."""


@dataclass(frozen=True)
class _Started:
    process: int


@dataclass(frozen=True)
class _Progress:
    number: int
    fraction: float


_Messages: TypeAlias = "SimpleQueue[_Started | _Progress]"

# What a worker is given at its start, for all tasks that it will be handed.
_worker_runner: Runner
_worker_messages: _Messages
_worker_stopped: Event


def _start_worker(settings: BatchSettings, messages: _Messages, stopped: Event) -> None:
    global _worker_runner, _worker_messages, _worker_stopped
    _worker_runner, _worker_messages, _worker_stopped = Runner(settings), messages, stopped
    messages.put(_Started(os.getpid()))


def _work(task: Task) -> RunResult | None:
    """One run in a worker; None if it was stopped before there was anything to tell."""
    last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > REPORT_EVERY:
            last = time.monotonic()
            _worker_messages.put(_Progress(task.number, done / max(total, 1)))

    signal.signal(signal.SIGINT, _interrupt_once)
    try:
        return None if _worker_stopped.is_set() else _worker_runner.run(task, report)
    except KeyboardInterrupt:
        return None
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interrupt_once(number: int, frame: FrameType | None) -> None:
    """The terminal and the parent may both pass on the same Ctrl-C; only the first may stop the run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def run_apart(tasks: Sequence[Task], settings: BatchSettings, jobs: int, on_progress: OnProgress) -> Outcome:
    """Runs the tasks in `jobs` processes; results come in the order of the tasks."""
    context = multiprocessing.get_context("spawn")
    messages: _Messages = context.SimpleQueue()
    stopped = context.Event()
    overview = _Overview(messages, stopped, on_progress)
    with ProcessPoolExecutor(jobs, context, _start_worker, (settings, messages, stopped)) as pool:
        with _interrupts_ignored():  # workers are born here, and inherit it until a run begins
            futures = {pool.submit(_work, task): task.number for task in tasks}
        try:
            overview.follow(futures)
            interrupted = False
        except KeyboardInterrupt:
            interrupted = True
        finally:
            overview.stop(futures)
    results = [None if future.cancelled() else future.result() for future in futures]
    return results, interrupted or any(result is not None and result.interrupted for result in results)


_Run: TypeAlias = "Future[RunResult | None]"


class _Overview:
    """What the parent knows about its workers from their messages."""

    def __init__(self, messages: _Messages, stopped: Event, on_progress: OnProgress) -> None:
        self._messages = messages
        self._stopped = stopped
        self._on_progress = on_progress
        self._workers: set[int] = set()
        self._fractions: dict[int, float] = {}

    def follow(self, futures: Mapping[_Run, int]) -> None:
        """Waits until all are done, or one fails: then its exception is raised."""
        pending = set(futures)
        while pending:
            done, pending = wait(pending, timeout=REPORT_EVERY, return_when=FIRST_COMPLETED)
            self._read_messages()
            for future in done:
                future.result()
                self._fractions[futures[future]] = 1.0
            self._on_progress(sum(self._fractions.values()))

    def stop(self, futures: Iterable[_Run]) -> None:
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
                self._fractions[message.number] = max(
                    self._fractions.get(message.number, 0.0), message.fraction
                )


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
