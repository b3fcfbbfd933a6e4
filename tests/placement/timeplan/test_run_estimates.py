"""Run-time estimates from earlier runs of a queue, where workloads declare no limit."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.placement.timeplan.scenarios import events, job, plans, scenario, starts

from windlass.model.run_time_history import PERIOD_SECONDS, RunTimes
from windlass.model.workload import Admission, Workload
from windlass.placement.timeplan.run_limits import (
    PlannedStartSettings,
    expected_end,
    run_limit_of,
    with_run_estimates,
)
from windlass.simulate.scenario import Outcome

NOW = 3000 * PERIOD_SECONDS
WEEK = NOW // PERIOD_SECONDS
PLAIN = Workload("team/w", "Job", (), queue_name="q")
COLLECTED = {"team/q": RunTimes({WEEK: {60: 10, 600: 10}})}


def known(**settings: Any) -> PlannedStartSettings:
    return with_run_estimates(PlannedStartSettings(**settings), COLLECTED, NOW)


def test_it_counts_only_where_nothing_else_does() -> None:
    assert run_limit_of(PLAIN, known()) == 600
    assert run_limit_of(PLAIN, known(percentile=50)) == 60
    assert run_limit_of(PLAIN, known(percentile=0)) is None
    assert run_limit_of(PLAIN, known(history={"team/q": 7200})) == 7200, "configured beats collected"
    declared = msgspec.structs.replace(PLAIN, max_run_seconds=30, run_limit_enforced=False)
    assert run_limit_of(declared, known()) == 30, "what it states is enforced at its end"
    deadline = msgspec.structs.replace(PLAIN, max_run_seconds=9000, run_limit_enforced=True)
    assert run_limit_of(deadline, known()) == 9000
    assert run_limit_of(msgspec.structs.replace(PLAIN, queue_name=""), known()) is None
    assert run_limit_of(msgspec.structs.replace(PLAIN, queue_name="other"), known()) is None


def test_what_runs_for_longer_than_those_before_it_has_no_known_end() -> None:
    running = msgspec.structs.replace(PLAIN, admission=Admission("team"), started_at=NOW - 500)
    assert expected_end(running, known(), NOW) == NOW + 100
    assert expected_end(running, known(), NOW + 1000) is None


HISTORY = {
    "apiVersion": "windlass.dev/v1",
    "kind": "RunTimeHistory",
    "metadata": {"name": "team", "namespace": "default"},
    "periods": [{"from": "2026-01-01T00:00:00Z", "runs": {"3584": 42}}],
}


def crowd(**more: Any) -> Outcome:
    """One job runs, a large one waits, a small one could start before it; none has a limit."""
    timeline = [
        {"at": "0s", "submit": [job("first", 4, None, duration="1h")]},
        {"at": "1s", "submit": [job("large", 8, None, duration="1h")]},
        {"at": "2s", "submit": [job("small", 2, None, duration="1h")]},
        {"at": "3h"},
    ]
    return scenario(timeline, **more)


def test_a_start_is_planned_by_it_and_says_so() -> None:
    outcome = crowd(objects=[HISTORY])
    assert plans(outcome)["large"][0] == (1, 3584)
    [said] = [event.text for event in events(outcome, "hold") if event.at == 1]
    basis = "42 earlier runs of queue default/team ended within 59m44s"
    assert f"when default/first ends (95 % of {basis})" in said
    assert starts(outcome)["small"] > starts(outcome)["large"]


def test_without_it_smaller_work_goes_ahead() -> None:
    for more in ({}, {"objects": [HISTORY], "config": {"backfill": {"runTimePercentile": 0}}}):
        outcome = crowd(**more)
        assert "large" not in plans(outcome)
        assert starts(outcome)["small"] == 2


def test_a_run_that_takes_longer_than_planned_is_not_stopped() -> None:
    outcome = crowd(objects=[HISTORY])
    assert starts(outcome)["large"] == 3600, "the first went on past its 3584 seconds"
    assert not events(outcome, "evict")


def test_pods_and_groups_of_a_queue_are_runs_as_well() -> None:
    short = {"queue": "team", "gpus": 1, "duration": "10m"}
    timeline = [
        {"at": "0s", "submit": [{"pod": "p", "count": 6, **short}, {"group": "g", "count": 4, **short}]},
        {"at": "1h", "submit": [job("first", 4, None, duration="10m"), job("large", 8, None)]},
    ]
    [said] = [event.text for event in events(scenario(timeline), "hold") if "large" in event.subject]
    assert "95 % of 10 earlier runs of queue default/team ended within 10m40s" in said


def test_work_of_one_size_is_planned_by_runs_of_that_size() -> None:
    """Minutes and days in one queue: the small job is expected to end when small jobs do."""
    runs = [job(f"s{number}", 1, None, duration="10m") for number in range(8)]
    more = [job(f"t{number}", 1, None, duration="10m") for number in range(2)]
    long = [job(f"l{number}", 8, None, duration="10h") for number in range(1)]
    timeline = [
        {"at": "0s", "submit": runs},
        {"at": "20m", "submit": more},
        {"at": "1h", "submit": long},
        {"at": "20h", "submit": [job("first", 1, None, duration="10m")]},
        {"at": "72001s", "submit": [job("large", 8, None, duration="10m")]},
        {"at": "30h"},
    ]
    [said] = [event.text for event in events(scenario(timeline), "hold") if event.at == 72001]
    assert "95 % of 10 earlier runs of this size of queue default/team ended within 10m40s" in said


def test_a_run_past_its_estimate_is_estimated_again_by_those_that_took_longer() -> None:
    """Of 100 runs 95 took 10 minutes and five 2 hours: after 20 minutes it is one of the five."""
    history = {**HISTORY, "periods": [{**HISTORY["periods"][0], "runs": {"640": 95, "7680": 5}}]}
    timeline = [
        {"at": "0s", "submit": [job("first", 4, None, duration="1h")]},
        {"at": "20m", "submit": [job("large", 8, None, duration="1h")]},
        {"at": "3h"},
    ]
    assert plans(scenario(timeline, objects=[history]))["large"][0] == (1200, 7680)
