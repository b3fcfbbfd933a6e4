"""Reason and message of a condition: autoscalers add nodes for one reason only, and `why` reads the code back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.apply.messages import MAX_MESSAGE_LENGTH, code_of_message, condition_message, condition_reason
from windlass.model.verdict import Limit, ReasonCount, Verdict

COUNTS = (ReasonCount("GPU_FULL", "Insufficient nvidia.com/gpu", 3),)
CODES = st.sampled_from(["GPU_FULL", "KUEUE_QUOTA_INSUFFICIENT", "INVALID_OBJECT", "A1_B2", "GANG_INCOMPLETE"])
VERDICTS = st.builds(
    Verdict,
    code=CODES,
    nodes=st.integers(0, 5000),
    counts=st.sampled_from([(), COUNTS]),
    detail=st.sampled_from(["", "its claim is missing"]) | st.text(min_size=4000, max_size=5000),
    limits=st.sampled_from([(), (Limit("quota", "over quota in its queue"),)]),
)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("KUEUE_QUOTA_INSUFFICIENT", "WaitingForQuota"),
        ("RESOURCE_QUOTA_EXCEEDED", "WaitingForQuota"),
        ("REQUEUE_BACKOFF", "WaitingForQuota"),
        ("QUEUE_BEHIND_HEAD", "WaitingForQuota"),
        ("GANG_INCOMPLETE", "WaitingForGang"),
        ("RESERVED_FOR_OTHERS", "WaitingBehindPlan"),
        ("WAITING_FOR_PREEMPTION", "WaitingForVictims"),
        ("KUEUE_QUEUE_MISSING", "Misconfigured"),
        ("KUEUE_QUOTA_MISCONFIGURED", "Misconfigured"),
        ("KUEUE_FLAVOR_MISMATCH", "Misconfigured"),
        ("INVALID_OBJECT", "Misconfigured"),
        ("POLICY_DENIED", "Misconfigured"),
        ("NODE_NOT_UNDERSTOOD", "Misconfigured"),
        ("JOB_SUSPENDED", "Suspended"),
        ("DURATION_EXCEEDED", "Suspended"),
        ("NOT_IMPLEMENTED", "NotImplemented"),
        ("GPU_FULL", "Unschedulable"),
        ("GPU_FRAGMENTED", "Unschedulable"),
        ("CPU_MEM_INSUFFICIENT", "Unschedulable"),
        ("KUEUE_TOPOLOGY_NOFIT", "Unschedulable"),
    ],
)
@pytest.mark.parametrize("counts", [(), COUNTS])
def test_only_a_lack_of_capacity_is_unschedulable(code: str, reason: str, counts: tuple[ReasonCount, ...]) -> None:
    assert condition_reason(Verdict(code, 3, counts=counts)) == reason


@pytest.mark.parametrize(("counts", "reason"), [((), "WaitingForVolume"), (COUNTS, "Unschedulable")])
def test_more_nodes_help_a_claim_only_where_nodes_were_counted(counts: tuple[ReasonCount, ...], reason: str) -> None:
    assert condition_reason(Verdict("STORAGE_INSUFFICIENT", 3, counts=counts)) == reason


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        (
            Verdict("GPU_FULL", 3, counts=COUNTS),
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. (GPU_FULL)",
        ),
        (Verdict("GPU_FULL"), "no nodes available to schedule pods (GPU_FULL)"),
        (
            Verdict("INVALID_OBJECT", 3, detail="spec.priority is no number"),
            "0/3 nodes are available: spec.priority is no number (INVALID_OBJECT)",
        ),
        (
            Verdict("KUEUE_QUOTA_INSUFFICIENT", 3, detail="2 of team b's GPUs are borrowed"),
            "0/3 nodes are available: its queue has too little quota left; "
            "`windlass why` has the numbers (KUEUE_QUOTA_INSUFFICIENT)",
        ),
        (
            Verdict("GPU_FULL", 3, counts=COUNTS, limits=(Limit("resource", "it lacks 2 GPUs"),)),
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. it lacks 2 GPUs (GPU_FULL)",
        ),
        (
            Verdict("GPU_FULL", 3, counts=COUNTS, detail="secret", limits=(Limit("resource", "it lacks 2 GPUs"),)),
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. it lacks 2 GPUs (GPU_FULL)",
        ),
    ],
)
def test_a_message_begins_as_kube_schedulers_does_and_ends_with_the_code(verdict: Verdict, message: str) -> None:
    assert condition_message(verdict) == message


@given(verdict=VERDICTS)
def test_every_message_has_kube_schedulers_words_and_a_code_that_is_read_back(verdict: Verdict) -> None:
    message = condition_message(verdict)
    assert code_of_message(message) == verdict.code
    assert len(message) <= MAX_MESSAGE_LENGTH == 4096
    assert message.count("nodes are available") + message.count("no nodes available") == 1


@given(length=st.integers(3900, 4300))
def test_a_message_is_cut_to_what_fits_and_no_shorter(length: int) -> None:
    message = condition_message(Verdict("INVALID_OBJECT", 3, detail="x" * length))
    whole = len("0/3 nodes are available:  (INVALID_OBJECT)") + length
    assert len(message) == min(whole, 4096)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "0/3 nodes are available: 3 Insufficient cpu.",
        "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No victims.",
        "it waits (GPU_FULL) for another",
        "it waits (gpu_full)",
        "it waits (1)",
        "(GPU_FULL)",
    ],
)
def test_other_schedulers_messages_have_no_code(message: str) -> None:
    assert code_of_message(message) == ""
