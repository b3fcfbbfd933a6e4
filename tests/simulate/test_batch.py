"""Many runs: order, processes, interruption, placements."""

from __future__ import annotations

import csv
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from windlass.model.errors import InputError
from windlass.simulate.batch import BatchResult, DeferredInterrupt, run_batch
from windlass.simulate.result import RunResult
from windlass.simulate.runner import PLACEMENT_COLUMNS, BatchSettings, RunSpec, join_placements

SMALL = "synthetic/small"
SPECS = [RunSpec(SMALL, policy, seed) for policy in ("fgd", "first-fit") for seed in (1, 2)]


def ignore(done: float) -> None:
    """A progress that nobody watches."""


def decided(batch: BatchResult) -> list[RunResult]:
    """The results without what differs from run to run: time and memory."""
    return [
        msgspec.structs.replace(result, seconds=0.0, peak_rss_mib=0.0, decisions_per_second=0.0)
        for result in batch.results
    ]


def interrupt_after(runs: float) -> Callable[[float], None]:
    def on_progress(done: float) -> None:
        if done > runs:
            os.kill(os.getpid(), signal.SIGINT)

    return on_progress


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_the_order_of_the_specs(jobs: int) -> None:
    batch = run_batch(SPECS, BatchSettings(), jobs, ignore)
    assert [(result.policy, result.seed) for result in batch.results] == [
        ("fgd", 1),
        ("fgd", 2),
        ("first-fit", 1),
        ("first-fit", 2),
    ]
    assert not batch.interrupted


def test_the_number_of_processes_changes_nothing(tmp_path: Path) -> None:
    files, batches = [], []
    for jobs in (1, 2):
        parts = tmp_path / f"parts-{jobs}"
        parts.mkdir()
        batches.append(decided(run_batch(SPECS, BatchSettings(placements=parts), jobs, ignore)))
        files.append(tmp_path / f"{jobs}.csv")
        join_placements(parts, len(SPECS), files[-1])
    assert batches[0] == batches[1]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_placements_add_up_to_what_the_result_says(tmp_path: Path) -> None:
    batch = run_batch(SPECS[:1], BatchSettings(placements=tmp_path), 1, ignore)
    join_placements(tmp_path, 1, tmp_path / "all.csv")
    with (tmp_path / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == PLACEMENT_COLUMNS
    assert len(rows) == batch.results[0].pods_placed
    grants = [grant.split(":") for row in rows for grant in row["devices"].split(";") if grant]
    assert sum(int(milli) for _, milli in grants) == batch.results[0].gpu_milli_allocated


def test_progress_grows_to_the_number_of_runs() -> None:
    seen: list[float] = []
    run_batch(SPECS, BatchSettings(), 1, seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == len(SPECS)


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_gives_what_there_is_so_far(jobs: int) -> None:
    many = [RunSpec(SMALL, "fgd", seed) for seed in range(40)]
    batch = run_batch(many, BatchSettings(), jobs, interrupt_after(1.5))
    assert batch.interrupted
    whole = [result for result in batch.results if not result.interrupted]
    assert 1 <= len(whole) < len(many)
    assert [result.seed for result in whole] == sorted(result.seed or 0 for result in whole)


def test_ctrl_c_waits_for_the_end_of_a_step_and_a_second_one_does_not() -> None:
    with pytest.raises(KeyboardInterrupt), DeferredInterrupt() as interruption:  # noqa: PT012  # both are one story
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interruption.check()
        os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_means_what_it_meant_before_once_the_runs_are_over() -> None:
    before = signal.getsignal(signal.SIGINT)
    for jobs in (1, 2):
        run_batch(SPECS, BatchSettings(), jobs, ignore)
        assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_bad_trace_is_refused_before_anything_runs(jobs: int) -> None:
    started: list[float] = []
    bad = [RunSpec("synthetic/smal", "fgd", 1), RunSpec("synthetic/smal", "fgd", 2)]
    with pytest.raises(InputError, match="synthetic/small"):
        run_batch(bad, BatchSettings(), jobs, started.append)
    assert started == []


def test_a_bad_trace_among_good_ones_stops_the_workers_too() -> None:
    specs = [RunSpec(SMALL, "fgd", seed) for seed in range(20)] + [RunSpec("synthetic/smal", "fgd", 1)]
    with pytest.raises(InputError, match="synthetic/small"):
        run_batch(specs, BatchSettings(), 2, ignore)


def test_a_pod_that_never_arrives_cant_be_explained() -> None:
    with pytest.raises(InputError, match="has no pod 'nobody'"):
        run_batch(SPECS[:1], BatchSettings(explain="nobody"), 1, ignore)
