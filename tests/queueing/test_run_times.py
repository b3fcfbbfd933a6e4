"""Finished runs of a queue: counts that can be put together in any order, and the percentiles that come of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windlass.model.objects import decode_object, to_tree
from windlass.model.run_times import PERIOD_SECONDS, Run, RunTimes, periods_of, run_times_of
from windlass.queueing.run_times import (
    LEAST_RUNS,
    LONGEST,
    PERIODS,
    Estimates,
    bound_of,
    merged,
    remembered,
    so_far,
    with_runs,
    within,
)

NOW = 3000 * PERIOD_SECONDS + 1
QUEUE = "research/gpu"

lengths = st.one_of(st.integers(1, 100), st.integers(1, LONGEST))
ages = st.integers(0, (PERIODS + 2) * PERIOD_SECONDS)
runs = st.builds(lambda seconds, age: Run(QUEUE, seconds, NOW - age), lengths, ages)
histories = st.lists(runs, max_size=30).map(lambda some: with_runs(RunTimes(), some))


@given(lengths)
def test_a_bucket_is_never_too_short_and_at_most_an_eighth_too_long(seconds: int) -> None:
    assert seconds <= bound_of(seconds) <= seconds * 9 / 8


@given(lengths, lengths)
def test_buckets_keep_the_order(one: int, other: int) -> None:
    assert (one <= other) <= (bound_of(one) <= bound_of(other))


def test_there_are_few_buckets() -> None:
    steps = [bound_of(1)]
    while steps[-1] < LONGEST:
        steps.append(bound_of(steps[-1] + 1))
    assert len(steps) < 256, "the object's schema allows no more"
    assert bound_of(LONGEST * 10) == LONGEST


@given(histories, histories, histories)
def test_counts_are_put_together_in_any_order(one: RunTimes, other: RunTimes, third: RunTimes) -> None:
    assert merged(one, other) == merged(other, one)
    assert merged(merged(one, other), third) == merged(one, merged(other, third))
    assert merged(one, RunTimes()) == one


@given(st.lists(runs, max_size=40), st.randoms(use_true_random=False))
def test_the_order_of_runs_makes_no_difference(some: list[Run], random: object) -> None:
    shuffled = list(some)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    half = len(some) // 2
    parts = merged(with_runs(RunTimes(), shuffled[:half]), with_runs(RunTimes(), shuffled[half:]))
    assert parts == with_runs(RunTimes(), some)


def test_what_is_kept_is_bounded() -> None:
    weekly = [Run(QUEUE, 60, NOW - week * PERIOD_SECONDS) for week in range(3 * PERIODS)]
    times = with_runs(RunTimes(), weekly)
    assert sorted(times.periods) == list(
        range(NOW // PERIOD_SECONDS - PERIODS + 1, NOW // PERIOD_SECONDS + 1)
    )
    assert remembered(times, NOW) == PERIODS
    assert remembered(times, NOW + PERIODS * PERIOD_SECONDS) == 0


@given(st.lists(lengths, min_size=1, max_size=60), st.integers(1, 100))
def test_a_percentile_of_one_week_is_the_exact_one_but_for_its_bucket(some: list[int], percent: int) -> None:
    times = with_runs(RunTimes(), [Run(QUEUE, seconds, NOW) for seconds in some])
    rank = -(-percent * len(some) // 100)
    assert within(times, percent, NOW) == bound_of(sorted(some)[rank - 1])


@given(histories, st.integers(1, 99))
def test_a_higher_percentile_takes_no_less_time(times: RunTimes, percent: int) -> None:
    assert within(times, percent, NOW) <= within(times, percent + 1, NOW)


def test_a_week_counts_half_as_much_as_the_next() -> None:
    last_week = [Run(QUEUE, 1000, NOW - PERIOD_SECONDS)] * 4
    times = with_runs(RunTimes(), [*last_week, *[Run(QUEUE, 10, NOW)] * 3])
    assert within(times, 50, NOW) == 10, "three count more than four halves"
    assert within(times, 61, NOW) == bound_of(1000)
    assert within(times, 50, NOW + 7 * PERIOD_SECONDS) == 10, "what is forgotten doesn't count"


def test_a_clock_that_was_wrong_once_spoils_nothing() -> None:
    good = with_runs(RunTimes(), [Run(QUEUE, 60, NOW - PERIOD_SECONDS)])
    spoiled = RunTimes({**good.periods, 2 * NOW // PERIOD_SECONDS: {600: 5}})
    assert so_far(spoiled, NOW) == good
    assert so_far(good, NOW) == good


def test_few_runs_say_nothing() -> None:
    nine = with_runs(RunTimes(), [Run(QUEUE, 60, NOW)] * (LEAST_RUNS - 1))
    assert Estimates({QUEUE: nine}, 95, NOW).get(QUEUE) is None
    ten = with_runs(nine, [Run(QUEUE, 3600, NOW)])
    found = Estimates({QUEUE: ten}, 90, NOW).get(QUEUE)
    assert found is not None
    assert found.text == "90 % of 10 earlier runs of queue research/gpu ended within 1m"
    assert Estimates({QUEUE: ten}, 90, NOW).get("research/other") is None
    assert Estimates({QUEUE: ten}, 90, NOW + PERIODS * PERIOD_SECONDS).get(QUEUE) is None, "long ago"


@given(histories)
def test_the_object_says_the_same(times: RunTimes) -> None:
    tree = {
        "apiVersion": "windlass.dev/v1",
        "kind": "RunTimeHistory",
        "metadata": {"name": "gpu", "namespace": "research"},
        "periods": periods_of(times),
    }
    read = decode_object(tree)
    assert run_times_of(read) == times  # type: ignore[arg-type]
    assert decode_object(to_tree(read)) == read
