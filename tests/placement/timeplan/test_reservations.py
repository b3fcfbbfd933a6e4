"""Calendar reservations: which workloads they keep out, which they let in, and what the plan says."""

from __future__ import annotations

from typing import Any

from tests.placement.timeplan.scenarios import events, job, scenario, starts

from windlass.cli.plan_document import plan_document
from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.times import parse_timestamp
from windlass.planner import plan_objects
from windlass.simulate.clock import virtual_timestamp

HOUR = 3600


def reservation(start: int, end: int, **spec: Any) -> dict[str, Any]:
    """Of one whole node for the namespace `vip`; times in seconds of the scenario."""
    spec.setdefault("resources", {"nvidia.com/gpu": 8})
    spec.setdefault("who", {"namespaces": ["vip"]})
    return {
        "apiVersion": "windlass.dev/v1",
        "kind": "Reservation",
        "metadata": {"name": "r"},
        "spec": {"from": virtual_timestamp(start), "until": virtual_timestamp(end), **spec},
    }


def bound(outcome: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for event in events(outcome, "bind"):
        found.setdefault(event.subject.partition("/")[2], event.at)
    return found


def test_within_it_only_holders_start_there() -> None:
    outcome = scenario(
        [
            {"at": "10s", "submit": [{"pod": "other", "gpus": 1}]},
            {"at": "20s", "submit": [{"pod": "holder", "namespace": "vip", "gpus": 8}]},
            {"at": "30m"},
        ],
        queues=[],
        objects=[reservation(0, HOUR)],
    )
    assert bound(outcome) == {"holder": 20}


def test_who_waits_for_its_end_does_not_keep_its_holders_out() -> None:
    outcome = scenario(
        [
            {"at": "10s", "submit": [{"group": "other", "pods": 2, "gpus": 4}]},
            {"at": "20s", "submit": [{"group": "holder", "namespace": "vip", "pods": 2, "gpus": 4}]},
            {"at": "30m"},
        ],
        queues=[],
        objects=[reservation(0, HOUR)],
    )
    assert set(bound(outcome)) == {"holder-0", "holder-1"}


def test_when_it_is_over_its_room_is_free() -> None:
    timeline = [{"at": "10s", "submit": [{"pod": "other", "gpus": 1}]}, {"at": "1h"}]
    assert bound(scenario(timeline, queues=[], objects=[reservation(0, HOUR)])) == {"other": HOUR}


def test_before_it_only_what_ends_in_time_starts() -> None:
    outcome = scenario(
        [
            {
                "at": "0s",
                "submit": [job("endless", 2, None), job("long", 2, HOUR + 1), job("short", 2, HOUR)],
            },
            {"at": "30m"},
        ],
        objects=[reservation(HOUR, 2 * HOUR)],
    )
    assert starts(outcome) == {"short": 0}
    said = [event.text for event in events(outcome, "hold") if event.subject == "default/long"]
    assert said[0].startswith("RESERVED_FOR_OTHERS: it would fit now, but Reservation r holds n-0 from")


def test_one_that_is_far_off_closes_nothing_yet() -> None:
    timeline = [{"at": "0s", "submit": [job("endless", 2, None)]}]
    far = [reservation(3 * HOUR, 4 * HOUR)]
    assert starts(scenario(timeline, objects=far, config={"backfill": {"reservationLead": "2h"}})) == {"endless": 0}
    assert starts(scenario(timeline, objects=far, config={"backfill": {"reservationLead": "4h"}})) == {}


def test_what_holders_run_counts_as_taken_from_it() -> None:
    """Four of eight GPUs are reserved; once the holder runs on four, the others get the rest."""
    outcome = scenario(
        [
            {"at": "10s", "submit": [{"pod": "holder", "namespace": "vip", "gpus": 4}]},
            {"at": "20s", "submit": [{"pod": "other", "gpus": 4}]},
            {"at": "30s", "submit": [{"pod": "one-more", "gpus": 1}]},
        ],
        queues=[],
        objects=[reservation(0, HOUR, resources={"nvidia.com/gpu": 1}, count=4)],
    )
    assert bound(outcome) == {"holder": 10, "other": 20}


def _plan(*objects: dict[str, Any]) -> list[dict[str, Any]]:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {
            "capacity": {"nvidia.com/gpu": 8, "pods": 10, "cpu": 8},
            "allocatable": {"nvidia.com/gpu": 8, "pods": 10, "cpu": 8},
        },
    }
    now = parse_timestamp(virtual_timestamp(0).replace("Z", "+00:00"))
    plan, notes = plan_objects([decode_object(tree) for tree in (node, *objects)], Settings(), now)
    decisions: list[dict[str, Any]] = plan_document(plan, now, notes)["decisions"]
    return decisions


def test_the_plan_says_what_is_reserved() -> None:
    assert _plan(reservation(HOUR, 2 * HOUR)) == [
        {
            "decision": "reserve",
            "workload": "reservation/r",
            "domain": "n",
            "from": virtual_timestamp(HOUR),
            "until": virtual_timestamp(2 * HOUR),
            "nodes": {"n": 1},
        }
    ]


def test_a_reservation_that_finds_too_little_room_says_so() -> None:
    reserved, held = _plan(reservation(HOUR, 2 * HOUR, count=3))
    assert reserved["nodes"] == {"n": 1}
    assert (held["decision"], held["workload"]) == ("hold", "reservation/r")
    assert held["message"] == "Reservation r found room for 1 of 3 pods"


def test_one_that_is_over_is_not_mentioned() -> None:
    assert _plan(reservation(-2 * HOUR, -HOUR)) == []
