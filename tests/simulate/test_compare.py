"""Means, spread and paired differences."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_results import sample_batch, sample_result

from windlass.simulate.compare import baseline_policy, paired, spread, summarise

percentages = st.floats(0, 100, allow_nan=False)


def test_the_baseline_is_fgd_wherever_it_was_run_and_else_the_first() -> None:
    assert baseline_policy(["pack", "fgd", "windlass"]) == "fgd"
    assert baseline_policy(["pack", "windlass"]) == "pack"


def test_one_summary_a_trace_and_policy_in_the_order_of_the_results() -> None:
    results = [
        sample_result(policy, seed, trace=trace)
        for trace in ("openb/default", "openb/cpu250")
        for policy in ("windlass", "fgd")
        for seed in (1, 2)
    ]
    assert [(row.trace, row.policy, row.seeds) for row in summarise(results)] == [
        ("openb/default", "windlass", (1, 2)),
        ("openb/default", "fgd", (1, 2)),
        ("openb/cpu250", "windlass", (1, 2)),
        ("openb/cpu250", "fgd", (1, 2)),
    ]


def test_differences_are_paired_by_seed_and_not_by_position() -> None:
    baseline = [sample_result("fgd", 1, 90.0), sample_result("fgd", 2, 80.0)]
    runs = [
        sample_result("windlass", 2, 81.0),
        sample_result("windlass", 1, 90.5),
        sample_result("windlass", 9, 10.0),
    ]
    difference = paired(runs, baseline, "allocated_pct")
    assert difference is not None
    assert (difference.baseline, difference.pairs, difference.better, difference.worse) == ("fgd", 2, 2, 0)
    assert difference.mean == pytest.approx(0.75)
    assert difference.deviation == pytest.approx(statistics.stdev([1.0, 0.5]))


def test_without_a_shared_seed_there_is_no_difference() -> None:
    assert paired([sample_result(seed=1)], [sample_result("fgd", seed=2)], "allocated_pct") is None


def test_the_baseline_is_not_compared_with_itself() -> None:
    by_policy = {row.policy: row for row in summarise(sample_batch({"fgd": 90, "windlass": 91}, [1, 2]))}
    assert by_policy["fgd"].paired is None
    assert by_policy["windlass"].paired is not None


def test_interrupted_runs_are_left_out() -> None:
    results = [sample_result(seed=1), sample_result(seed=2, interrupted=True)]
    assert [row.seeds for row in summarise(results)] == [(1,)]
    assert summarise([sample_result(interrupted=True)]) == []


def test_gpu_time_ranks_where_the_trace_has_times() -> None:
    assert {row.measure for row in summarise(sample_batch({"fgd": 90}, [1], timed=True))} == {"gpu_time_pct"}
    assert {row.measure for row in summarise(sample_batch({"fgd": 90}, [1]))} == {"allocated_pct"}


@given(st.lists(percentages, min_size=1, max_size=20))
def test_the_mean_lies_within_the_spread(values: list[float]) -> None:
    over = spread(values)
    assert over.low - 1e-9 <= over.mean <= over.high + 1e-9
    assert 0 <= over.deviation <= (over.high - over.low) + 1e-9


@given(st.lists(st.tuples(percentages, percentages), min_size=1, max_size=12))
def test_swapping_policy_and_baseline_turns_the_sign(pairs: list[tuple[float, float]]) -> None:
    ours = [sample_result("a", seed, value) for seed, (value, _) in enumerate(pairs)]
    theirs = [sample_result("b", seed, value) for seed, (_, value) in enumerate(pairs)]
    there, back = paired(ours, theirs, "allocated_pct"), paired(theirs, ours, "allocated_pct")
    assert there is not None
    assert back is not None
    assert there.mean == pytest.approx(-back.mean)
    assert (there.better, there.worse) == (back.worse, back.better)
