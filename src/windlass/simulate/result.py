"""What one run of the simulator measured; `simulate.trace_run` fills it, `simulate.report` and `simulate.plot` show it.

The field names are an interface (`SimulationReport.items`): they are only ever added to.
"""

from __future__ import annotations

import msgspec

from windlass.simulate.placements import Explanation
from windlass.simulate.tradeoffs import TradeOffs


class Curve(msgspec.Struct, frozen=True):
    """Measures over the course of a run, one entry a sample."""

    at: tuple[float, ...]
    """Arrived GPU demand in percent of the park (traces without times), or hours since the start."""
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
    """What the policy expected of the workload: `declared` beforehand, or `seen` so far."""
    gpu_milli_total: int
    gpu_milli_allocated: int
    """At the end of a run without departures; else at the moment of most allocation."""
    pods_arrived: int
    pods_placed: int
    pods_refused: int
    """Dropped (traces without retry), or still waiting at the end."""
    jobs_evicted: int = 0
    """How often a job had to go for one of higher priority. It lost its work, and waited again or was dropped."""
    seconds: float
    peak_rss_mib: float
    allocated_pct: float
    fragmentation_pct: float
    """FGD's measure in percent of all GPUs, at the end. Where pods leave, that is an empty park: then this and the two
    below are of the sample with the most allocated."""
    fragmentation_causes: dict[str, int]
    """Milli-GPU of the expected fragment by cause: lack_gpu, lack_cpu, lack_both, cpu_only, wrong_model."""
    stranded_milli: dict[str, int]
    """Free milli-GPU that no GPU class of the workload could use, by what stands in the way."""
    gpu_time_pct: float | None = None
    """Allocated GPU-time in percent of the GPU-time offered until the last arrival; None without times."""
    makespan_hours: float | None = None
    waiting: Waiting | None = None
    nodes: int = 0
    decisions_per_second: float = 0.0
    interrupted: bool = False
    curve: Curve | None = None
    explanation: Explanation | None = None
    """What became of the pod that `--explain` named; None if it never arrived."""
    trade_offs: TradeOffs | None = None
    """What pack and spread, for all or by class, trade against each other."""
