"""How long workloads run at most, and when running ones end."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from windlass.model.run_time_history import PERIOD_SECONDS, RunTimes
from windlass.model.workload import Admission, Workload
from windlass.placement.timeplan.run_limits import (
    PlannedStartSettings,
    expected_end,
    run_estimate_of,
    run_limit_of,
    with_run_estimates,
)

NOW = 3000 * PERIOD_SECONDS
PLAIN = Workload("team/w", "Job", (), queue_name="q")
KNOWN = {"team/q": RunTimes({3000: {60: 10}})}
SETTINGS = PlannedStartSettings()


def test_defaults_are_those_that_the_documentation_names() -> None:
    assert (SETTINGS.depth, SETTINGS.reservation_lead, SETTINGS.percentile) == (32, 24 * 3600, 95)


def test_estimates_need_runs_and_a_percentile() -> None:
    assert with_run_estimates(SETTINGS, {}, NOW) is SETTINGS
    none = replace(SETTINGS, percentile=0)
    assert with_run_estimates(none, KNOWN, NOW) is none
    assert with_run_estimates(SETTINGS, KNOWN, NOW).run_estimates is not None


@pytest.mark.parametrize(
    ("declared", "enforced", "history", "limit"),
    [
        (0, True, 50, 1),
        (0, False, None, 1),
        (0, False, 50, 50),
        (1, True, None, 1),
        (2, True, None, 2),
        (10**10, True, None, 10**10),
        (10**11, True, None, 10**10),
        (10**11, False, 5, 10**10),
        (None, True, 10**11, 10**10),
        (None, False, 0, None),
    ],
)
def test_limits(declared: int | None, enforced: bool, history: int | None, limit: int | None) -> None:
    settings = replace(SETTINGS, history={} if history is None else {"team/q": history})
    assert run_limit_of(replace(PLAIN, max_run_seconds=declared, run_limit_enforced=enforced), settings) == limit


def test_history_is_of_the_queue() -> None:
    settings = replace(SETTINGS, history={"team/q": 50, "team/": 70})
    assert run_limit_of(replace(PLAIN, queue_name="other"), settings) is None
    assert run_limit_of(replace(PLAIN, queue_name=""), settings) is None


def test_an_estimate_counts_only_where_nothing_else_does() -> None:
    settings = with_run_estimates(SETTINGS, KNOWN, NOW)
    found = run_estimate_of(PLAIN, settings)
    assert found is not None
    assert (found.queue, found.seconds) == ("team/q", 60)
    assert run_estimate_of(PLAIN, SETTINGS) is None
    assert run_estimate_of(replace(PLAIN, max_run_seconds=5), settings) is None
    assert run_estimate_of(replace(PLAIN, queue_name=""), settings) is None
    assert run_estimate_of(PLAIN, replace(settings, history={"team/q": 7})) is None


RUNS = replace(PLAIN, max_run_seconds=100, started_at=1000, admission=Admission("q", reserved_at=900))


@pytest.mark.parametrize(
    ("now", "end"), [(1000, 1100), (1099, 1100), (1100, 1101), (1101, 1102), (1160, 1161), (1161, None)]
)
def test_an_end_is_always_ahead_and_unknown_once_it_is_long_overdue(now: int, end: int | None) -> None:
    assert expected_end(RUNS, SETTINGS, now) == end


def test_what_this_decision_stops_ends_now_however_late() -> None:
    declared = replace(RUNS, run_limit_enforced=False)
    assert expected_end(declared, SETTINGS, 1099) == 1100
    assert expected_end(declared, SETTINGS, 9999) == 10_000
    by_history = replace(RUNS, max_run_seconds=None, run_limit_enforced=False)
    assert expected_end(by_history, replace(SETTINGS, history={"team/q": 100}), 9999) is None


def test_without_a_start_it_counts_from_its_reservation() -> None:
    assert expected_end(replace(RUNS, started_at=0), SETTINGS, 950) == 1000
    assert expected_end(replace(RUNS, started_at=0, admission=None), SETTINGS, 950) is None
    assert expected_end(replace(RUNS, started_at=0, admission=Admission("q")), SETTINGS, 950) is None
    assert expected_end(replace(RUNS, max_run_seconds=None), SETTINGS, 950) is None
    assert expected_end(replace(RUNS, started_at=-50), SETTINGS, 10) == 100, "a start before 1970 counts as 1970"
