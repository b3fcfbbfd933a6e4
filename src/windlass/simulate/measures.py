"""Measures a run while it goes on: allocation over time, waiting, placed and refused pods.

`simulate.trace_run` reports every event; `result` makes a `RunResult` of them.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from windlass.cluster.snapshot import Snapshot
from windlass.cluster.store import Store
from windlass.placement.utilization import (
    GpuUtilization,
    StrandedGpus,
    allocated_milli,
    utilization_with_mix,
)
from windlass.placement.workload_mix import WorkloadMix, mix_arrays
from windlass.simulate.demand import demand_of
from windlass.simulate.placements import Explanation
from windlass.simulate.result import Curve, RunResult, Waiting
from windlass.simulate.trace import Job, Trace
from windlass.simulate.tradeoffs import TradeOffs, trade_offs

SAMPLES = 200
"""Number of samples in the curves of a trace with times."""


class RunRecorder:
    def __init__(self, trace: Trace, policy: str, mix: str, expected: WorkloadMix, empty: Snapshot) -> None:
        self._trace, self._policy, self._mix = trace, policy, mix
        self._mix_arrays = mix_arrays(expected, empty.gpu_models, empty.node_state)
        self._total_milli = utilization_with_mix(empty, self._mix_arrays).total_milli
        demand = demand_of(trace)
        self._stranding = StrandedGpus(self._mix_arrays, demand.least_memory)
        self._job_milli, self._is_demand_exact = demand.milli, demand.is_exact
        self._cumulative_milli = np.cumsum(self._job_milli)
        self._has_times = any(job.arrival or job.duration is not None for job in trace.jobs)
        self._last_arrival = trace.jobs[-1].arrival if trace.jobs else 0
        self._sample_every = max(1, self._last_arrival // SAMPLES)
        self._next_sample = 0
        self._arrived = self._placed_pods = self._pods_arrived = 0
        self._allocated = self._most_allocated = 0
        self._gpu_seconds, self._now = 0, 0
        self._wait_seconds: list[int] = []
        self._started_at: dict[int, int] = {}
        """Job number → second of its start."""
        self._evictions = 0
        self._evicted_jobs: set[int] = set()
        """Numbers of evicted jobs: only the wait for a job's first start counts."""
        self._fullest: tuple[int, int, Snapshot] | None = None
        """For a trace with times, the sample with the most allocated: milli-GPU, second, snapshot."""
        self._samples: list[_Sample] = []

    def next_step_end(self, done: int) -> int:
        """For traces without times: number of jobs after which the demand has grown by another percent of the fleet."""
        if not self._total_milli:
            return len(self._job_milli)
        before = int(self._cumulative_milli[done - 1]) if done else 0
        percent = before * 100 // self._total_milli + 1
        below = int(np.searchsorted(self._cumulative_milli * 100, percent * self._total_milli))
        return min(len(self._job_milli), below + 1)

    def arrived(self, job: Job, now: int) -> int:
        """Returns the job's number."""
        self._advance(now)
        number = self._arrived
        self._arrived += 1
        self._pods_arrived += len(job.pods)
        return number

    def started(self, job: Job, number: int, now: int) -> None:
        self._placed_pods += len(job.pods)
        if not self._has_times:
            return
        self._advance(now)
        if number not in self._evicted_jobs:
            self._wait_seconds.append(now - job.arrival)
        self._started_at[number] = now
        self._add_allocated(int(self._job_milli[number]))

    def stopped(self, job: Job, number: int, now: int) -> None:
        """The job was evicted and is pending again."""
        self._placed_pods -= len(job.pods)
        self._evictions += 1
        if not self._has_times:
            return
        self._advance(now)
        self._evicted_jobs.add(number)
        del self._started_at[number]
        self._add_allocated(-int(self._job_milli[number]))

    def ended(self, number: int, now: int) -> None:
        self._advance(now)
        self._add_allocated(-int(self._job_milli[number]))

    def _add_allocated(self, milli: int) -> None:
        if self._is_demand_exact:
            self._allocated += milli
            self._most_allocated = max(self._most_allocated, self._allocated)

    def _advance(self, now: int) -> None:
        """Adds GPU-time, but only up to the last arrival: afterwards the fleet runs empty under any policy."""
        if now == self._now:
            return
        seconds = min(now, self._last_arrival) - min(self._now, self._last_arrival)
        self._gpu_seconds += self._allocated * seconds
        self._now = now

    def sample(self, now: int, store: Store, waiting: int) -> None:
        """Called at the end of each moment; adds a point to the curves if one is due. `waiting` counts jobs."""
        if self._has_times:
            if not self._is_demand_exact:
                self._allocated = allocated_milli(store.snapshot())
                self._most_allocated = max(self._most_allocated, self._allocated)
            if now < self._next_sample:
                return
            self._next_sample = now + self._sample_every
            at = now / 3600
        else:
            at = self._percent(int(self._cumulative_milli[self._arrived - 1])) if self._arrived else 0.0
        snapshot = store.snapshot()
        used = utilization_with_mix(snapshot, self._mix_arrays)
        if self._has_times and (self._fullest is None or used.allocated_milli > self._fullest[0]):
            self._fullest = (used.allocated_milli, now, snapshot)
        refused = self._pods_arrived - self._placed_pods
        self._samples.append(_Sample(at, used, self._stranding.by_reason(snapshot), waiting, refused))

    def _percent(self, milli: int) -> float:
        return 100 * milli / self._total_milli if self._total_milli else 0.0

    def result(self, end: Snapshot, seconds: float, interrupted: bool, explanation: Explanation | None) -> RunResult:
        measured = end if self._fullest is None else self._fullest[2]
        used = utilization_with_mix(measured, self._mix_arrays)
        allocated = self._most_allocated if self._has_times else used.allocated_milli
        offered = self._total_milli * min(self._now, self._last_arrival)
        return RunResult(
            trace=self._trace.name,
            policy=self._policy,
            seed=self._trace.seed,
            order=self._trace.order,
            mix=self._mix,
            gpu_milli_total=self._total_milli,
            gpu_milli_allocated=allocated,
            pods_arrived=self._pods_arrived,
            pods_placed=self._placed_pods,
            pods_refused=self._pods_arrived - self._placed_pods,
            jobs_evicted=self._evictions,
            seconds=round(seconds, 4),
            peak_rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            allocated_pct=self._percent(allocated),
            fragmentation_pct=self._percent(used.fragment_milli),
            fragmentation_causes=used.causes,
            stranded_milli=self._stranding.by_reason(measured),
            gpu_time_pct=100 * self._gpu_seconds / offered if self._has_times and offered else None,
            makespan_hours=self._now / 3600 if self._has_times else None,
            waiting=self._waiting() if self._has_times else None,
            nodes=end.nodes.size,
            decisions_per_second=round(self._pods_arrived / seconds, 1) if seconds else 0.0,
            interrupted=interrupted,
            curve=self._curve(),
            explanation=explanation,
            trade_offs=self._trade_offs(end),
        )

    def _trade_offs(self, end: Snapshot) -> TradeOffs:
        if self._fullest is None:
            return trade_offs(end)
        _, now, snapshot = self._fullest
        started = [(self._trace.jobs[number], at) for number, at in self._started_at.items() if at <= now]
        return trade_offs(snapshot, {pod.key: at for job, at in started for pod in job.pods}, now)

    def _curve(self) -> Curve | None:
        samples = self._samples
        if not samples:
            return None
        return Curve(
            at=tuple(sample.at for sample in samples),
            unit="hours" if self._has_times else "arrived_pct",
            allocated_pct=tuple(self._percent(sample.used.allocated_milli) for sample in samples),
            fragmentation_pct=tuple(self._percent(sample.used.fragment_milli) for sample in samples),
            waiting_jobs=tuple(sample.waiting for sample in samples),
            fragmentation_causes=_by_key([sample.used.causes for sample in samples]),
            stranded_milli=_by_key([sample.stranded for sample in samples]),
            pods_refused=tuple(sample.refused for sample in samples),
        )

    def _waiting(self) -> Waiting | None:
        if not self._wait_seconds:
            return None
        waits = np.array(self._wait_seconds)
        p50, p90, p99 = (float(np.percentile(waits, q)) for q in (50, 90, 99))
        return Waiting(mean=float(waits.mean()), p50=p50, p90=p90, p99=p99, max=float(waits.max()))


def _by_key(samples: Sequence[Mapping[str, int]]) -> dict[str, tuple[int, ...]]:
    return {key: tuple(sample[key] for sample in samples) for key in samples[0]}


class _Sample(msgspec.Struct, frozen=True):
    """A point of the curves."""

    at: float
    used: GpuUtilization
    stranded: dict[str, int]
    waiting: int
    refused: int
