"""Decay of past usage, in whole numbers, and what it makes of the order of a usage-based queue."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.queueing.builders import NOW, admitted, cell, decide, evicted, queue, running, system, waiting

from windlass.model.queue import LocalQueue, PreemptionPolicy
from windlass.queueing.config import QueueConfig, UsageHistoryConfig
from windlass.queueing.quota_node import AdmittedWorkload
from windlass.queueing.quota_tree import QuotaTree
from windlass.queueing.usage_history import INFINITE_USAGE, LocalQueueUsage, decay_factor

HOUR = UsageHistoryConfig(half_life_seconds=3600, sampling_seconds=3600)
CPU, MEMORY, GPU = ("default", "cpu"), ("default", "memory"), ("default", "nvidia.com/gpu")


@given(st.integers(0, 10_000_000), st.integers(1, 1_000_000))
def test_decay_is_a_power_of_one_half(elapsed: int, half_life: int) -> None:
    assert abs(float(decay_factor(elapsed, half_life)) - 0.5 ** (elapsed / half_life)) < 1e-8


@given(st.integers(1, 1_000_000), st.integers(1, 100_000), st.integers(1, 1000))
def test_more_time_leaves_less(elapsed: int, half_life: int, more: int) -> None:
    assert decay_factor(elapsed + more, half_life) <= decay_factor(elapsed, half_life) <= 1


def test_without_a_half_life_only_the_present_counts() -> None:
    assert decay_factor(1, 0) == 0
    assert decay_factor(0, 0) == 1
    assert decay_factor(-1, 0) == 1


@pytest.mark.parametrize("half_lives", [1, 2, 3, 64])
def test_whole_half_lives_are_exact(half_lives: int) -> None:
    assert decay_factor(half_lives * 7, 7) == Fraction(1, 2**half_lives)


def test_after_very_long_nothing_is_left() -> None:
    assert decay_factor(65 * 7, 7) == 0
    assert decay_factor(10**9, 7) == 0


@given(st.integers(1, 63))
def test_parts_of_a_half_life_are_as_exact_as_the_fixed_point(part: int) -> None:
    exact = 2 ** (-part / 64)
    assert abs(float(decay_factor(part, 64)) - exact) < 1e-15


def usage_of(config: UsageHistoryConfig, now: int = NOW, **local: object) -> LocalQueueUsage:
    made = LocalQueue("team/q", "q", **local)  # type: ignore[arg-type]
    return LocalQueueUsage(config, {"team/q": made}, now)


def test_what_was_consumed_counts_half_after_a_half_life() -> None:
    consumed = {"cpu": 8000}
    assert usage_of(HOUR, consumed=consumed, consumed_at=NOW).usage("team/q") == 8000 * 1000
    assert usage_of(HOUR, consumed=consumed, consumed_at=NOW - 3600).usage("team/q") == 4000 * 1000
    assert usage_of(HOUR, consumed=consumed).usage("team/q") == 8000 * 1000, "without a time it doesn't decay"


def test_usage_is_divided_by_the_weight() -> None:
    consumed = {"cpu": 8000}
    assert usage_of(HOUR, consumed=consumed, fair_weight_milli=2000).usage("team/q") == 4000 * 1000
    assert usage_of(HOUR, consumed=consumed, fair_weight_milli=1).usage("team/q") == 8000 * 1000 * 1000
    assert usage_of(HOUR, consumed=consumed, fair_weight_milli=0).usage("team/q") == INFINITE_USAGE
    assert usage_of(HOUR).usage("team/other") == 0


def test_resources_have_weights_and_units_of_their_own() -> None:
    weights = UsageHistoryConfig(3600, 3600, {"cpu": 500, "memory": 0})
    every = {"cpu": 2000, "memory": 77, "nvidia.com/gpu": 3000, "example.com/nic": 5}
    assert usage_of(weights, consumed=every).usage("team/q") == 2000 * 500 + 3000 * 1000 + 5000 * 1000


def test_an_admission_counts_as_one_sampling_interval() -> None:
    history = usage_of(HOUR)
    history.charge("team/q", {CPU: 2000, GPU: 1000})
    assert history.usage("team/q") == 3000 * 1000 / 2
    history.charge("team/q", {CPU: 2000})
    assert history.usage("team/q") == 5000 * 1000 / 2
    history.charge("team/unknown", {CPU: 2000})
    assert history.usage("team/unknown") == 0
    present = usage_of(UsageHistoryConfig(half_life_seconds=0))
    present.charge("team/q", {CPU: 2000})
    assert present.usage("team/q") == 0


def test_what_runs_has_been_consuming_since_the_history_was_written() -> None:
    node = QuotaTree(system([queue("q", cell(9))])).queues["q"]
    one = AdmittedWorkload(running("r", "q", 2), node, {CPU: 2000, MEMORY: 1}, NOW)
    history = usage_of(HOUR, consumed={"cpu": 1000}, consumed_at=NOW - 3600)
    history.add_admitted(one)
    assert history.usage("team/q") == (1000 + 3000) * 1000 / 2
    history.add_admitted(one)
    assert history.usage("team/q") == (1000 + 6000) * 1000 / 2
    unwritten = usage_of(HOUR)
    unwritten.add_admitted(one)
    assert unwritten.usage("team/q") == 0
    elsewhere = LocalQueueUsage(HOUR, {}, NOW)
    elsewhere.add_admitted(one)
    assert elsewhere.usage("team/q") == 0


def two_users(**more: object) -> object:
    local = {f"team/{name}": LocalQueue(f"team/{name}", "q", consumed_at=NOW) for name in ("a", "b")}
    return system([queue("q", cell(4), usage_based=True, **more)], local_queues=local)  # type: ignore[arg-type]


def test_each_admission_makes_its_user_wait_for_the_other() -> None:
    crowd = [waiting(f"{name}{number}", name, 1, created=number) for name in "ab" for number in range(3)]
    outcomes = decide(two_users(), crowd, QueueConfig(history=HOUR))  # type: ignore[arg-type]
    assert list(admitted(outcomes)) == ["a0", "b0", "a1", "b1"]
    plain = decide(two_users(), [*crowd[:3], *(waiting(f"b{n}", "b", 1, created=9) for n in range(3))])  # type: ignore[arg-type]
    assert list(admitted(plain)) == ["a0", "a1", "a2", "b0"]


def test_among_equal_users_priority_and_age_decide() -> None:
    crowd = [waiting("old", "a", 4, created=1), waiting("urgent", "b", 4, created=9, priority=1)]
    assert list(admitted(decide(two_users(), crowd, QueueConfig(history=HOUR)))) == ["urgent"]  # type: ignore[arg-type]


def test_the_heavier_user_is_preempted_first() -> None:
    """Alike in all else: the later one would go first, but its user has consumed less."""
    policy = PreemptionPolicy(within_cluster_queue="LowerPriority")
    local = {
        "team/heavy": LocalQueue("team/heavy", "q", consumed={"cpu": 9000}, consumed_at=NOW),
        "team/light": LocalQueue("team/light", "q", consumed={"cpu": 1000}, consumed_at=NOW),
    }
    by_use, plain = (
        system([queue("q", cell(3), usage_based=based, preemption=policy)], local_queues=local)
        for based in (True, False)
    )

    def work(name: str, local_queue: str, **more: object) -> object:
        made = running(name, "q", 1, **more)
        return msgspec.structs.replace(made, queue_name=local_queue)

    crowd = [
        work("older", "heavy", reserved_at=NOW - 500),
        work("newer", "light", reserved_at=NOW - 5),
        work("urgent", "heavy", reserved_at=NOW - 5, priority=1),
    ]
    asks = waiting("w", "light", 1, priority=2)
    config = QueueConfig(history=HOUR)
    assert evicted(decide(by_use, [*crowd, asks], config)) == {"older": "InClusterQueue"}  # type: ignore[list-item]
    assert evicted(decide(plain, [*crowd, asks], config)) == {"newer": "InClusterQueue"}  # type: ignore[list-item]
    leaving = [*crowd[:1], work("newer", "light", evicting=True), crowd[2]]
    outcomes = decide(by_use, [*leaving, asks], config)  # type: ignore[list-item]
    assert admitted(outcomes)["w"].after == ("team/newer",), "what is terminating anyway stays in front"
