"""A Fleet becomes nodes that read back as the machines that were asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.model.codec import decode_object, encode_object
from windlass.model.errors import InputError
from windlass.model.fleet import (
    Fleet,
    FleetFault,
    FleetGpus,
    FleetPool,
    FleetSharing,
    FleetSpec,
    expand_fleet,
    pool_devices,
)
from windlass.model.gpu import node_devices, node_replicas
from windlass.model.gpu_models import mig_geometry_of_model
from windlass.model.meta import ObjectMeta
from windlass.model.mig import place_layout
from windlass.model.names.kubernetes import HOSTNAME_LABEL, ZONE_LABEL
from windlass.model.names.nvidia import GPU_CLIQUE_LABEL
from windlass.model.names.windlass import RACK_LABEL
from windlass.model.node import Node
from windlass.model.requests import node_quantities

H100 = "NVIDIA-H100-80GB-HBM3"


def fleet(*pools: FleetPool) -> Fleet:
    return Fleet(metadata=ObjectMeta(name="lab"), spec=FleetSpec(pools=pools))


def only_node(**pool: Any) -> Node:
    (node,) = expand_fleet(fleet(FleetPool(name="a", **pool)))
    return node


def gpus(model: str = "H100", count: int = 8, **more: Any) -> tuple[FleetGpus, ...]:
    return (FleetGpus(model=model, count=count, **more),)


def test_names_sort_as_they_count_and_places_are_labelled() -> None:
    pool = FleetPool(name="a", count=11, zone="z", rack="r", nodes_per_rack=4, gpus=gpus(), clique="rack")
    nodes = expand_fleet(fleet(pool))
    names = [node.name for node in nodes]
    assert names == sorted(names)
    assert names[0] == "a-00"
    assert [node.labels[RACK_LABEL] for node in nodes] == ["r-0"] * 4 + ["r-1"] * 4 + ["r-2"] * 3
    assert all(node.labels[GPU_CLIQUE_LABEL] == node.labels[RACK_LABEL] for node in nodes)
    assert {node.labels[ZONE_LABEL] for node in nodes} == {"z"}
    assert nodes[3].labels[HOSTNAME_LABEL] == "a-03"


def test_a_cpu_node_has_no_gpu_in_it() -> None:
    node = only_node(cpu="500m", memory="1Gi")
    capacity, allocatable = node_quantities(node)
    assert capacity == allocatable == {"cpu": 500, "memory": 2**30, "ephemeral-storage": 2**40, "pods": 110}
    assert not [key for key in node.labels if "nvidia" in key]
    assert node.metadata.annotations == {}


def test_gfd_labels() -> None:
    labels = only_node(gpus=gpus()).labels
    assert labels["nvidia.com/gpu.product"] == H100
    assert labels["nvidia.com/gpu.count"] == "8"
    assert labels["nvidia.com/gpu.memory"] == "81559"
    assert labels["nvidia.com/gpu.family"] == "hopper"
    assert labels["nvidia.com/mig.capable"] == "true"


def test_own_labels_and_taints_win() -> None:
    node = only_node(gpus=gpus(), labels={"nvidia.com/gpu.product": "Mine", "team": "x"}, unschedulable=True)
    assert (node.labels["nvidia.com/gpu.product"], node.labels["team"]) == ("Mine", "x")
    assert node.spec.unschedulable


def test_shared_gpus() -> None:
    sharing = FleetSharing(strategy="time-slicing", replicas=4)
    node = only_node(gpus=gpus(count=2), sharing=sharing)
    capacity, _ = node_quantities(node)
    assert capacity["nvidia.com/gpu"] == 8
    assert node.labels["nvidia.com/gpu.product"] == f"{H100}-SHARED"
    assert node_replicas(node) == 4
    renamed = only_node(gpus=gpus(count=2), sharing=FleetSharing(strategy="mps", replicas=4, rename=True))
    capacity, _ = node_quantities(renamed)
    assert (capacity.get("nvidia.com/gpu"), capacity["nvidia.com/gpu.shared"]) == (None, 8)
    assert renamed.labels["nvidia.com/gpu.product"] == H100


def test_mixed_mig_beside_whole_gpus() -> None:
    node = only_node(gpus=(*gpus(count=2), *gpus(count=2, mig=("3g.40gb", "1g.10gb", "1g.10gb+me"))))
    capacity, _ = node_quantities(node)
    assert capacity["nvidia.com/gpu"] == 2
    assert capacity["nvidia.com/mig-3g.40gb"] == 2
    assert capacity["nvidia.com/mig-1g.10gb.me"] == 2
    assert node.labels["nvidia.com/mig.strategy"] == "mixed"


def test_single_mig_advertises_instances_as_gpus() -> None:
    node = only_node(gpus=gpus(count=2, mig=("1g.10gb",) * 7), mig_strategy="single")
    capacity, allocatable = node_quantities(node)
    assert capacity["nvidia.com/gpu"] == 14
    assert node.labels["nvidia.com/gpu.product"] == f"{H100}-MIG-1g.10gb"
    assert len(node_devices(node, allocatable, capacity)) == 14


def test_faults() -> None:
    faults = (FleetFault(node=1, devices=(0, 3)), FleetFault(node=0, not_ready=True))
    first, second = expand_fleet(fleet(FleetPool(name="a", count=2, gpus=gpus(), faults=faults)))
    assert [taint.effect for taint in first.spec.taints] == ["NoSchedule", "NoExecute"]
    assert first.status.conditions[0].status == "False"
    capacity, allocatable = node_quantities(second)
    assert (capacity["nvidia.com/gpu"], allocatable["nvidia.com/gpu"]) == (8, 6)
    found = node_devices(second, allocatable, capacity)
    assert [device.index for device in found if not device.healthy] == [0, 3]


def test_islands_and_numa() -> None:
    devices = pool_devices(FleetPool(name="a", gpus=(*gpus(count=4, islands=2), *gpus("T4", 2)), numa=2), 0)
    assert [device.island for device in devices] == [0, 0, 1, 1, 2, 2]
    assert [device.numa for device in devices] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("pool", "path", "words"),
    [
        ({"gpus": gpus(count=0)}, "gpus[0].count", "out of range"),
        ({"gpus": gpus(count=17)}, "gpus[0].count", "out of range"),
        ({"gpus": gpus(count=10**30)}, "gpus[0].count", "out of range"),
        ({"gpus": (*gpus(count=9), *gpus(count=9))}, "gpus", "18 GPUs in one node"),
        ({"gpus": gpus(islands=3)}, "gpus[0].islands", "equal NVLink islands"),
        ({"gpus": gpus("Unheard-of")}, "gpus[0].memory", "not known"),
        ({"gpus": gpus("")}, "gpus[0].model", "label"),
        ({"gpus": gpus("X", memory="-1")}, "gpus[0].memory", "negative"),
        ({"gpus": gpus("T4", mig="dynamic")}, "gpus[0].mig", "can't be partitioned by MIG"),
        ({"gpus": gpus("Q", memory="24Gi", mig=("1g.6gb",))}, "gpus[0].mig", "can't be partitioned by MIG"),
        ({"gpus": gpus(mig="sometimes")}, "gpus[0].mig", "unknown value"),
        ({"gpus": gpus(mig=("1g.10gb", "1g.5gb"))}, "gpus[0].mig[1]", "unknown value"),
        ({"gpus": gpus(mig=("4g.40gb", "4g.40gb"))}, "gpus[0].mig", "can't be cut into"),
        ({"gpus": gpus(), "mig_strategy": "single"}, "migStrategy", "one profile"),
        ({"gpus": gpus(mig=("3g.40gb", "4g.40gb")), "mig_strategy": "single"}, "migStrategy", "one profile"),
        ({"mig_strategy": "double"}, "migStrategy", "unknown value"),
        ({"sharing": FleetSharing(strategy="mps", replicas=2)}, "sharing", "whole GPUs"),
        ({"gpus": gpus(), "sharing": FleetSharing(strategy="mps", replicas=1)}, "sharing.replicas", "range"),
        (
            {"gpus": gpus(), "sharing": FleetSharing(strategy="magic", replicas=2)},
            "sharing.strategy",
            "unknown",
        ),
        ({"cpu": "-4"}, "cpu", "negative"),
        ({"cpu": 0}, "cpu", "none of it"),
        ({"memory": "lots"}, "memory", "not a quantity"),
        ({"count": 0}, "count", "out of range"),
        ({"numa": 0}, "numa", "out of range"),
        ({"name": "Bad_Name"}, "name", "names of nodes"),
        ({"labels": {"a": "not a value"}}, "labels.a", "label value"),
        ({"zone": "-z"}, "zone", "label value"),
        ({"faults": (FleetFault(node=1),)}, "faults[0].node", "range"),
        ({"gpus": gpus(), "faults": (FleetFault(node=0, devices=(8,)),)}, "faults[0].devices[0]", "range"),
        ({"faults": (FleetFault(node=0, devices=(0,)),)}, "faults[0].devices[0]", "range"),
    ],
)
def test_what_can_not_be_built(pool: dict[str, Any], path: str, words: str) -> None:
    broken = fleet(FleetPool(name="ok"), FleetPool(**{"name": "a", **pool}))
    with pytest.raises(InputError, match=words) as caught:
        expand_fleet(broken)
    assert caught.value.path == f"spec.pools[1].{path}"
    assert caught.value.object == "Fleet lab"
    assert caught.value.remedy


def test_pools_need_names_of_their_own_and_a_fleet_needs_pools() -> None:
    with pytest.raises(InputError, match="a second pool"):
        expand_fleet(fleet(FleetPool(name="a"), FleetPool(name="a")))
    with pytest.raises(InputError, match="at least one pool"):
        expand_fleet(fleet())


MODELS = st.sampled_from(["H100", "A100-40", "A100-80", "A30", "H200", "B200", "L40S", "T4", "Own Model"])


@st.composite
def gpu_groups(draw: st.DrawFn, *, cut: bool) -> FleetGpus:
    model = draw(MODELS)
    count = draw(st.integers(1, 5))
    geometry = mig_geometry_of_model(model) if cut else None
    mig: str | tuple[str, ...] = ""
    if geometry is not None:
        names = [profile.name for profile in geometry.profiles]
        wish = tuple(draw(st.lists(st.sampled_from(names), max_size=4)))
        mig = wish if wish and place_layout(geometry, wish) else "dynamic"
    islands = draw(st.sampled_from([size for size in range(1, count + 1) if count % size == 0]))
    memory = "24Gi" if model == "Own Model" else None
    return FleetGpus(model=model, count=count, memory=memory, islands=islands, mig=mig)


@st.composite
def pools(draw: st.DrawFn) -> FleetPool:
    sharing = None
    if draw(st.booleans()):
        sharing = FleetSharing(
            strategy=draw(st.sampled_from(["mps", "time-slicing"])),
            replicas=draw(st.integers(2, 5)),
            rename=draw(st.booleans()),
        )
    groups = tuple(draw(st.lists(gpu_groups(cut=sharing is None), min_size=1, max_size=3)))
    total = sum(group.count for group in groups)
    count = draw(st.integers(1, 3))
    ill = st.builds(
        FleetFault,
        node=st.integers(0, count - 1),
        devices=st.lists(st.integers(0, total - 1), max_size=3).map(tuple),
        not_ready=st.booleans(),
    )
    return FleetPool(
        name="a",
        count=count,
        gpus=groups,
        numa=draw(st.integers(1, 4)),
        sharing=sharing,
        faults=tuple(draw(st.lists(ill, max_size=2))),
    )


@given(pools())
def test_devices_read_back_equal(pool: FleetPool) -> None:
    nodes = expand_fleet(fleet(pool))
    assert len(nodes) == pool.count
    for number, node in enumerate(nodes):
        again = decode_object(encode_object(node))
        assert again == node
        capacity, allocatable = node_quantities(node)
        found = node_devices(node, allocatable, capacity)
        assert found == pool_devices(pool, number)
        assert len(found) == pool.gpu_count
        whole = [device for device in found if device.mig != "static"]
        replicas = node_replicas(node) if pool.sharing else 1
        assert capacity.get("nvidia.com/gpu", 0) == len(whole) * replicas
        assert allocatable.get("nvidia.com/gpu", 0) == sum(device.healthy for device in whole) * replicas


@given(pools())
def test_a_fleet_goes_in_and_out_unchanged(pool: FleetPool) -> None:
    assert decode_object(encode_object(fleet(pool))) == fleet(pool)
