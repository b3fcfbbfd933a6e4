"""Planned starts, what they rest on, and who may run ahead: examples on one or two nodes."""

from __future__ import annotations

import msgspec
import pytest
from tests.placement.timeplan.scenarios import events, job, plans, scenario, starts

from windlass.model.workload import Admission, Workload
from windlass.placement.timeplan.run_limits import PlannedStartSettings, expected_end, run_limit_of

HOUR = 3600
PLAIN = Workload("team/w", "Job", (), queue_name="q")


def test_one_that_ends_in_time_runs_ahead_and_one_that_does_not_waits() -> None:
    outcome = scenario(
        [
            {"at": "0s", "submit": [job("first", 4, HOUR)]},
            {"at": "1s", "submit": [job("large", 8, HOUR)]},
            {"at": "2s", "submit": [job("long", 2, HOUR), job("short", 2, HOUR - 2)]},
            {"at": "3h"},
        ]
    )
    assert starts(outcome) == {"first": 0, "short": 2, "large": HOUR, "long": 2 * HOUR}
    assert plans(outcome)["large"][0] == (1, HOUR)


def test_what_is_placed_beside_the_plan_delays_nobody() -> None:
    """The large job needs all of one node; a job without a limit goes to the other one."""
    outcome = scenario(
        [
            {"at": "0s", "submit": [job("a", 6, HOUR), job("b", 6, 3 * HOUR)]},
            {"at": "1s", "submit": [job("large", 8, HOUR)]},
            {"at": "2s", "submit": [job("endless", 2, None)]},
            {"at": "2h"},
        ],
        nodes=2,
    )
    assert starts(outcome) == {"a": 0, "b": 0, "endless": 2, "large": HOUR}
    [where] = [event.text for event in events(outcome, "admit") if event.subject == "default/endless"]
    [beside] = [event.text for event in events(outcome, "admit") if event.subject == "default/b"]
    assert where[-3:] == beside[-3:]


def test_the_plan_is_kept_in_quota_as_well_as_in_room() -> None:
    """There is room on the second node for ever, but the queue's quota is planned for."""
    outcome = scenario(
        [
            {"at": "0s", "submit": [job("first", 4, HOUR)]},
            {"at": "1s", "submit": [job("large", 8, HOUR)]},
            {"at": "2s", "submit": [job("long", 2, 2 * HOUR)]},
            {"at": "90m"},
        ],
        nodes=2,
        queues=[{"name": "team", "quota": {"gpu": 8}}],
    )
    assert starts(outcome) == {"first": 0, "large": HOUR}
    [said] = {event.text for event in events(outcome, "hold") if event.at == 2 and "long" in event.subject}
    assert said.startswith("RESERVED_FOR_OTHERS: it would fit now, but it would delay default/large")


def test_another_queue_does_not_run_ahead_either() -> None:
    outcome = scenario(
        [
            {"at": "0s", "submit": [job("first", 4, HOUR)]},
            {"at": "1s", "submit": [job("large", 8, HOUR)]},
            {"at": "2s", "submit": [{**job("stranger", 4, 2 * HOUR), "queue": "other"}]},
            {"at": "90m"},
        ],
        queues=[{"name": "team", "quota": {"gpu": 8}}, {"name": "other", "quota": {"gpu": 8}}],
    )
    assert starts(outcome) == {"first": 0, "large": HOUR}


def test_who_preempts_takes_what_is_its_right() -> None:
    """A plan of lower priority doesn't bind a workload that may evict."""
    queue = {"name": "team", "quota": {"gpu": 8}, "preemption": {"withinClusterQueue": "LowerPriority"}}
    outcome = scenario(
        [
            {"at": "0s", "submit": [job("first", 4, HOUR)]},
            {"at": "1s", "submit": [job("large", 8, HOUR)]},
            {"at": "2s", "submit": [job("urgent", 8, 2 * HOUR, priority=10)]},
            {"at": "10s"},
        ],
        queues=[queue],
    )
    assert starts(outcome) == {"first": 0, "urgent": 2}


def test_one_past_its_limit_is_taken_to_end_soon_and_then_has_no_known_end() -> None:
    settings = PlannedStartSettings()
    runs = msgspec.structs.replace(
        PLAIN, max_run_seconds=100, started_at=1000, admission=Admission("q", reserved_at=1000)
    )
    assert expected_end(runs, settings, 1050) == 1100
    assert expected_end(runs, settings, 1130) == 1131
    assert expected_end(runs, settings, 1161) is None
    assert expected_end(msgspec.structs.replace(runs, started_at=0), settings, 1050) == 1100
    assert expected_end(msgspec.structs.replace(runs, max_run_seconds=None), settings, 1050) is None


@pytest.mark.parametrize(
    ("declared", "enforced", "known", "expected"),
    [
        (None, True, None, None),
        (None, True, 50, 50),
        (10, True, 50, 10),
        (10, False, 50, 50),
        (90, False, 50, 90),
        (10, False, None, 10),
    ],
)
def test_a_limit_that_nobody_enforces_is_not_believed_against_history(
    declared: int | None, enforced: bool, known: int | None, expected: int | None
) -> None:
    settings = PlannedStartSettings(history={} if known is None else {"team/q": known})
    workload = msgspec.structs.replace(PLAIN, max_run_seconds=declared, run_limit_enforced=enforced)
    assert run_limit_of(workload, settings) == expected


def test_new_queued_work_does_not_delay_the_planned_start_of_an_older_gang_in_no_queue() -> None:
    """Also where something in a queue that waits is older than the gang, so that all queued work is decided first."""
    timeline = [
        {"at": "0s", "submit": [job("runs", 4, 3600), job("too-large", 16, 3600)]},
        {"at": "1s", "submit": [{"group": "gang", "pods": 2, "gpus": 4, "limit": "1h", "duration": "1h"}]},
        {"at": "2s", "submit": [job("short", 2, 600), job("long", 2, 7200)]},
        {"at": "3h"},
    ]
    outcome = scenario(timeline, queues=[{"name": "team", "quota": {"gpu": 32}}])
    assert starts(outcome)["gang"] == 3600
    assert starts(outcome)["short"] == 2
    assert starts(outcome)["long"] > 3600
