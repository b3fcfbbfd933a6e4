"""The closed list of reasons: complete, without doubles, in kube-scheduler's words."""

from __future__ import annotations

import pytest

from windlass.model import reasons
from windlass.model.reasons import (
    NODE_REASONS,
    POD_REASONS,
    insufficient_bit,
    insufficient_reason,
    reason_of_bit,
)

CODES = {
    "NODE_UNSCHEDULABLE SELECTOR_MISMATCH TAINT_NOT_TOLERATED HOST_PORT_CONFLICT POD_AFFINITY_CONFLICT",
    "POD_SPREAD_CONFLICT STORAGE_INSUFFICIENT GPU_FULL GPU_FRAGMENTED DEVICE_UNHEALTHY REQUEST_EXCEEDS_CLUSTER",
    "SCHEDULING_GATED POD_COUNT_LIMIT CPU_MEM_INSUFFICIENT EPHEMERAL_STORAGE RESOURCE_NAME_MISMATCH",
    "RESERVED_FOR_OTHERS POLICY_DENIED",
}
KNOWN_CODES = {code for line in CODES for code in line.split()} | reasons.ADDED_CODES


def test_every_constant_has_its_entry_and_every_entry_its_constant() -> None:
    constants = {
        name.removeprefix("WHY_"): value for name, value in vars(reasons).items() if name.startswith("WHY_")
    }
    assert constants == {reason.name: 1 << (reason.bit or 0) for reason in NODE_REASONS}


def test_the_layout_of_the_mask_is_fixed() -> None:
    assert [reason.bit for reason in NODE_REASONS] == [*range(23)]
    assert reason_of_bit(2).name == "TAINT"
    assert insufficient_bit(0) == 1 << 32
    assert insufficient_bit(31) == 1 << 63
    with pytest.raises(ValueError, match="outside"):
        insufficient_bit(32)


def test_entries_are_told_apart_and_complete() -> None:
    everything = [
        *NODE_REASONS,
        *POD_REASONS,
        insufficient_reason("cpu"),
        insufficient_reason("pods"),
        insufficient_reason("nvidia.com/gpu"),
    ]
    assert len({reason.name for reason in everything}) == len(everything)
    assert len({reason.kube for reason in everything}) == len(everything)
    for reason in everything:
        assert reason.kube
        assert reason.message
        assert reason.remedy
        assert reason.code in KNOWN_CODES


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
    assert (insufficient_reason(resource).kube, insufficient_reason(resource).code) == (words, code)


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
    assert reason_of_bit(bit).kube == words
