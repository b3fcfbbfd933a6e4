"""Plays tasks, one at a time, each in a process of its own, and keeps the fastest repetition of each.

Fed by `report` with the names of tasks; each process takes a name and hands a `Measurement` back with its peak memory.
What is finished when somebody presses Ctrl-C is kept.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import msgspec

from windlass_bench.engine.measurement import Measurement
from windlass_bench.engine.tasks import TASKS
from windlass_bench.play import own_peak_rss_mib


@dataclass
class Measurements:
    """What has been measured so far, by task."""

    by_task: dict[str, Measurement] = field(default_factory=dict)
    interrupted: bool = False


def measure_all(names: Sequence[str], repetitions: int, on_progress: Callable[[float], None]) -> Measurements:
    """Other work on the machine only ever slows down, so the fastest of several is the truest."""
    found = Measurements()
    context = multiprocessing.get_context("spawn")
    total = 0
    with ProcessPoolExecutor(1, context, _ignore_interrupts, max_tasks_per_child=1) as pool:
        try:
            for _ in range(repetitions):
                for name in names:
                    measurement = pool.submit(measure, name).result()
                    known = found.by_task.get(name)
                    if known is None or measurement.decide_s < known.decide_s:
                        found.by_task[name] = measurement
                    total += 1
                    on_progress(total)
        except KeyboardInterrupt:
            found.interrupted = True
            pool.shutdown(cancel_futures=True)
    return found


def measure(name: str) -> Measurement:
    """One task, here and now, with the peak memory of this process."""
    return msgspec.structs.replace(TASKS[name](name), peak_rss_mib=own_peak_rss_mib())


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
