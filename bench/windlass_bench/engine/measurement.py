"""What one measurement of the engine says; made by `tasks`, put into tables by `report`."""

from __future__ import annotations

import time

import msgspec


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    task: str
    """Name of the task."""
    nodes: int
    units: int
    """How many were decided on."""
    unit: str
    """`pods`, `gangs`, `workloads`, `decisions`."""
    decide_s: float
    """Processor time of `decide`."""
    intake_s: float = 0.0
    """Processor time of taking the objects in and making the snapshot before it."""
    placed: int = 0
    held: int = 0
    evicted: int = 0
    peak_rss_mib: float | None = None
    """Of the whole process."""
    extra: dict[str, float] = {}
    """Numbers that only this kind of task has."""

    @property
    def per_second(self) -> float:
        return self.units / self.decide_s if self.decide_s else 0.0


class Stopwatch:
    """Processor time of this thread's process, since other work on the machine must not count."""

    def __init__(self) -> None:
        self._started = time.process_time()

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = time.process_time()
        took, self._started = now - self._started, now
        return took
