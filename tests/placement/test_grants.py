"""Packed device grants become the grants of a plan."""

from __future__ import annotations

import numpy as np
import pytest

from reference.overlays import pod_row, snapshot_of
from reference.park import A100, H100, T4, gpu_node, layout_node, mig_node, node, pod
from windlass.cluster.snapshot import Snapshot
from windlass.model.decision import DeviceGrant
from windlass.placement.grants import GrantUnpacker


def granted(snapshot: Snapshot, name: str, node_name: str, packed: int) -> tuple[DeviceGrant, ...]:
    row, at = pod_row(snapshot, name), snapshot.nodes.index[node_name]
    unpacker = GrantUnpacker(snapshot)
    found = unpacker.grants(row, at, np.uint64(packed))
    rows, nodes = np.array([row, row]), np.array([at, at])
    assert unpacker.grants_of_all(rows, nodes, np.array([packed, packed], dtype=np.uint64)) == [found, found]
    return found


NODES = (
    gpu_node("a", 4),
    gpu_node("sliced", 2, replicas=4),
    layout_node("mixed", {"model": T4, "count": 1}, {"model": H100, "count": 1}),
    mig_node("mig", 3),
    node("cut", **{"nvidia.com/mig-1g.10gb": 2}),
)


def test_every_digit_is_a_device_with_so_many_shares() -> None:
    snapshot = snapshot_of(*NODES, pod("whole", 2), pod("share", share="0.3", devices=2), pod("cpu"))
    assert granted(snapshot, "whole", "a", 0x1001) == (DeviceGrant(0, 1000), DeviceGrant(3, 1000))
    assert granted(snapshot, "share", "a", 0x0110) == (DeviceGrant(1, 300), DeviceGrant(2, 300))
    assert granted(snapshot, "whole", "sliced", 0x2F) == (
        DeviceGrant(0, 15 * 250, replicas=15),
        DeviceGrant(1, 500, replicas=2),
    )
    assert granted(snapshot, "cpu", "a", 0) == ()


def test_a_share_by_memory_depends_on_the_device() -> None:
    snapshot = snapshot_of(*NODES, pod("m", memory_mib=10_000))
    (of_t4,), (of_h100,) = granted(snapshot, "m", "mixed", 0x1), granted(snapshot, "m", "mixed", 0x10)
    assert (of_t4.index, of_h100.index) == (0, 1)
    assert of_t4.milli == -(-10_000 * 1000 // 15360)
    assert of_h100.milli == -(-10_000 * 1000 // 81559)


def test_every_byte_is_an_instance() -> None:
    snapshot = snapshot_of(*NODES, pod("i", mig=("1g.10gb", 2)))
    packed = (2 << 4 | 8 | 5) << 8 | (0 << 4 | 8 | 6)
    assert granted(snapshot, "i", "mig", packed) == (
        DeviceGrant(0, profile="1g.10gb", start=6),
        DeviceGrant(2, profile="1g.10gb", start=5),
    )
    assert granted(snapshot, "i", "cut", packed) == (), "the kubelet allocates them"


def test_one_unpacker_tells_nodes_shapes_and_grants_apart() -> None:
    snapshot = snapshot_of(
        *NODES,
        layout_node("t4", {"model": T4, "count": 1}),
        pod("whole", 1),
        pod("m", memory_mib=10_000),
        pod("i", mig=("1g.10gb", 1)),
    )
    unpacker, index = GrantUnpacker(snapshot), snapshot.nodes.index

    def found(name: str, node_name: str, packed: int) -> list[int]:
        grants = unpacker.grants(pod_row(snapshot, name), index[node_name], np.uint64(packed))
        return [grant.milli for grant in grants]

    assert found("whole", "a", 1) == [1000]
    assert found("whole", "sliced", 1) == [250]
    assert found("whole", "a", 1) == [1000]
    assert found("m", "a", 1) == [123]
    assert found("m", "t4", 1) == [652]
    assert found("i", "mig", 0xE) == [1000]
    assert found("i", "cut", 0xE) == []


def test_an_unpacker_serves_later_snapshots_of_the_same_nodes() -> None:
    first = snapshot_of(gpu_node("a", 1), pod("p", 1))
    unpacker = GrantUnpacker(first)
    assert unpacker.for_snapshot(first) is unpacker
    other = snapshot_of(gpu_node("a", 1), pod("p", 1))
    assert unpacker.for_snapshot(other) is not unpacker


@pytest.mark.parametrize("model", [A100, H100])
def test_a_node_with_one_device_on_demand_creates_instances(model: str) -> None:
    mixed = layout_node(
        "n", {"model": model, "count": 1, "mig": "static"}, {"model": H100, "count": 1, "mig": "dynamic"}
    )
    snapshot = snapshot_of(mixed, pod("i", mig=("1g.10gb", 1)))
    assert granted(snapshot, "i", "n", 1 << 4 | 8 | 3) == (DeviceGrant(1, profile="1g.10gb", start=3),)
