"""Verdicts from the kernels' arrays: counts, order, code and near misses."""

from __future__ import annotations

import numpy as np
import pytest

from reference.overlays import snapshot_of
from reference.park import node, pod
from windlass.cluster.shape import Shape, make_shape
from windlass.model.reasons import (
    WHY_GPU_UNHEALTHY,
    WHY_NODE_NAME,
    WHY_TAINT,
    WHY_UNSCHEDULABLE,
    insufficient_bit,
    insufficient_reason,
    reason_of_bit,
)
from windlass.model.verdict import Verdict
from windlass.placement.score_table import make_result_buffer
from windlass.placement.verdicts import NoNodeFound, VerdictArrays, bits_of, make_verdict, reason_of

NAMES = ("n0", "n1", "n2")


def found(
    shape: Shape,
    counts: dict[int, int],
    near: dict[int, int] | None = None,
    short: dict[int, int] | None = None,
    free: dict[int, int] | None = None,
) -> NoNodeFound:
    """The second verdict of two; `near`: node → reasons, `short` and `free` by position of the request."""
    buffer = make_result_buffer(3)
    buffer.verdict_near[:] = -1
    buffer.verdict_counts[0, 5], buffer.verdict_near[0, 0], buffer.verdict_near_why[0, 0] = 9, 2, 1
    buffer.verdict_short[0], buffer.verdict_free[0] = 5, 6
    for mask, nodes in counts.items():
        buffer.verdict_counts[1, mask.bit_length() - 1] = nodes
    for place, (at, why) in enumerate((near or {}).items()):
        buffer.verdict_near[1, place], buffer.verdict_near_why[1, place] = at, why
        for j, amount in (short or {}).items():
            buffer.verdict_short[1, place, j] = amount
        for j, amount in (free or {}).items():
            buffer.verdict_free[1, place, j] = amount
    arrays = VerdictArrays.copy_from(buffer, 2)
    buffer.verdict_counts[:], buffer.verdict_near[:], buffer.verdict_near_why[:] = 0, 0, 0
    buffer.verdict_short[:], buffer.verdict_free[:] = 0, 0
    assert [len(array) for array in arrays] == [2] * 5
    return NoNodeFound(shape, snapshot_of(*map(node, NAMES)).nodes, arrays, 1)


PLAIN = make_shape(pod("p", 2, asks={"memory": "1Gi"}))
CPU, MEMORY, GPU = ([name for name, _ in PLAIN.requests].index(name) for name in ("cpu", "memory", "nvidia.com/gpu"))


def test_counts_are_listed_most_frequent_first_then_by_text() -> None:
    verdict = found(PLAIN, {WHY_TAINT: 1, WHY_UNSCHEDULABLE: 3, insufficient_bit(MEMORY): 3}).verdict()
    assert verdict.nodes == 3
    assert [(count.kube, count.nodes) for count in verdict.counts] == [
        ("Insufficient memory", 3),
        ("node(s) were unschedulable", 3),
        ("node(s) had untolerated taint(s)", 1),
    ]
    assert verdict.nearest == ()


def test_the_code_is_that_of_the_nearest_miss_and_its_lowest_bit() -> None:
    counts = {WHY_TAINT: 3}
    near = {1: WHY_GPU_UNHEALTHY | insufficient_bit(GPU), 0: WHY_NODE_NAME}
    assert found(PLAIN, counts, near).code == reason_of_bit(WHY_GPU_UNHEALTHY.bit_length() - 1).code
    assert found(PLAIN, counts, {0: insufficient_bit(GPU)}).code == insufficient_reason("nvidia.com/gpu").code
    assert found(PLAIN, counts, {0: 0}).code == "UNKNOWN"


def test_without_a_near_miss_it_is_that_of_the_most_frequent_reason() -> None:
    assert found(PLAIN, {WHY_TAINT: 3, WHY_UNSCHEDULABLE: 2}).code == "TAINT_NOT_TOLERATED"
    assert found(PLAIN, {WHY_TAINT: 2, WHY_UNSCHEDULABLE: 3}).code == "NODE_UNSCHEDULABLE"
    # Of equals the first by text: "node(s) didn't match the requested node name" before "node(s) had ...".
    assert found(PLAIN, {WHY_TAINT: 2, WHY_NODE_NAME: 2}).code == "SELECTOR_MISMATCH"
    assert found(PLAIN, {}).code == "NODE_UNSCHEDULABLE"


def test_near_misses_name_what_is_free_and_what_is_missing() -> None:
    last = 24
    verdict = found(
        PLAIN,
        {WHY_TAINT: 1},
        {2: insufficient_bit(CPU) | WHY_TAINT, 0: insufficient_bit(CPU)},
        short={CPU: 250, last: 1},
        free={CPU: 750, MEMORY: 2**30, GPU: 3, last: 1},
    ).verdict()
    assert [miss.node for miss in verdict.nearest] == ["n2", "n0"]
    first = verdict.nearest[0]
    assert first.reasons == ("node(s) had untolerated taint(s)", "Insufficient cpu")
    assert first.lacks == {"cpu": "250m", "GPUs": "1"}
    assert {name: first.free[name] for name in ("cpu", "memory", "nvidia.com/gpu", "GPUs")} == {
        "cpu": "750m",
        "memory": "1Gi",
        "nvidia.com/gpu": "3",
        "GPUs": "1",
    }


def test_all_three_near_misses_are_told() -> None:
    near = {0: WHY_TAINT, 1: WHY_TAINT, 2: WHY_TAINT}
    assert [miss.node for miss in found(PLAIN, {WHY_TAINT: 3}, near).verdict().nearest] == list(NAMES)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (pod("p", share="0.3"), "GPUs with 300 milli free"),
        (pod("p", memory_mib=9), "GPUs with enough milli free"),
        (pod("p", 1), "GPUs"),
    ],
)
def test_devices_are_named_by_what_is_asked_of_them(asked: object, words: str) -> None:
    miss = found(make_shape(asked), {}, {0: WHY_TAINT}, short={24: 2}, free={24: 1}).verdict().nearest[0]
    assert miss.free[words] == "1"
    assert miss.lacks == {words: "2"}


def test_a_pod_without_gpus_lacks_none() -> None:
    miss = found(make_shape(pod("p")), {}, {0: WHY_TAINT}, short={24: 2}, free={24: 1}).verdict().nearest[0]
    assert not any("GPU" in name for name in (*miss.free, *miss.lacks))


def test_instances_on_demand_lack_no_more_than_is_asked() -> None:
    shape = make_shape(pod("p", mig=("1g.10gb", 2)))
    name = "nvidia.com/mig-1g.10gb"
    j = [request for request, _ in shape.requests].index(name)
    miss = found(shape, {}, {0: WHY_TAINT}, short={j: 5, 24: 2}, free={j: -3}).verdict().nearest[0]
    assert (miss.free[name], miss.lacks) == ("0", {name: "2"})
    # Of other resources an over-committed amount is told as it is.
    miss = found(shape, {}, {0: WHY_TAINT}, short={0: 5000}, free={0: -3000, j: 1}).verdict().nearest[0]
    assert (miss.free["cpu"], miss.lacks, miss.free[name]) == ("-3", {"cpu": "5"}, "1")


def test_bits_and_their_reasons() -> None:
    assert bits_of(0) == []
    assert bits_of(1 << 63 | 0b101) == [0, 2, 63]
    assert reason_of(PLAIN, 32 + GPU).kube_words == "Insufficient nvidia.com/gpu"
    assert reason_of(PLAIN, 2).name == "TAINT"
    assert reason_of(PLAIN, 32).kube_words == f"Insufficient {PLAIN.requests[0][0]}"


def test_a_text_of_a_hold_becomes_the_detail() -> None:
    assert make_verdict("X", "waits", 4, "do this") == Verdict("X", 4, detail="waits", remedy="do this")
    message = found(PLAIN, {WHY_TAINT: 3})
    assert make_verdict("X", message, 4) == message.verdict()
    assert np.array_equal(message.arrays.counts[0], np.eye(64, dtype=np.int64)[5] * 9)
