"""One run of a benchmark: which trace on which park with which policy, played and measured.

The sections of a benchmark name their runs here and get an `Outcome` for each; `runs` plays them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import msgspec

from windlass.cluster.shape import ShapeRegistry
from windlass.engine import EngineConfig
from windlass.placement.policies import PlacementConfig
from windlass.simulate.placements import Placement
from windlass.simulate.result import RunResult
from windlass.simulate.trace import Trace
from windlass.simulate.trace_run import simulate_trace, warm_up
from windlass.simulate.traces import load_trace
from windlass_bench.fleets import read_fleet
from windlass_bench.processes import memory_mib
from windlass_bench.published import published_statistic


class Case(msgspec.Struct, frozen=True):
    """What arrives where, whoever places it."""

    trace: str
    seed: int | None = None
    fleet: str = ""
    """Another park than the trace's own, as `fleets` names it."""
    replay: str = "arrivals"
    drop: bool = False
    """What finds no room is dropped, also where the trace would let it wait."""


class Run(msgspec.Struct, frozen=True):
    case: Case
    policy: str
    mix: str = "declared"
    isolated_repetition: int = 0
    """Above 0: played in a new process and measured for speed and memory only, so that both are its own. The number
    tells repetitions apart."""
    without_terms: tuple[str, ...] = ()
    """Terms of the `windlass` policy that are left out."""


class RunOutcome(msgspec.Struct, frozen=True):
    run: Run
    result: RunResult
    cpu_s: float
    """Processor time of the run, as `result.seconds` is its wall time."""
    published_pct: float | None = None
    """The allocation as the published tables count it; None for a trace with times."""


OnProgress = Callable[[float], None]


class RunPlayer:
    """Plays runs one after another; keeps the last trace, since neighbouring runs share it."""

    def __init__(self, traces_dir: Path | None) -> None:
        self._traces_dir = traces_dir
        self._case: Case | None = None
        self._trace: Trace | None = None

    def play(self, run: Run, on_progress: OnProgress = lambda done: None) -> RunOutcome:
        """Raises `KeyboardInterrupt` on Ctrl-C: half a run is no number for a table."""
        trace = self._load(run.case)
        seed = trace.seed or 0
        warm_up(trace, EngineConfig(PlacementConfig(run.policy, seed)))
        placements: list[Placement] = []
        started = time.process_time()
        result = simulate_trace(
            trace,
            run.policy,
            mix=run.mix,
            seed=seed,
            placements=None if run.isolated_repetition else placements.append,
            on_progress=lambda done, total: on_progress(done / max(total, 1)),
            without_terms=run.without_terms,
        )
        cpu_s = time.process_time() - started
        if result.interrupted:
            raise KeyboardInterrupt
        total = result.gpu_milli_total
        result = msgspec.structs.replace(result, curve=None)
        outcome = RunOutcome(run, result, round(cpu_s, 4))
        if run.isolated_repetition:
            peak = own_peak_rss_mib() or result.peak_rss_mib
            return msgspec.structs.replace(outcome, result=msgspec.structs.replace(result, peak_rss_mib=peak))
        percent = None if result.gpu_time_pct is not None else _published_pct(trace, placements, total)
        return msgspec.structs.replace(outcome, published_pct=percent)

    def _load(self, case: Case) -> Trace:
        if self._trace is None or self._case != case:
            folder = self._traces_dir
            nodes = read_fleet(case.fleet, folder) if case.fleet and folder is not None else None
            trace = load_trace(case.trace, seed=case.seed, traces_dir=folder, nodes=nodes, replay=case.replay)
            self._trace = msgspec.structs.replace(trace, retry=False) if case.drop else trace
            self._case = case
        return self._trace


def own_peak_rss_mib() -> float | None:
    """The most memory that this process has had; None where the system doesn't say.

    `getrusage` counts what the parent had when it started this process, and the parent may have played a lot.
    """
    try:
        return round(memory_mib("self", "VmHWM"), 1)
    except (OSError, StopIteration):
        return None


def _published_pct(trace: Trace, placements: list[Placement], park: int) -> float | None:
    """The allocation after every arrival, put together from what was placed."""
    book = ShapeRegistry()
    placed = {placement.pod for placement in placements}
    pods = [pod for job in trace.jobs for pod in job.pods]
    asked = [book.intern(pod)[0].gpu_milli for pod in pods]
    given = [milli if pod.key in placed else 0 for pod, milli in zip(pods, asked, strict=True)]
    return published_statistic(list(accumulate(asked)), list(accumulate(given)), park)
