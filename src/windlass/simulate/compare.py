"""Compares policies: means and spread over seeds, and differences paired by seed.

`simulate.report` and `simulate.plot` call it with the results of `simulate.trace_run`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

import msgspec

from windlass.simulate.result import RunResult

REFERENCE_POLICY = "fgd"
"""The best published policy: the baseline wherever it is among the policies that were run."""


class Spread(msgspec.Struct, frozen=True):
    """A measure over the seeds of one policy."""

    mean: float
    deviation: float
    """Standard deviation of the sample; 0 with one seed."""
    low: float
    high: float


class Paired(msgspec.Struct, frozen=True):
    """Differences of a measure to the baseline, seed by seed, so that the effect of the arrival order cancels out."""

    baseline: str
    pairs: int
    """Seeds that both policies finished."""
    mean: float
    deviation: float
    better: int
    """Seeds on which the policy was better."""
    worse: int


class PolicySummary(msgspec.Struct, frozen=True, kw_only=True):
    """Measures of one policy on one trace, over all seeds that finished."""

    trace: str
    policy: str
    seeds: tuple[int | None, ...]
    measure: str
    """What `paired` compares: `allocated_pct`, or `gpu_time_pct` where the trace has times."""
    allocated_pct: Spread
    fragmentation_pct: Spread
    pods_refused: Spread
    seconds: Spread
    gpu_time_pct: Spread | None = None
    waiting_mean: Spread | None = None
    paired: Paired | None = None
    """None for the baseline itself, and for a policy without a common seed."""


def headline_measure(results: Iterable[RunResult]) -> str:
    """The measure that ranks policies: allocated GPU-time if the trace has times, else allocated GPUs."""
    return "gpu_time_pct" if any(result.gpu_time_pct is not None for result in results) else "allocated_pct"


def baseline_policy(policies: Sequence[str]) -> str:
    """The policy that the others are compared with: the best published one if it was run, else the first."""
    return REFERENCE_POLICY if REFERENCE_POLICY in policies else policies[0]


def summarise(results: Sequence[RunResult]) -> list[PolicySummary]:
    """One summary per trace and policy, in the order of the results. Interrupted runs are left out."""
    finished = [result for result in results if not result.interrupted]
    summaries = []
    for trace in dict.fromkeys(result.trace for result in finished):
        of_trace = [result for result in finished if result.trace == trace]
        policies = list(dict.fromkeys(result.policy for result in of_trace))
        measure = headline_measure(of_trace)
        baseline = [result for result in of_trace if result.policy == baseline_policy(policies)]
        for policy in policies:
            runs = [result for result in of_trace if result.policy == policy]
            summaries.append(_summary(runs, baseline, measure))
    return summaries


def spread(values: Sequence[float]) -> Spread:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return Spread(mean=statistics.fmean(values), deviation=deviation, low=min(values), high=max(values))


def paired_differences(runs: Sequence[RunResult], baseline: Sequence[RunResult], measure: str) -> list[float]:
    """Run − baseline for every seed that both have."""
    base = {result.seed: value_of(result, measure) for result in baseline}
    return [value_of(run, measure) - base[run.seed] for run in runs if run.seed in base]


def paired(runs: Sequence[RunResult], baseline: Sequence[RunResult], measure: str) -> Paired | None:
    """Summary of the differences to the baseline; None without a common seed."""
    differences = paired_differences(runs, baseline, measure)
    if not differences:
        return None
    over_seeds = spread(differences)
    return Paired(
        baseline=baseline[0].policy,
        pairs=len(differences),
        mean=over_seeds.mean,
        deviation=over_seeds.deviation,
        better=sum(difference > 0 for difference in differences),
        worse=sum(difference < 0 for difference in differences),
    )


def value_of(result: RunResult, measure: str) -> float:
    """The value of a measure; 0 if the run lacks it."""
    return float(getattr(result, measure) or 0.0)


def _summary(runs: Sequence[RunResult], baseline: Sequence[RunResult], measure: str) -> PolicySummary:
    def over_seeds(value: Callable[[RunResult], float | None]) -> Spread | None:
        values = [known for known in map(value, runs) if known is not None]
        return spread(values) if values else None

    first = runs[0]
    return PolicySummary(
        trace=first.trace,
        policy=first.policy,
        seeds=tuple(run.seed for run in runs),
        measure=measure,
        allocated_pct=spread([run.allocated_pct for run in runs]),
        fragmentation_pct=spread([run.fragmentation_pct for run in runs]),
        pods_refused=spread([float(run.pods_refused) for run in runs]),
        seconds=spread([run.seconds for run in runs]),
        gpu_time_pct=over_seeds(lambda run: run.gpu_time_pct),
        waiting_mean=over_seeds(lambda run: run.waiting.mean if run.waiting else None),
        paired=None if first.policy == baseline[0].policy else paired(runs, baseline, measure),
    )
