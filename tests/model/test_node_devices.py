"""A node's GPUs out of labels, annotations, capacity and allocatable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.model.errors import InputError
from windlass.model.gpu import Device, node_devices, node_replicas
from windlass.model.meta import ObjectMeta
from windlass.model.node import Node

H100 = "NVIDIA-H100-80GB-HBM3"
LAYOUT = "windlass.dev/devices-layout"
UNHEALTHY = "windlass.dev/unhealthy-devices"


def node(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> Node:
    return Node(metadata=ObjectMeta(name="n", labels=labels or {}, annotations=annotations or {}))


def gfd(**labels: str) -> dict[str, str]:
    plain = {"nvidia.com/gpu.product": H100, "nvidia.com/gpu.memory": "81559"}
    return plain | {f"nvidia.com/{name.replace('__', '.').replace('_', '-')}": value for name, value in labels.items()}


def devices(found: Node, capacity: dict[str, int], allocatable: dict[str, int] | None = None) -> tuple[Device, ...]:
    return node_devices(found, capacity if allocatable is None else allocatable, capacity)


def ill(found: tuple[Device, ...]) -> list[int]:
    return [device.index for device in found if not device.healthy]


def test_a_node_without_gpus() -> None:
    assert devices(node({"nvidia.com/gpu.product": H100}), {"cpu": 1000}) == ()


def test_labels_and_what_is_advertised() -> None:
    found = devices(node(gfd(gpu__count="8")), {"nvidia.com/gpu": 8})
    assert found == tuple(Device(index, H100, 81559) for index in range(8))


def test_memory_is_filled_in_where_the_model_is_known() -> None:
    (device,) = devices(node({"nvidia.com/gpu.product": "NVIDIA-L40S"}), {"nvidia.com/gpu": 1})
    assert device.memory_mib == 46068


def test_what_is_advertised_counts_more_than_a_stale_label() -> None:
    assert len(devices(node(gfd(gpu__count="4")), {"nvidia.com/gpu": 8})) == 8


def test_unhealthy_are_the_last_ones_unless_an_annotation_names_them() -> None:
    capacity, allocatable = {"nvidia.com/gpu": 8}, {"nvidia.com/gpu": 6}
    assert ill(devices(node(gfd()), capacity, allocatable)) == [6, 7]
    assert ill(devices(node(gfd(), {UNHEALTHY: "3, 5"}), capacity, allocatable)) == [3, 5]
    assert ill(devices(node(gfd(), {UNHEALTHY: "3"}), capacity, allocatable)) == [3, 7]
    assert ill(devices(node(gfd(), {UNHEALTHY: "0,1,2"}), capacity, allocatable)) == [0, 1, 2]
    assert ill(devices(node(gfd()), capacity, {})) == list(range(8))


def test_shared_replicas_are_not_gpus() -> None:
    shared = gfd(gpu__count="2", gpu__replicas="4", gpu__sharing_strategy="time-slicing")
    shared["nvidia.com/gpu.product"] = f"{H100}-SHARED"
    found = devices(node(shared), {"nvidia.com/gpu": 8}, {"nvidia.com/gpu": 4})
    assert [device.model for device in found] == [H100, H100]
    assert ill(found) == [1]
    assert node_replicas(node(shared)) == 4


def test_replicas_without_sharing_are_one() -> None:
    assert node_replicas(node(gfd(gpu__replicas="1", gpu__sharing_strategy="none"))) == 1
    assert node_replicas(node(gfd(gpu__replicas="0", gpu__sharing_strategy="mps"))) == 1
    assert node_replicas(node()) == 1


def test_renamed_replicas_are_counted_elsewhere() -> None:
    shared = gfd(gpu__count="2", gpu__replicas="4", gpu__sharing_strategy="mps")
    found = devices(node(shared), {"nvidia.com/gpu.shared": 8})
    assert [device.mig for device in found] == ["static", "static"]


def test_mixed_mig_shows_the_cut_gpus_as_static() -> None:
    found = devices(
        node(gfd(gpu__count="4", mig__strategy="mixed")), {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 21}
    )
    assert [device.mig for device in found] == ["", "static", "static", "static"]
    only_cut = devices(node(gfd(gpu__count="2", mig__strategy="mixed")), {"nvidia.com/mig-1g.10gb": 14})
    assert [device.mig for device in only_cut] == ["static", "static"]


def test_single_mig_makes_every_instance_a_device() -> None:
    labels = gfd(gpu__count="14", mig__strategy="single")
    labels["nvidia.com/gpu.product"] = f"{H100}-MIG-1g.10gb"
    labels["nvidia.com/gpu.memory"] = "9984"
    found = devices(node(labels), {"nvidia.com/gpu": 14}, {"nvidia.com/gpu": 13})
    assert len(found) == 14
    assert {(device.model, device.memory_mib, device.mig) for device in found} == {(f"{H100}-MIG-1g.10gb", 9984, "")}
    assert ill(found) == [13]


def test_the_traces_own_names() -> None:
    found = devices(node({"alibabacloud.com/gpu-card-model": "V100M32"}), {"alibabacloud.com/gpu-count": 2})
    assert found == (Device(0, "V100M32", 32768), Device(1, "V100M32", 32768))


def test_the_layout_annotation_knows_most() -> None:
    second = '{"model":"NVIDIA-L40S","count":2,"island":1,"numa":1,"mig":"dynamic"}'
    layout = f'[{{"model":"A","memory":100,"count":1}},{second}]'
    found = devices(node(gfd(), {LAYOUT: layout, UNHEALTHY: "1"}), {"nvidia.com/gpu": 3}, {"nvidia.com/gpu": 2})
    assert found == (
        Device(0, "A", 100),
        Device(1, "NVIDIA-L40S", 46068, False, 1, 1, "dynamic"),
        Device(2, "NVIDIA-L40S", 46068, True, 1, 1, "dynamic"),
    )


@pytest.mark.parametrize(
    ("broken", "path"),
    [
        (node(gfd(gpu__memory="lots")), "metadata.labels.nvidia.com/gpu.memory"),
        (node(gfd(gpu__replicas="-2")), "metadata.labels.nvidia.com/gpu.replicas"),
        (node(gfd(), {UNHEALTHY: "8"}), f"metadata.annotations.{UNHEALTHY}"),
        (node(gfd(), {UNHEALTHY: "all"}), f"metadata.annotations.{UNHEALTHY}"),
        (node(gfd(), {LAYOUT: "{"}), f"metadata.annotations.{LAYOUT}"),
        (node(gfd(), {LAYOUT: '[{"model":"A"}]'}), f"metadata.annotations.{LAYOUT}"),
        (node(gfd(), {LAYOUT: '[{"model":"A","count":-1}]'}), f"metadata.annotations.{LAYOUT}"),
        (node(gfd(), {LAYOUT: '[{"model":"A","count":1,"mig":"x"}]'}), f"metadata.annotations.{LAYOUT}"),
    ],
)
def test_broken_labels_and_annotations_are_named(broken: Node, path: str) -> None:
    with pytest.raises(InputError) as caught:
        devices(broken, {"nvidia.com/gpu": 8})
    assert (caught.value.object, caught.value.path) == ("Node n", path)
    assert caught.value.remedy


def test_an_absurd_count_does_not_fill_the_memory() -> None:
    with pytest.raises(InputError, match="more than 256 GPUs"):
        devices(node(), {"nvidia.com/gpu": 10**15})


RESOURCES = ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"]


@given(
    st.dictionaries(
        st.sampled_from(
            ["gpu.product", "gpu.count", "gpu.memory", "gpu.replicas", "gpu.sharing-strategy", "mig.strategy"]
        ),
        st.sampled_from(["", "mixed", "single", "mps", "3", "0", "x"]),
    ),
    st.dictionaries(st.sampled_from([LAYOUT, UNHEALTHY]), st.text(alphabet='[]{}",:model count0123', max_size=30)),
    st.dictionaries(
        st.sampled_from(RESOURCES),
        st.integers(0, 9),
    ),
    st.integers(0, 9),
)
def test_any_node_has_sound_devices_or_an_input_error(
    labels: dict[str, str], annotations: dict[str, str], capacity: dict[str, int], missing: int
) -> None:
    some = node({f"nvidia.com/{name}": value for name, value in labels.items()}, annotations)
    allocatable = {name: max(0, amount - missing) for name, amount in capacity.items()}
    try:
        found = devices(some, capacity, allocatable)
    except InputError:
        return
    assert [device.index for device in found] == list(range(len(found)))
