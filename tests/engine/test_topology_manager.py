"""The kubelet's topology manager: a pod that it would refuse with TopologyAffinityError is not sent to the node."""

from __future__ import annotations

import json

import pytest
from tests.engine.plain_objects import NOW, START, holds, node, planned, pod

from windlass.model.names.windlass import (
    DEVICES_ANNOTATION,
    DEVICES_LAYOUT_ANNOTATION,
    TOPOLOGY_MANAGER_ANNOTATION,
)
from windlass.model.unstructured import Unstructured

SINGLE, RESTRICTED = "single-numa-node", "restricted"


def numa_node(policy: str, *, gpus: int = 8, numa_nodes: int = 2) -> Unstructured:
    found, each = node("n1", gpus), gpus // numa_nodes
    layout = [{"model": "H100", "memory": 81559, "count": each, "island": 0, "numa": at} for at in range(numa_nodes)]
    annotations = {DEVICES_LAYOUT_ANNOTATION: json.dumps(layout), TOPOLOGY_MANAGER_ANNOTATION: policy}
    found["metadata"]["annotations"] = annotations
    return found


def running(name: str, *devices: int) -> Unstructured:
    chosen = {DEVICES_ANNOTATION: ",".join(map(str, devices))}
    return pod(name, len(devices), on="n1", metadata={"annotations": chosen})


@pytest.mark.parametrize(
    ("policy", "gpus", "starts"),
    [
        (SINGLE, 3, True),
        (SINGLE, 4, False),
        (RESTRICTED, 3, True),
        (RESTRICTED, 4, False),
        ("best-effort", 4, True),
        ("none", 4, True),
        ("", 4, True),
        ("a policy of tomorrow", 4, True),
    ],
)
def test_gpus_that_are_free_on_two_numa_nodes(policy: str, gpus: int, starts: bool) -> None:
    """Of 4 and 4 GPUs one each is in use: 6 are free, and no NUMA node has 4."""
    used = [running("a", 0), running("b", 4)]
    plan, _ = planned(numa_node(policy), *used, pod("new", gpus))
    assert [bind.pod for bind in plan.binds] == (["default/new"] if starts else [])
    assert holds(plan) == ({} if starts else {"default/new": "TOPOLOGY_MANAGER_REFUSED"})


@pytest.mark.parametrize(("policy", "starts"), [(SINGLE, False), (RESTRICTED, True), ("none", True)])
def test_more_gpus_than_any_numa_node_has(policy: str, starts: bool) -> None:
    """`restricted` takes the fewest NUMA nodes that could ever hold it, `single-numa-node` nothing but one."""
    plan, _ = planned(numa_node(policy), pod("new", 6))
    assert bool(plan.binds) is starts
    if not starts:
        (hold,) = plan.holds
        assert hold.verdict.code == "TOPOLOGY_MANAGER_REFUSED"
        assert [change.text for change in hold.verdict.changes] == ["with 4 GPUs per pod instead of 6"]


def test_the_gpus_are_of_one_numa_node() -> None:
    plan, _ = planned(numa_node(SINGLE), running("a", 0, 1), pod("three", 3), pod("two", 2, at=NOW))
    devices = {bind.pod: sorted(device.index for device in bind.devices) for bind in plan.binds}
    assert devices == {"default/three": [4, 5, 6], "default/two": [2, 3]}


@pytest.mark.parametrize(("policy", "started"), [(SINGLE, 2), ("none", 2)])
def test_a_gang_counts_by_numa_node(policy: str, started: int) -> None:
    """Two pods of three GPUs: one on each NUMA node; a third has no place, though two GPUs are left."""
    labels = {"kueue.x-k8s.io/pod-group-name": "g"}
    size = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    members = [pod(f"g-{at}", 3, metadata={"labels": labels, "annotations": size}) for at in range(2)]
    plan, _ = planned(numa_node(policy), *members)
    assert len(plan.binds) == started


def test_a_gang_that_fits_only_across_numa_nodes_waits_whole() -> None:
    labels = {"kueue.x-k8s.io/pod-group-name": "g"}
    size = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    members = [pod(f"g-{at}", 3, metadata={"labels": labels, "annotations": size}) for at in range(2)]
    plan, _ = planned(numa_node(SINGLE), running("a", 0, 1), *members)
    assert plan.binds == ()
    plan, _ = planned(numa_node("none"), running("a", 0, 1), *members)
    assert len(plan.binds) == 2


def test_one_gpu_fits_anywhere() -> None:
    plan, _ = planned(numa_node(SINGLE), *(running(f"r{at}", at) for at in range(7)), pod("new", 1, at=START))
    assert len(plan.binds) == 1
