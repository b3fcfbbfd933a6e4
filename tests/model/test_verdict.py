"""What a verdict says, to the operator and to the workload's owner."""

from __future__ import annotations

import pytest

from windlass.model.times import parse_timestamp
from windlass.model.verdict import (
    CODES_WITH_PUBLIC_DETAIL,
    Change,
    Limit,
    MoveOffer,
    ReasonCount,
    Relief,
    Verdict,
)

SECRETS = ("blue/secret", "blue-node", "blue-queue", "dedicated=blue")
FULL = Verdict(
    "GPU_FRAGMENTED",
    3,
    detail="waits behind blue/secret, the head of ClusterQueue q",
    outlook="planned to start at noon, when blue/secret has ended",
    limits=(Limit("fragmentation", "22 GPUs are free in pieces", behind="blue/secret"),),
    relief=Relief(2, {"blue-queue": 2}, ("blue/secret", "blue/secret-2"), None, "no limits"),
    changes=(
        Change(
            "toleration",
            "with a toleration for dedicated=blue:NoSchedule",
            public_text="with a toleration for the taint dedicated",
        ),
        Change("gpus", "with 7 GPUs a pod instead of 8"),
    ),
    moves=(MoveOffer("blue/secret-0", "blue-node", "other-node", 3_600_000),),
)


def test_the_operator_is_told_everything_in_one_sentence() -> None:
    assert FULL.message == (
        "22 GPUs are free in pieces; waits behind blue/secret, the head of ClusterQueue q; "
        "planned to start at noon, when blue/secret has ended; "
        "it could start once 2 running workloads end (no limits): blue/secret, blue/secret-2; "
        "moving blue/secret-0 from blue-node to other-node would make room (and lose 1.0 GPU-hours of work); "
        "it would start now with a toleration for dedicated=blue:NoSchedule"
    )


def test_the_owner_is_told_nothing_of_others() -> None:
    assert FULL.public_message == (
        "22 GPUs are free in pieces; it could start once 2 running workloads end (no limits); "
        "it would start now with a toleration for the taint dedicated"
    )
    assert not any(secret in FULL.public_message for secret in SECRETS)


def test_without_limits_the_owner_sees_counts_of_nodes_or_the_code_never_the_detail() -> None:
    counted = Verdict("GPU_FULL", 3, (ReasonCount("GPU_FULL", "Insufficient nvidia.com/gpu", 3),))
    assert counted.public_message == "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    told = Verdict("QUEUE_BEHIND_HEAD", 3, detail="waits behind blue/secret")
    assert told.public_message == "a workload ahead of it in its StrictFIFO queue waits and has to start first"
    assert Verdict("SOMETHING_NEW", 3, detail="blue/secret").public_message == "it waits (SOMETHING_NEW)"


@pytest.mark.parametrize("code", sorted(CODES_WITH_PUBLIC_DETAIL))
def test_what_concerns_only_its_own_objects_is_said_by_name(code: str) -> None:
    assert Verdict(code, 3, detail="the claim data doesn't exist").public_message == "the claim data doesn't exist"


def test_a_planned_start_takes_the_place_of_whose_end_would_help() -> None:
    start = parse_timestamp("2026-01-01T01:00:00Z")
    planned = Verdict("GPU_FULL", 1, planned_start=start, ahead=1, relief=Relief(1, {}, ("a/b",), start))
    assert "once 1 running workload" not in planned.message
    assert planned.public_message.endswith(
        "planned to start at 2026-01-01T01:00:00Z; 1 workload of its queue waits ahead of it"
    )


def test_one_workload_that_ends_and_when() -> None:
    relief = Relief(1, {}, (), parse_timestamp("2026-01-01T01:00:00Z"), "by run-time limits")
    assert relief.text == "it could start once 1 running workload ends, at 2026-01-01T01:00:00Z (by run-time limits)"


def test_many_names_are_counted() -> None:
    relief = Relief(5, {}, tuple(f"a/{i}" for i in range(5)))
    assert relief.text.endswith(": a/0, a/1, a/2 and 2 more")


def test_infeasible_is_said() -> None:
    assert (
        "it would not fit even if nothing else ran" in Verdict("REQUEST_EXCEEDS_CLUSTER", 1, is_infeasible=True).message
    )
