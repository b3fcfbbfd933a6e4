"""Runs one task of a batch in this process: loads its trace, plays it with its policy, writes its placements.

Used by `simulate.batch` directly, and in each worker process of `simulate.workers`.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from windlass.model.configuration import Settings
from windlass.model.errors import InputError
from windlass.model.node import Node
from windlass.simulate.placements import Placement, PlacementWriter
from windlass.simulate.result import RunResult
from windlass.simulate.trace import Trace
from windlass.simulate.trace_run import simulate_trace
from windlass.simulate.traces import load_trace

PLACEMENT_COLUMNS = ("trace", "policy", "seed", "pod", "node", "devices", "time")


@dataclass(frozen=True)
class RunSpec:
    trace: str
    policy: str
    seed: int | None


@dataclass(frozen=True)
class BatchSettings:
    """Settings of all runs of a batch."""

    traces_dir: Path | None = None
    nodes: tuple[Node, ...] | None = None
    replay: str = "arrivals"
    mix: str = "declared"
    explain: str = ""
    """Pod of `--explain`."""
    placements: Path | None = None
    """An empty folder: the placements of run `n` go into its file `n`."""
    engine: Settings | None = None
    """Settings of the engine; policy and seed come from each run."""


@dataclass(frozen=True)
class BatchTask:
    """A spec and its position in the order of the command line."""

    number: int
    spec: RunSpec


class TaskRunner:
    """Runs tasks in this process; keeps the last trace, since consecutive tasks share it."""

    def __init__(self, settings: BatchSettings) -> None:
        self._settings = settings
        self._loaded: tuple[str, int | None] | None = None
        self._trace: Trace | None = None

    def load(self, spec: RunSpec) -> Trace:
        wanted = (spec.trace, spec.seed)
        if self._trace is None or self._loaded != wanted:
            given = self._settings
            self._trace = load_trace(
                spec.trace,
                seed=spec.seed,
                traces_dir=given.traces_dir,
                nodes=given.nodes,
                replay=given.replay,
            )
            self._loaded = wanted
            _check_arrivals(self._trace)
            _check_explained(self._trace, given.explain)
        return self._trace

    def run(self, task: BatchTask, on_progress: Callable[[int, int], None]) -> RunResult:
        trace = self.load(task.spec)
        with _placements_file(self._settings.placements, task) as writer:
            return simulate_trace(
                trace,
                task.spec.policy,
                mix=self._settings.mix,
                seed=trace.seed or 0,
                placements=writer,
                on_progress=on_progress,
                explain=self._settings.explain,
                settings=self._settings.engine,
            )


def _check_arrivals(trace: Trace) -> None:
    """Traces that draw pods in proportion to the fleet's GPUs have none on a fleet without GPUs."""
    if not trace.jobs:
        raise InputError(
            f"no pod of {trace.name} arrives, since the nodes have no GPUs",
            remedy="give nodes with GPUs: allocatable nvidia.com/gpu of a Node, gpus of a Fleet",
        )


def _check_explained(trace: Trace, name: str) -> None:
    """Refuses `--explain` of an unknown pod before the run."""
    if not name:
        return
    known = {pod.key for job in trace.jobs for pod in job.pods}
    if name not in known and f"default/{name}" not in known:
        example = next(iter(sorted(known)), "")
        remedy = f"name one of its pods, such as {example}"
        raise InputError(f"{trace.name} has no pod '{name}'", remedy=remedy)


@contextmanager
def _placements_file(folder: Path | None, task: BatchTask) -> Iterator[PlacementWriter | None]:
    if folder is None:
        yield None
        return
    with (folder / str(task.number)).open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        spec = task.spec

        def write(placement: Placement) -> None:
            place = (placement.pod, placement.node, placement.devices_text, placement.time)
            rows.writerow((spec.trace, spec.policy, spec.seed, *place))

        yield write


def join_placements(folder: Path, runs: int, target: Path) -> None:
    """The placements of all runs as one CSV file, in the order of the command line."""
    with target.open("w", encoding="utf-8", newline="") as joined:
        joined.write(",".join(PLACEMENT_COLUMNS) + "\n")
        for number in range(runs):
            with (folder / str(number)).open(encoding="utf-8", newline="") as part:
                shutil.copyfileobj(part, joined)
