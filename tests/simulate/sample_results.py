"""Made-up results with the outline of real ones, for the tests of what is done with results."""

from __future__ import annotations

import math
from collections.abc import Sequence

from windlass.simulate.result import Curve, RunResult, Waiting


def sample_result(
    policy: str = "windlass",
    seed: int | None = 42,
    allocated_pct: float = 95.0,
    trace: str = "openb/default",
    timed: bool = False,
    interrupted: bool = False,
) -> RunResult:
    return RunResult(
        trace=trace,
        policy=policy,
        seed=seed,
        order="recorded" if timed else "published",
        gpu_milli_total=6_212_000,
        gpu_milli_allocated=round(62_120 * allocated_pct),
        pods_arrived=10_800,
        pods_placed=9_800,
        pods_refused=1_000,
        seconds=0.31,
        peak_rss_mib=180.5,
        allocated_pct=allocated_pct,
        fragmentation_pct=100 - allocated_pct,
        fragmentation_causes={"lack_gpu": round(40_000 * (100 - allocated_pct)), "lack_cpu": 51_000},
        stranded_milli={"gpu": 190_000},
        gpu_time_pct=allocated_pct - 10 if timed else None,
        makespan_hours=800.0 if timed else None,
        waiting=Waiting(mean=4000, p50=30, p90=9000, p99=90_000, max=200_000) if timed else None,
        nodes=1213,
        decisions_per_second=36_000,
        interrupted=interrupted,
        curve=sample_curve(allocated_pct, timed),
    )


def sample_curve(allocated_pct: float, timed: bool) -> Curve:
    """Follows the demand, then flattens out towards the final value."""
    at = [float(point) for point in range(131)]
    reached = [
        point if point < 80 else allocated_pct - (allocated_pct - 80) * math.exp(-(point - 80) / 9) for point in at
    ]
    fragmentation = [(100 - allocated_pct) * (0.3 + 0.7 * (point / 130) ** 2) for point in at]
    return Curve(
        at=tuple(at),
        unit="hours" if timed else "arrived_pct",
        allocated_pct=tuple(reached),
        fragmentation_pct=tuple(fragmentation),
        waiting_jobs=tuple(int(point) for point in at) if timed else (),
    )


def sample_batch(policies: dict[str, float], seeds: Sequence[int], timed: bool = False) -> list[RunResult]:
    """Every policy on every seed; a seed shifts all policies alike, and each a little for itself."""
    return [
        sample_result(policy, seed, level + (seed * 37 % 11) / 20 + (seed * len(policy) % 7) / 60, timed=timed)
        for policy, level in policies.items()
        for seed in seeds
    ]
