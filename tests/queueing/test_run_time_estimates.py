"""Finished runs of a queue: counts that merge in any order, and their percentiles."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windlass.model.codec import decode_object, to_unstructured
from windlass.model.run_time_history import (
    PERIOD_SECONDS,
    FinishedRun,
    RunTimes,
    run_time_fields,
    run_times_from_object,
)
from windlass.queueing.run_time_estimates import (
    MAX_BUCKET_SECONDS,
    MAX_PERIODS,
    MAX_SHAPES,
    MIN_RUNS,
    RunTimeEstimates,
    add_runs,
    bucket_of,
    merge_run_times,
    recent_run_count,
    run_time_percentile,
    without_future_runs,
)

NOW = 3000 * PERIOD_SECONDS + 1
QUEUE = "research/gpu"

lengths = st.one_of(st.integers(1, 100), st.integers(1, MAX_BUCKET_SECONDS))
ages = st.integers(0, (MAX_PERIODS + 2) * PERIOD_SECONDS)
shapes = st.sampled_from(["", "1x(nvidia.com/gpu=1), priority 0", "4x(nvidia.com/gpu=8), priority 9"])
runs = st.builds(lambda seconds, age, shape: FinishedRun(QUEUE, seconds, NOW - age, shape), lengths, ages, shapes)
histories = st.lists(runs, max_size=30).map(lambda some: add_runs(RunTimes(), some))


@given(lengths)
def test_a_bucket_is_never_too_short_and_at_most_an_eighth_too_long(seconds: int) -> None:
    assert seconds <= bucket_of(seconds) <= seconds * 9 / 8


@given(lengths, lengths)
def test_buckets_keep_the_order(one: int, other: int) -> None:
    assert (one <= other) <= (bucket_of(one) <= bucket_of(other))


def test_there_are_few_buckets() -> None:
    steps = [bucket_of(1)]
    while steps[-1] < MAX_BUCKET_SECONDS:
        steps.append(bucket_of(steps[-1] + 1))
    assert len(steps) < 256, "the object's schema allows no more"
    assert bucket_of(MAX_BUCKET_SECONDS * 10) == MAX_BUCKET_SECONDS


def test_the_bounds_of_buckets() -> None:
    """Eight from one power of two to the next; one second each below sixteen."""
    assert [bucket_of(seconds) for seconds in range(-1, 18)] == [1, 1, *range(1, 17), 18]
    bounds = sorted({bucket_of(seconds) for seconds in range(33, 129)})
    assert bounds == [*range(36, 65, 4), *range(72, 129, 8)]
    assert [bucket_of(seconds) for seconds in (128, 129, 144, 145)] == [128, 144, 144, 160]
    last = MAX_BUCKET_SECONDS
    assert [bucket_of(last + more) for more in (-1, 0, 1)] == [last, last, last]
    assert bucket_of(last - last // 16) == last - last // 16
    assert last == 67_108_864


def test_runs_are_counted_by_the_week_in_which_they_ended() -> None:
    week = NOW // PERIOD_SECONDS
    ends = [week * PERIOD_SECONDS - 1, week * PERIOD_SECONDS, week * PERIOD_SECONDS + PERIOD_SECONDS - 1]
    times = add_runs(RunTimes(), [FinishedRun(QUEUE, 10, end) for end in (*ends, ends[0])])
    assert times.periods == {week - 1: {10: 2}, week: {10: 2}}
    assert merge_run_times(times, times).periods == {week - 1: {10: 4}, week: {10: 4}}
    other = RunTimes({week: {10: 1, 20: 5}})
    assert merge_run_times(times, other).periods == {week - 1: {10: 2}, week: {10: 3, 20: 5}}


def test_a_clock_may_be_a_day_ahead() -> None:
    week = NOW // PERIOD_SECONDS
    times = RunTimes({week: {10: 1}, week + 1: {10: 1}})
    end = (week + 1) * PERIOD_SECONDS
    assert without_future_runs(times, end - 86_400) == times
    assert without_future_runs(times, end - 86_401) == RunTimes({week: {10: 1}})


def test_weeks_weigh_by_halves_and_the_ninth_nothing() -> None:
    week = NOW // PERIOD_SECONDS
    for age in range(1, MAX_PERIODS):
        # So many old runs weigh as much as one of this week: half of all, and with one more the larger part.
        equal = RunTimes({week: {10: 1}, week - age: {20: 2**age}})
        assert run_time_percentile(equal, 50, NOW) == 10
        more = RunTimes({week: {10: 1}, week - age: {20: 2**age + 1}})
        assert run_time_percentile(more, 50, NOW) == 20
    gone = RunTimes({week: {10: 1}, week - MAX_PERIODS: {5: 10**6, 20: 10**6}})
    assert [run_time_percentile(gone, percent, NOW) for percent in (1, 50, 100)] == [10, 10, 10]
    assert recent_run_count(gone, NOW) == 1
    ahead = RunTimes({week + 3: {10: 1}, week: {20: 1}})
    assert run_time_percentile(ahead, 50, NOW) == 10, "what is ahead of the clock counts as this week"
    assert run_time_percentile(RunTimes(), 50, NOW) == 0
    assert run_time_percentile(RunTimes({week - MAX_PERIODS: {5: 1}}), 50, NOW) == 0


@given(histories, histories, histories)
def test_counts_are_put_together_in_any_order(one: RunTimes, other: RunTimes, third: RunTimes) -> None:
    assert merge_run_times(one, other) == merge_run_times(other, one)
    assert merge_run_times(merge_run_times(one, other), third) == merge_run_times(one, merge_run_times(other, third))
    assert merge_run_times(one, RunTimes()) == one


@given(st.lists(runs, max_size=40), st.randoms(use_true_random=False))
def test_the_order_of_runs_makes_no_difference(some: list[FinishedRun], random: object) -> None:
    shuffled = list(some)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    half = len(some) // 2
    parts = merge_run_times(add_runs(RunTimes(), shuffled[:half]), add_runs(RunTimes(), shuffled[half:]))
    assert parts == add_runs(RunTimes(), some)


def test_what_is_kept_is_bounded() -> None:
    weekly = [FinishedRun(QUEUE, 60, NOW - week * PERIOD_SECONDS) for week in range(3 * MAX_PERIODS)]
    times = add_runs(RunTimes(), weekly)
    assert sorted(times.periods) == list(range(NOW // PERIOD_SECONDS - MAX_PERIODS + 1, NOW // PERIOD_SECONDS + 1))
    assert recent_run_count(times, NOW) == MAX_PERIODS
    assert recent_run_count(times, NOW + MAX_PERIODS * PERIOD_SECONDS) == 0


@given(st.lists(lengths, min_size=1, max_size=60), st.integers(1, 100))
def test_a_percentile_of_one_week_is_the_exact_one_but_for_its_bucket(some: list[int], percent: int) -> None:
    times = add_runs(RunTimes(), [FinishedRun(QUEUE, seconds, NOW) for seconds in some])
    rank = -(-percent * len(some) // 100)
    assert run_time_percentile(times, percent, NOW) == bucket_of(sorted(some)[rank - 1])


@given(histories, st.integers(1, 99))
def test_a_higher_percentile_takes_no_less_time(times: RunTimes, percent: int) -> None:
    assert run_time_percentile(times, percent, NOW) <= run_time_percentile(times, percent + 1, NOW)


def test_a_week_counts_half_as_much_as_the_next() -> None:
    last_week = [FinishedRun(QUEUE, 1000, NOW - PERIOD_SECONDS)] * 4
    times = add_runs(RunTimes(), [*last_week, *[FinishedRun(QUEUE, 10, NOW)] * 3])
    assert run_time_percentile(times, 50, NOW) == 10, "three count more than four halves"
    assert run_time_percentile(times, 61, NOW) == bucket_of(1000)
    assert run_time_percentile(times, 50, NOW + 7 * PERIOD_SECONDS) == 10, "what is forgotten doesn't count"


def test_a_clock_that_was_wrong_once_spoils_nothing() -> None:
    good = add_runs(RunTimes(), [FinishedRun(QUEUE, 60, NOW - PERIOD_SECONDS)])
    spoiled = RunTimes({**good.periods, 2 * NOW // PERIOD_SECONDS: {600: 5}})
    assert without_future_runs(spoiled, NOW) == good
    assert without_future_runs(good, NOW) == good


def test_few_runs_say_nothing() -> None:
    nine = add_runs(RunTimes(), [FinishedRun(QUEUE, 60, NOW)] * (MIN_RUNS - 1))
    assert RunTimeEstimates({QUEUE: nine}, 95, NOW).get(QUEUE) is None
    ten = add_runs(nine, [FinishedRun(QUEUE, 3600, NOW)])
    found = RunTimeEstimates({QUEUE: ten}, 90, NOW).get(QUEUE)
    assert found is not None
    assert found.text == "90 % of 10 earlier runs of queue research/gpu ended within 1m"
    assert RunTimeEstimates({QUEUE: ten}, 90, NOW).get("research/other") is None
    assert RunTimeEstimates({QUEUE: ten}, 90, NOW + MAX_PERIODS * PERIOD_SECONDS).get(QUEUE) is None, "long ago"


@given(histories)
def test_the_object_says_the_same(times: RunTimes) -> None:
    tree = {
        "apiVersion": "windlass.dev/v1",
        "kind": "RunTimeHistory",
        "metadata": {"name": "gpu", "namespace": "research"},
        **run_time_fields(times),
    }
    read = decode_object(tree)
    assert run_times_from_object(read) == times  # type: ignore[arg-type]
    assert decode_object(to_unstructured(read)) == read


def test_runs_of_one_shape_say_more_than_all_of_the_queue() -> None:
    small = [FinishedRun(QUEUE, 60, NOW, "small")] * MIN_RUNS
    large = [FinishedRun(QUEUE, 36_000, NOW, "large")] * (MIN_RUNS - 1)
    estimates = RunTimeEstimates({QUEUE: add_runs(RunTimes(), [*small, *large])}, 95, NOW)
    found = estimates.get(QUEUE, "small")
    assert found is not None
    assert (found.seconds, found.runs, found.is_of_shape) == (60, MIN_RUNS, True)
    assert found.text == f"95 % of {MIN_RUNS} earlier runs of this size of queue research/gpu ended within 1m"
    for shape in ("large", "another"):
        found = estimates.get(QUEUE, shape)
        assert found is not None
        assert (found.seconds, found.is_of_shape) == (bucket_of(36_000), False), "too few of its own"


def test_a_run_that_takes_longer_is_one_of_the_longer_ones() -> None:
    times = add_runs(RunTimes(), [FinishedRun(QUEUE, seconds, NOW, "a") for seconds in (60, 600, 6000)])
    estimates = RunTimeEstimates({QUEUE: times}, 95, NOW)
    assert estimates.after(QUEUE, "a", 600) == bucket_of(6000)
    assert estimates.after(QUEUE, "b", 60) == bucket_of(6000), "by all of its queue"
    assert estimates.after(QUEUE, "a", 7000) is None
    assert estimates.after("research/other", "a", 60) is None


def test_only_so_many_shapes_are_kept() -> None:
    often = [FinishedRun(QUEUE, 60, NOW, f"often-{number:02}") for number in range(MAX_SHAPES)] * 2
    times = add_runs(RunTimes(), [*often, FinishedRun(QUEUE, 60, NOW - PERIOD_SECONDS, "once")])
    assert sorted(times.shapes) == [f"often-{number:02}" for number in range(MAX_SHAPES)]
    assert recent_run_count(times, NOW) == 2 * MAX_SHAPES + 1
