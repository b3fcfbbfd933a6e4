"""How long the work of a queue usually takes: finished runs counted in buckets, and percentiles out of them.

Fed with the runs that `cluster.workloads` sees come to a good end; the live scheduler and the simulator keep the counts
in `RunTimeHistory` objects. `placement.timeplan` plans with the estimates where nobody states a limit.

A bucket is named by the longest run that it holds and is at most an eighth wider than the one before it, so an estimate
is never too short and at most an eighth too long. Runs are counted by the week in which they ended. Each week counts
half as much as the next one, and after eight it is forgotten: a half-life without a fraction, so that counts can be put
together in any order and come out the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from windlass.model.run_time_history import PERIOD_SECONDS, FinishedRun, RunTimes
from windlass.model.times import format_duration

MAX_PERIODS = 8
"""Weeks that are remembered."""
MIN_RUNS = 10
"""Fewer say nothing."""
MAX_BUCKET_SECONDS = 1 << 26
"""Seconds, about two years: the last bucket."""
MAX_CLOCK_SKEW_SECONDS = 86_400
"""So far clocks may be apart."""
_STEPS = 4
"""Bits of a bound: eight buckets from one power of two to the next."""


def bucket_of(seconds: int) -> int:
    """The bucket of a run: the smallest bound that is not below it."""
    if seconds >= MAX_BUCKET_SECONDS:
        return MAX_BUCKET_SECONDS
    shift = max(0, (max(seconds, 1) - 1).bit_length() - _STEPS)
    return max(1, -(-seconds >> shift) << shift)


def add_runs(times: RunTimes, runs: Iterable[FinishedRun]) -> RunTimes:
    """What is known with these as well, all of one queue."""
    for run in runs:
        times = merge_run_times(
            times, RunTimes({run.ended_at // PERIOD_SECONDS: {bucket_of(run.seconds): 1}})
        )
    return times


def merge_run_times(one: RunTimes, other: RunTimes) -> RunTimes:
    """The runs of both; weeks that are too old beside the newest are dropped."""
    numbers = one.periods.keys() | other.periods.keys()
    oldest = max(numbers, default=0) - MAX_PERIODS + 1
    periods: dict[int, dict[int, int]] = {}
    for number in numbers:
        if number >= oldest:
            counts = dict(one.periods.get(number, {}))
            for bound, runs in other.periods.get(number, {}).items():
                counts[bound] = counts.get(bound, 0) + runs
            periods[number] = counts
    return RunTimes(periods)


def without_future_runs(times: RunTimes, now: int) -> RunTimes:
    """Without what ended in the future: somebody's clock was wrong, and beside that all the rest would be too old."""
    last = (now + MAX_CLOCK_SKEW_SECONDS) // PERIOD_SECONDS
    return RunTimes({number: counts for number, counts in times.periods.items() if number <= last})


def recent_run_count(times: RunTimes, now: int) -> int:
    """How many runs of the last weeks are known."""
    return sum(sum(counts.values()) for number, counts in times.periods.items() if _weight(number, now) > 0)


def run_time_percentile(times: RunTimes, percent: int, now: int) -> int:
    """Seconds within which so many of a hundred runs ended, newer ones counting more; 0 where none is known."""
    weights: dict[int, int] = {}
    for number, counts in times.periods.items():
        weight = _weight(number, now)
        for bound, runs in counts.items():
            weights[bound] = weights.get(bound, 0) + runs * weight
    wanted, seen = percent * sum(weights.values()), 0
    for bound in sorted(weights):
        seen += 100 * weights[bound]
        if weights[bound] and seen >= wanted:
            return bound
    return 0


def _weight(number: int, now: int) -> int:
    age = max(0, now // PERIOD_SECONDS - number)
    return 1 << (MAX_PERIODS - 1 - age) if age < MAX_PERIODS else 0


class RunTimeEstimate(msgspec.Struct, frozen=True):
    """How long work of a queue will take, by those before it."""

    queue: str
    seconds: int
    percent: int
    runs: int

    @property
    def text(self) -> str:
        """What it rests on."""
        took = format_duration(self.seconds)
        return f"{self.percent} % of {self.runs} earlier runs of queue {self.queue} ended within {took}"


class RunTimeEstimates:
    """Of every queue whose history says enough, worked out when they are asked for."""

    def __init__(self, run_times: Mapping[str, RunTimes], percent: int, now: int) -> None:
        self._run_times, self._percent, self._now = run_times, percent, now
        self._known: dict[str, RunTimeEstimate | None] = {}

    def get(self, queue: str) -> RunTimeEstimate | None:
        if queue not in self._known:
            times = self._run_times.get(queue)
            self._known[queue] = self._estimate(queue, times) if times is not None else None
        return self._known[queue]

    def _estimate(self, queue: str, times: RunTimes) -> RunTimeEstimate | None:
        runs = recent_run_count(times, self._now)
        if runs < MIN_RUNS:
            return None
        return RunTimeEstimate(
            queue, run_time_percentile(times, self._percent, self._now), self._percent, runs
        )
