"""The result of one simulation run; `simulate.measures` fills it, `simulate.report` and `simulate.plot` show it.

The field names are an interface (`SimulationReport.items`): fields are added, never changed or removed.
"""

from __future__ import annotations

import msgspec

from windlass.simulate.placements import Explanation
from windlass.simulate.tradeoffs import TradeOffs


class Curve(msgspec.Struct, frozen=True):
    """Measures over the course of a run, one entry per sample."""

    at: tuple[float, ...]
    """Arrived GPU demand in percent of the fleet (traces without times), or hours since the start."""
    unit: str
    """`arrived_pct` or `hours`."""
    allocated_pct: tuple[float, ...]
    fragmentation_pct: tuple[float, ...]
    """FGD's fragmentation measure, in percent of all GPUs."""
    waiting_jobs: tuple[int, ...] = ()
    fragmentation_causes: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """Milli-GPU of the expected fragment by cause, as in a run's own `fragmentation_causes`."""
    stranded_milli: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """Milli-GPU that no GPU class of the workload could use, as in a run's own `stranded_milli`."""
    pods_refused: tuple[int, ...] = ()
    """Pods that had found no node by then: dropped, or waiting."""


class Waiting(msgspec.Struct, frozen=True):
    """Seconds between arrival and start, over the jobs that started."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    trace: str
    policy: str
    seed: int | None
    order: str
    mix: str = "declared"
    """Workload mix that the policy expected: `declared` beforehand, or `seen` so far."""
    gpu_milli_total: int
    gpu_milli_allocated: int
    """At the end if no job ends; else at the moment of most allocation."""
    pods_arrived: int
    pods_placed: int
    pods_refused: int
    """Dropped (traces without retry), or still waiting at the end."""
    jobs_evicted: int = 0
    """Evictions of jobs for jobs of higher priority. An evicted job loses its work, and waits again or is dropped."""
    seconds: float
    peak_rss_mib: float
    allocated_pct: float
    fragmentation_pct: float
    """FGD's measure in percent of all GPUs, at the end. If pods end, this and the two fields below are of the sample
    with the most allocated, since the fleet is empty at the end."""
    fragmentation_causes: dict[str, int]
    """Milli-GPU of the expected fragment by cause: lack_gpu, lack_cpu, lack_both, cpu_only, wrong_model."""
    stranded_milli: dict[str, int]
    """Free milli-GPU that no GPU class of the workload could use, by reason."""
    gpu_time_pct: float | None = None
    """Allocated GPU-time in percent of the GPU-time offered until the last arrival; None without times."""
    makespan_hours: float | None = None
    waiting: Waiting | None = None
    nodes: int = 0
    decisions_per_second: float = 0.0
    interrupted: bool = False
    curve: Curve | None = None
    explanation: Explanation | None = None
    """Outcome of the pod of `--explain`; None if it never arrived."""
    trade_offs: TradeOffs | None = None
    """Measures in which packing and spreading differ."""
