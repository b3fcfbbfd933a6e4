"""The closed list of reasons: complete, without doubles, in kube-scheduler's words."""

from __future__ import annotations

import pytest

from windlass.diagnose.causes import CAUSES
from windlass.model import reasons
from windlass.model.reasons import (
    CAPACITY_BITS,
    DEVICE_BITS,
    FIRST_RESOURCE_BIT,
    INTER_POD_BITS,
    NODE_REASONS,
    PERMANENT_BITS,
    POD,
    POD_REASONS,
    RESOURCE_BITS,
    insufficient_bit,
    insufficient_reason,
    reason_of_bit,
)
from windlass.placement.explain.cause import CAUSE_ORDER

RESOURCE_REASONS = [
    insufficient_reason(name)
    for name in ("cpu", "memory", "ephemeral-storage", "pods", "nvidia.com/gpu", "amd.com/gpu", "other.com/x")
]


def test_every_constant_has_its_entry_and_every_entry_its_constant() -> None:
    constants = {name.removeprefix("WHY_"): value for name, value in vars(reasons).items() if name.startswith("WHY_")}
    assert constants == {reason.name: 1 << (reason.bit or 0) for reason in NODE_REASONS}


def test_the_layout_of_the_mask_is_fixed() -> None:
    assert [reason.bit for reason in NODE_REASONS] == list(range(len(NODE_REASONS)))
    assert reason_of_bit(2).name == "TAINT"
    assert insufficient_bit(0) == 1 << 32
    assert insufficient_bit(31) == 1 << 63
    with pytest.raises(ValueError, match="outside"):
        insufficient_bit(32)


def names_of(mask: int) -> set[str]:
    return {reason.name for reason in NODE_REASONS if reason.bit is not None and mask >> reason.bit & 1}


def test_every_reason_of_a_node_is_permanent_or_goes_away_with_capacity() -> None:
    every = sum(1 << reason.bit for reason in NODE_REASONS if reason.bit is not None)
    assert every == PERMANENT_BITS | DEVICE_BITS
    assert PERMANENT_BITS & DEVICE_BITS == 0
    assert INTER_POD_BITS & ~PERMANENT_BITS == 0
    assert PERMANENT_BITS < 1 << FIRST_RESOURCE_BIT
    assert CAPACITY_BITS & ~DEVICE_BITS == RESOURCE_BITS == sum(map(insufficient_bit, range(32)))
    assert names_of(DEVICE_BITS) == {"GPU_ALIGNMENT", "GPU_DEVICE_ROOM", "GPU_UNHEALTHY", "MIG_NO_ROOM"}
    assert names_of(CAPACITY_BITS) == {"GPU_ALIGNMENT", "GPU_DEVICE_ROOM", "MIG_NO_ROOM"}
    # What is wrong with a node without the label is not cured by moving pods.
    assert "SPREAD" in names_of(INTER_POD_BITS)
    assert "SPREAD_MISSING_LABEL" not in names_of(INTER_POD_BITS)


def test_the_kind_says_whether_nodes_are_counted() -> None:
    assert all(reason.kind == POD and reason.bit is None for reason in POD_REASONS)
    assert all(reason.kind != POD for reason in (*NODE_REASONS, *RESOURCE_REASONS))


def test_entries_are_told_apart_and_complete() -> None:
    everything = [*NODE_REASONS, *POD_REASONS, *RESOURCE_REASONS]
    assert len({reason.name for reason in everything}) == len(everything)
    assert len({reason.kube_words for reason in everything}) == len(everything)
    for reason in everything:
        assert reason.kube_words
        assert reason.message
        assert reason.remedy


@pytest.mark.parametrize("reason", [*NODE_REASONS, *POD_REASONS, *RESOURCE_REASONS], ids=lambda reason: reason.name)
def test_why_knows_the_code(reason: reasons.Reason) -> None:
    assert reason.code in CAUSES


@pytest.mark.parametrize("reason", [*NODE_REASONS, *RESOURCE_REASONS], ids=lambda reason: reason.name)
def test_the_code_has_its_place_among_the_causes(reason: reasons.Reason) -> None:
    """Codes outside the order would be equal to one another, and the cause would depend on the order of a set."""
    assert reason.code in CAUSE_ORDER


@pytest.mark.parametrize(
    ("resource", "words", "code"),
    [
        ("cpu", "Insufficient cpu", "CPU_MEM_INSUFFICIENT"),
        ("pods", "Too many pods", "POD_COUNT_LIMIT"),
        ("ephemeral-storage", "Insufficient ephemeral-storage", "EPHEMERAL_STORAGE"),
        ("nvidia.com/gpu", "Insufficient nvidia.com/gpu", "GPU_FULL"),
        ("nvidia.com/mig-1g.5gb", "Insufficient nvidia.com/mig-1g.5gb", "GPU_FULL"),
    ],
)
def test_insufficient_resources(resource: str, words: str, code: str) -> None:
    assert (insufficient_reason(resource).kube_words, insufficient_reason(resource).code) == (words, code)


@pytest.mark.parametrize(
    ("bit", "words"),
    [
        (0, "node(s) were unschedulable"),
        (2, "node(s) had untolerated taint(s)"),
        (3, "node(s) didn't match Pod's node affinity/selector"),
        (4, "node(s) didn't have free ports for the requested pod ports"),
        (9, "node(s) didn't match pod topology spread constraints (missing required label)"),
        (11, "node(s) had no available volume zone"),
    ],
)
def test_kube_schedulers_words(bit: int, words: str) -> None:
    assert reason_of_bit(bit).kube_words == words
