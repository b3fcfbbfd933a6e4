"""How long workloads of a LocalQueue usually run: finished runs counted in buckets, and percentiles of them.

`cluster.workloads` finds the runs that succeeded; `scheduler.run_time_writer` and the simulator keep the counts in
`RunTimeHistory` objects. `placement.timeplan` plans with the estimates where no run limit is declared.

A bucket is named by the longest run that it holds and is at most an eighth wider than the one before it, so an estimate
is never too short and at most an eighth too long. Runs are counted by the week in which they ended. Each week counts
half as much as the next, and is dropped after eight: integer weights, so that counts merged in any order are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from windlass.model.run_time_history import PERIOD_SECONDS, FinishedRun, RunPeriods, RunTimes
from windlass.model.times import format_duration

MAX_PERIODS = 8
"""Weeks that are kept."""
MIN_RUNS = 10
"""With fewer runs there is no estimate."""
MAX_SHAPES = 32
"""Sizes and priorities that are told apart in a queue."""
MAX_BUCKET_SECONDS = 1 << 26
"""The last bucket: about two years."""
MAX_CLOCK_SKEW_SECONDS = 86_400
_BOUND_BITS = 4
"""Significant bits of a bucket's bound: eight buckets from one power of two to the next."""


def bucket_of(seconds: int) -> int:
    """The bucket of a run: the smallest bound that is not below it."""
    if seconds >= MAX_BUCKET_SECONDS:
        return MAX_BUCKET_SECONDS
    shift = max(0, (max(seconds, 1) - 1).bit_length() - _BOUND_BITS)
    return max(1, -(-seconds >> shift) << shift)


def add_runs(times: RunTimes, runs: Iterable[FinishedRun]) -> RunTimes:
    """The history with these runs added, which are all of its queue."""
    for run in runs:
        periods = {run.ended_at // PERIOD_SECONDS: {bucket_of(run.seconds): 1}}
        times = merge_run_times(times, RunTimes(periods, {run.shape: periods} if run.shape else {}))
    return times


def merge_run_times(first: RunTimes, second: RunTimes) -> RunTimes:
    """The runs of both; weeks that are too old compared with the newest are dropped, and of too many shapes those that
    ran last or most are kept."""
    oldest = max(first.periods.keys() | second.periods.keys(), default=0) - MAX_PERIODS + 1
    shapes = {
        shape: merged
        for shape in first.shapes.keys() | second.shapes.keys()
        if (merged := _merge_periods(first.shapes.get(shape, {}), second.shapes.get(shape, {}), oldest))
    }
    kept = sorted(shapes, key=lambda shape: (-max(shapes[shape]), -_run_count(shapes[shape]), shape))[:MAX_SHAPES]
    periods = _merge_periods(first.periods, second.periods, oldest)
    return RunTimes(periods, {shape: shapes[shape] for shape in kept})


def _merge_periods(first: RunPeriods, second: RunPeriods, oldest: int) -> RunPeriods:
    merged: RunPeriods = {}
    for period in first.keys() | second.keys():
        if period >= oldest:
            counts = dict(first.get(period, {}))
            for bound, runs in second.get(period, {}).items():
                counts[bound] = counts.get(bound, 0) + runs
            merged[period] = counts
    return merged


def _run_count(periods: RunPeriods) -> int:
    return sum(sum(counts.values()) for counts in periods.values())


def without_future_runs(times: RunTimes, now: int) -> RunTimes:
    """Drops runs that ended in the future (a wrong clock): compared with them, all others would be too old."""
    last = (now + MAX_CLOCK_SKEW_SECONDS) // PERIOD_SECONDS

    def past(periods: RunPeriods) -> RunPeriods:
        return {period: counts for period, counts in periods.items() if period <= last}

    return RunTimes(past(times.periods), {shape: past(periods) for shape, periods in times.shapes.items()})


def recent_run_count(times: RunTimes, now: int) -> int:
    """Runs of the last `MAX_PERIODS` weeks."""
    return sum(sum(counts.values()) for period, counts in times.periods.items() if _weight(period, now) > 0)


def run_time_percentile(times: RunTimes, percent: int, now: int, longer_than: int = 0) -> int:
    """Seconds within which `percent` of the runs ended that took longer than this, with newer runs weighing more; 0
    where none is known."""
    weights: dict[int, int] = {}
    for period, counts in times.periods.items():
        weight = _weight(period, now)
        for bound, runs in counts.items():
            if bound > longer_than:
                weights[bound] = weights.get(bound, 0) + runs * weight
    # Both sides times 100: integers, and no rounding.
    wanted, seen = percent * sum(weights.values()), 0
    for bound in sorted(weights):
        seen += 100 * weights[bound]
        # A bucket of weight 0 holds only runs that are too old to count.
        if weights[bound] and seen >= wanted:
            return bound
    return 0


def _weight(period: int, now: int) -> int:
    age = max(0, now // PERIOD_SECONDS - period)
    return 1 << (MAX_PERIODS - 1 - age) if age < MAX_PERIODS else 0


class RunTimeEstimate(msgspec.Struct, frozen=True):
    """How long a workload of a queue will run, by its predecessors."""

    queue: str
    seconds: int
    percent: int
    runs: int
    is_of_shape: bool = False
    """By runs of the same size and priority only."""

    @property
    def text(self) -> str:
        alike = " of this size" if self.is_of_shape else ""
        took = format_duration(self.seconds)
        return f"{self.percent} % of {self.runs} earlier runs{alike} of queue {self.queue} ended within {took}"


class RunTimeEstimates:
    """Estimates of all queues with enough runs, computed when first asked for."""

    def __init__(self, run_times: Mapping[str, RunTimes], percent: int, now: int) -> None:
        self._run_times, self._percent, self._now = run_times, percent, now
        self._known: dict[tuple[str, str], RunTimeEstimate | None] = {}

    def get(self, queue: str, shape: str = "") -> RunTimeEstimate | None:
        """By the runs of this shape; where there are too few, by all of the queue."""
        key = (queue, shape)
        if key not in self._known:
            times = self._run_times.get(queue)
            alike = RunTimes(times.shapes.get(shape, {})) if times is not None else RunTimes()
            found = self._estimate(queue, alike, is_of_shape=True)
            if found is None and times is not None:
                found = self._estimate(queue, times, is_of_shape=False)
            self._known[key] = found
        return self._known[key]

    def has(self, queue: str) -> bool:
        """Whether there are runs of this queue at all."""
        return queue in self._run_times

    def after(self, queue: str, shape: str, elapsed: int) -> int | None:
        """Seconds in all that a run takes which has taken so long already: by those of its shape that took longer, else
        by those of its queue; None where none did."""
        times = self._run_times.get(queue, RunTimes())
        alike = RunTimes(times.shapes.get(shape, {}))
        seconds = (run_time_percentile(runs, self._percent, self._now, elapsed) for runs in (alike, times))
        return next((found for found in seconds if found), None)

    def _estimate(self, queue: str, times: RunTimes, *, is_of_shape: bool) -> RunTimeEstimate | None:
        runs = recent_run_count(times, self._now)
        if runs < MIN_RUNS:
            return None
        seconds = run_time_percentile(times, self._percent, self._now)
        return RunTimeEstimate(queue, seconds, self._percent, runs, is_of_shape)
