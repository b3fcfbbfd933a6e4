"""What nodes say of one pod set: groups by reason, the cause, what is free, and when free GPUs are fragments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from tests.placement.staged_overlay import overlay_on, pending, shape_and_row

from reference.builders import taint
from reference.park import A100, GPU, H100, gpu_node, layout_node, mig_node, node, pod
from windlass.model.pod import Pod
from windlass.placement.empty_cluster import EmptyCluster
from windlass.placement.explain.cause import NodeGroup
from windlass.placement.explain.gpu_fragmentation import GpuTotals
from windlass.placement.explain.node_reasons import find_cause, is_unknown_resource, node_groups
from windlass.placement.explain.pod_set_feasibility import PodSetFeasibility, free_gpus
from windlass.placement.overlay import Overlay

CPU, FULL, LARGE = "CPU_MEM_INSUFFICIENT", "GPU_FULL", "REQUEST_EXCEEDS_CLUSTER"
CORDON, TAINT, SELECTOR = "NODE_UNSCHEDULABLE", "TAINT_NOT_TOLERATED", "SELECTOR_MISMATCH"


@pytest.fixture(autouse=True)
def _overflow() -> Iterator[None]:
    with np.errstate(over="ignore"):  # the hash function of the kernels overflows on purpose
        yield


def everywhere(overlay: Overlay) -> Any:
    return np.ones(overlay.snapshot.nodes.size, dtype=np.bool_)


def groups(*objects: Any, waits: Pod, count: int = 1, allowed: Sequence[bool] | None = None) -> set[NodeGroup]:
    overlay = overlay_on(*objects)
    mask = everywhere(overlay) if allowed is None else np.array(allowed, dtype=np.bool_)
    found = node_groups(overlay, pending(overlay, waits, count), mask, EmptyCluster(overlay))
    assert len(found) == len(set(found))
    return set(found)


def cause(*objects: Any, waits: Sequence[tuple[Pod, int]], allowed: Sequence[bool] | None = None) -> str:
    overlay = overlay_on(*objects)
    mask = everywhere(overlay) if allowed is None else np.array(allowed, dtype=np.bool_)
    pod_sets = [pending(overlay, one, count, f"s{at}") for at, (one, count) in enumerate(waits)]
    return find_cause(overlay, pod_sets, mask, "REPORTED", EmptyCluster(overlay))


# Groups


def test_nodes_with_the_same_reasons_are_one_group_with_their_capacity_when_empty() -> None:
    objects = [
        gpu_node("a", 8),
        gpu_node("b", 8),
        gpu_node("c", 4),
        pod("x", 7, on="a"),
        pod("y", 8, on="b"),
        pod("z", 1, on="c"),
    ]
    assert groups(*objects, waits=pod("w", 2)) == {NodeGroup((), (FULL,), 8), NodeGroup((), (), 2)}
    assert groups(*objects, waits=pod("w", 2), allowed=[True, False, True]) == {
        NodeGroup((), (FULL,), 4),
        NodeGroup((), (), 2),
    }
    assert groups(*objects, waits=pod("w", 2), allowed=[False] * 3) == set()


def test_only_nodes_that_have_every_requested_device_count() -> None:
    objects = [
        node("cpu"),
        gpu_node("gpu", 8),
        gpu_node("both", 8, **{"example.com/nic": 2}),
        node("nic", **{"example.com/nic": 2}),
    ]
    assert groups(*objects, waits=pod("w", 1, asks={"example.com/nic": 1})) == {NodeGroup((), (), 2)}
    assert groups(*objects, waits=pod("w", 1)) == {NodeGroup((), (), 16)}
    assert groups(*objects, waits=pod("w")) == {NodeGroup((), (), 64)}


def test_rules_and_sizes_are_permanent_and_lack_is_not() -> None:
    objects = [
        gpu_node("a", 8, cordoned=True),
        gpu_node("b", 8, taints=[taint("team")]),
        gpu_node("c", 8, labels={"pool": "x"}),
        gpu_node("d", 8, cpu=2),
        gpu_node("e", 8),
        pod("x", 8, on="a"),
        pod("y", 1, on="e", cpu="14"),
    ]
    assert groups(*objects, waits=pod("w", 2, cpu="4", node_selector={"pool": "x"})) == {
        NodeGroup((CORDON, SELECTOR), (FULL,), 4),
        NodeGroup((TAINT, SELECTOR), (), 4),
        NodeGroup((), (), 4),
        NodeGroup((CPU, SELECTOR), (), 1),
        NodeGroup((SELECTOR,), (CPU,), 4),
    }


def test_a_node_that_is_too_small_lacks_nothing_else_of_that_kind() -> None:
    assert groups(gpu_node("a", 4), waits=pod("w", 5)) == {NodeGroup((LARGE,), (), 1)}
    assert groups(gpu_node("a", 4), pod("x", 1, on="a"), waits=pod("w", 4)) == {NodeGroup((), (FULL,), 1)}
    assert groups(gpu_node("a", 4, cpu=4), waits=pod("w", 1, cpu="5")) == {NodeGroup((CPU,), (), 1)}
    assert groups(gpu_node("a", 4, cpu=4), waits=pod("w", 1, cpu="4")) == {NodeGroup((), (), 1)}
    nic = gpu_node("a", 4, **{"example.com/nic": 1})
    (group,) = groups(nic, waits=pod("w", 1, asks={"example.com/nic": 2}))
    assert (group.permanent_codes, group.capacity) == ((LARGE,), 1)


def test_gpus_that_are_ill_count_as_if_they_were_repaired() -> None:
    objects = [gpu_node("a", 4, ill=3), gpu_node("b", 2)]
    found = groups(*objects, waits=pod("w", 4))
    assert NodeGroup((LARGE,), (), 1) in found
    assert any(group.permanent_codes == ("DEVICE_UNHEALTHY",) for group in found)


def test_taints_that_the_pod_tolerates_are_no_reason_and_kubernetes_own_are_the_nodes_fault() -> None:
    ill = gpu_node("a", 4, taints=[taint("node.kubernetes.io/not-ready"), taint("team")])
    assert groups(ill, waits=pod("w", 1)) == {NodeGroup((CORDON, TAINT), (), 4)}
    soft = gpu_node("a", 4, taints=[taint("team", effect="PreferNoSchedule")])
    assert groups(soft, waits=pod("w", 1)) == {NodeGroup((), (), 4)}


# Causes


def test_the_cause_of_a_gang_is_that_of_the_set_with_most_pods_left_over() -> None:
    objects = [gpu_node("a", 8, cpu=16), pod("x", 7, on="a", cpu="13")]
    few, many = pod("few", 1, cpu="4"), pod("many", 2)
    assert cause(*objects, waits=[(few, 1), (many, 4)]) == FULL
    assert cause(*objects, waits=[(few, 3), (many, 2)]) == CPU
    assert cause(*objects, waits=[(few, 1), (many, 1)]) == CPU, "of equals the first"
    assert cause(*objects, waits=[(many, 1), (few, 1)]) == FULL
    assert cause(*objects, waits=[(few, 0), (many, 2)]) == FULL
    assert cause(*objects, waits=[(few, 0)]) == "REPORTED"


def test_a_resource_that_no_node_advertises() -> None:
    overlay = overlay_on(gpu_node("a", 4), node("b", **{"example.com/nic": 0}))
    assert is_unknown_resource(overlay, pending(overlay, pod("w", asks={"example.com/nic": 1})))
    assert is_unknown_resource(overlay, pending(overlay, pod("w", asks={"example.com/other": 1})))
    assert not is_unknown_resource(overlay, pending(overlay, pod("w", 1)))
    assert not is_unknown_resource(overlay, pending(overlay, pod("w", asks={"example.com/other": 0})))
    assert cause(gpu_node("a", 4), waits=[(pod("w", asks={"example.com/nic": 1}), 1)]) == "RESOURCE_NAME_MISMATCH"


def test_instances_are_known_where_a_gpu_can_make_them() -> None:
    asks = pod("w", mig=("3g.40gb", 1))
    for objects, unknown in (([gpu_node("a", 4)], True), ([gpu_node("a", 4), mig_node("m", 1)], False)):
        overlay = overlay_on(*objects)
        assert is_unknown_resource(overlay, pending(overlay, asks)) == unknown


def test_devices_that_exist_but_never_on_one_node_are_too_much() -> None:
    apart = [gpu_node("a", 4), node("b", **{"example.com/nic": 2})]
    assert cause(*apart, waits=[(pod("w", 1, asks={"example.com/nic": 1}), 1)]) == LARGE


@pytest.mark.parametrize(("used", "expected"), [((4, 4), "GPU_FRAGMENTED"), ((4, 5), FULL)])
def test_free_gpus_in_pieces_are_fragments_where_they_suffice(used: tuple[int, int], expected: str) -> None:
    objects = [gpu_node("a", 8), gpu_node("b", 8), pod("x", used[0], on="a"), pod("y", used[1], on="b")]
    assert cause(*objects, waits=[(pod("w", 8), 1)]) == expected
    assert cause(*objects, waits=[(pod("w", 8), 1)], allowed=[True, False]) == FULL


# What is free


def test_pods_that_fit_now_and_reasons_by_number_of_nodes() -> None:
    objects = [
        gpu_node("a", 8, cpu=8),
        gpu_node("b", 8, cpu=8),
        gpu_node("c", 8, cpu=8, cordoned=True),
        gpu_node("d", 8, cpu=8),
        pod("x", 3, on="a", cpu="1"),
        pod("y", 7, on="b", cpu="7"),
        pod("z", 8, on="d", cpu="1"),
    ]
    overlay = overlay_on(*objects)
    fit = PodSetFeasibility(overlay, pending(overlay, pod("w", 2, cpu="2"), 5))
    assert fit.pods_per_node.tolist() == [2, 0, 0, 0]
    assert fit.placeable == 2
    assert PodSetFeasibility(overlay, pending(overlay, pod("w", 2, cpu="2"), 1)).placeable == 1
    assert fit.eligible_nodes.tolist() == [True, True, False, True]
    counts = [count for _, count in fit.reason_counts()]
    assert counts == sorted(counts, reverse=True)
    by_bit = dict(fit.reason_counts())
    assert sorted(by_bit.values()) == [1, 1, 2, 2]
    for bit, count in by_bit.items():
        assert count == sum(int(mask) >> bit & 1 for mask in fit.reasons)
    assert fit.free("cpu").tolist() == [7000, 1000, 8000, 7000]
    assert fit.free("example.com/none").tolist() == [0, 0, 0, 0]
    overlay.block_node(0)
    assert PodSetFeasibility(overlay, pending(overlay, pod("w", 2, cpu="2"))).eligible_nodes.tolist()[0] is False


def gpus_of(overlay: Overlay, waits: Pod, models: Sequence[str] | None = None) -> list[int]:
    return free_gpus(overlay, shape_and_row(overlay, waits)[0], models).tolist()


def test_free_gpus_by_node_whole_or_in_thousandths() -> None:
    objects = [
        gpu_node("a", 4),
        gpu_node("b", 4, model=A100),
        gpu_node("c", 2, replicas=3),
        node("d"),
        gpu_node("e", 4, ill=1),
        pod("x", 1, on="a"),
        pod("y", share="0.25", on="a"),
        pod("z", 1, on="c"),
    ]
    overlay = overlay_on(*objects)
    assert gpus_of(overlay, pod("w", 1)) == [2, 4, 5, 0, 3]
    assert gpus_of(overlay, pod("w", 1), [A100]) == [0, 4, 0, 0, 0]
    assert gpus_of(overlay, pod("w", share="0.5"))[:2] == [2750, 4000]
    assert gpus_of(overlay, pod("w", models=[A100], share="0.5"))[:2] == [0, 4000]
    assert gpus_of(overlay, pod("w")) == [0] * 5
    assert gpus_of(overlay, pod("w", mig=("3g.40gb", 1))) == [0] * 5


def test_no_more_gpus_are_free_than_the_node_advertises() -> None:
    layout = layout_node("a", {"model": H100, "count": 4})
    overlay = overlay_on(layout, pod("x", 3, on="a"))
    overlay.state.free[0, overlay.snapshot.resources.column(GPU)] = -1
    assert gpus_of(overlay, pod("w", 1)) == [0]


def totals(*objects: Any, waits: Sequence[tuple[Pod, int]], allowed: Sequence[bool] | None = None) -> GpuTotals:
    overlay = overlay_on(*objects)
    mask = everywhere(overlay) if allowed is None else np.array(allowed, dtype=np.bool_)
    return GpuTotals(overlay, [pending(overlay, one, count) for one, count in waits], mask)


PIECES = (gpu_node("a", 8), gpu_node("b", 8), pod("x", 6, on="a"), pod("y", 3, on="b"))
"""Two GPUs free on one node, and five on the other."""


def test_requested_and_free_gpus_are_summed_up_once_for_each_kind() -> None:
    whole = totals(*PIECES, waits=[(pod("w", 2), 3), (pod("v", 1), 2)])
    assert (whole.requested, whole.free, whole.free_by_node) == (8000, 7000, [5, 2])
    share = totals(*PIECES, waits=[(pod("w", share="0.5"), 3)])
    assert (share.requested, share.free, share.free_by_node) == (1500, 7000, [5000, 2000])
    both = totals(*PIECES, waits=[(pod("w", 2), 1), (pod("v", share="0.5"), 1)])
    assert (both.requested, both.free) == (2500, 14_000), "each kind is counted on its own"
    nothing = totals(*PIECES, waits=[(pod("w"), 1), (pod("v", 1), 0), (pod("u", mig=("3g.40gb", 1)), 1)])
    assert (nothing.requested, nothing.free, nothing.are_fragmented) == (0, 0, False)
    assert totals(*PIECES, waits=[(pod("w", 2), 1)], allowed=[True, False]).free == 2000


@pytest.mark.parametrize(
    ("waits", "fragmented"),
    [
        ([(pod("w", 7), 1)], True),
        ([(pod("w", 8), 1)], False),
        ([(pod("w", 5), 1)], False),
        ([(pod("w", 6), 1)], True),
        ([(pod("w", 2), 3)], False),
        ([(pod("w", 3), 2)], True),
        ([(pod("w", 1), 7)], False),
        ([(pod("w", 4), 1), (pod("v", 3), 1)], True),
        ([(pod("w", share="0.9"), 7)], True),
    ],
)
def test_fragments_are_enough_in_sum_and_too_few_on_the_nodes(waits: list[tuple[Pod, int]], fragmented: bool) -> None:
    assert totals(*PIECES, waits=waits).are_fragmented == fragmented


def test_every_resource_of_which_the_empty_node_has_too_little_is_a_reason() -> None:
    """No node has `ephemeral-storage`; the memory, which is listed behind it, counts as well."""
    objects = [node("a", memory="64Gi")]
    both = pod("w", asks={"ephemeral-storage": "1Gi", "memory": "65Gi"})
    assert groups(*objects, waits=both) == {NodeGroup(("EPHEMERAL_STORAGE", CPU), ())}
    one = pod("w", asks={"ephemeral-storage": "1Gi", "memory": "64Gi"})
    assert groups(*objects, waits=one) == {NodeGroup(("EPHEMERAL_STORAGE",), ())}
