"""A store that has seen nodes change, one update at a time, is the store that has only seen the last ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from windlass.cluster.delta import Deleted, Put
from windlass.cluster.node_state import MODEL
from windlass.cluster.node_state_builder import read_node
from windlass.cluster.store import Store
from windlass.model.codec import decode_object
from windlass.model.decision import DeviceGrant
from windlass.model.device import NODE_ANNOTATIONS, has_unknown_gpus
from windlass.model.meta import ObjectMeta
from windlass.model.names.nvidia import GPU_PRODUCT_LABEL, GPU_REPLICAS_LABEL
from windlass.model.names.windlass import (
    ALLOCATED_DEVICES_ANNOTATION,
    DEVICES_ANNOTATION,
    DEVICES_LAYOUT_ANNOTATION,
    TOPOLOGY_MANAGER_ANNOTATION,
    UNHEALTHY_DEVICES_ANNOTATION,
)
from windlass.model.node import Node, NodeStatus
from windlass.model.pod import Pod

TWO_NUMA_NODES = json.dumps([{"model": "H100", "memory": 81559, "count": 2, "numa": at} for at in range(2)])
annotations = st.fixed_dictionaries(
    {},
    optional={
        DEVICES_LAYOUT_ANNOTATION: st.just(TWO_NUMA_NODES),
        TOPOLOGY_MANAGER_ANNOTATION: st.sampled_from(("single-numa-node", "restricted", "none")),
        UNHEALTHY_DEVICES_ANNOTATION: st.sampled_from(("0", "1,2")),
        "example.com/unrelated": st.sampled_from(("a", "b")),
    },
)
labels = st.fixed_dictionaries(
    {}, optional={GPU_PRODUCT_LABEL: st.just("H100"), GPU_REPLICAS_LABEL: st.sampled_from(("1", "2"))}
)
nodes = st.builds(
    lambda name, labels, annotations, gpus: Node(
        metadata=ObjectMeta(name=name, labels=labels, annotations=annotations),
        status=NodeStatus(
            capacity={"cpu": "8", "nvidia.com/gpu": str(gpus)}, allocatable={"cpu": "8", "nvidia.com/gpu": str(gpus)}
        ),
    ),
    st.sampled_from(("a", "b")),
    labels,
    annotations,
    st.sampled_from((4, 8)),
)


def arrays(store: Store) -> dict[str, object]:
    snapshot = store.snapshot(1)
    found: dict[str, object] = {name: array.tolist() for name, array in snapshot.node_state._asdict().items()}
    models = [snapshot.gpu_models.names[code] for code in snapshot.node_state.device_info[:, MODEL]]
    found["device_info"] = models, snapshot.node_state.device_info[:, MODEL + 1 :].tolist()  # codes are by first sight
    found["names"] = snapshot.nodes.names
    found["unknown"] = snapshot.nodes.gpus_unknown.tolist()
    return found


@given(st.lists(nodes, min_size=1, max_size=6))
def test_changes_one_by_one_give_what_the_last_state_gives(updates: list[Node]) -> None:
    seen = Store()
    for node in updates:
        seen.apply([Put(node)])
        seen.snapshot(1)  # what is changed after this is a change of rows
    fresh = Store()
    fresh.apply([Put(node) for node in {node.name: node for node in updates}.values()])
    assert arrays(seen) == arrays(fresh)


def bound_pod(name: str, gpus: int, age: int, said: dict[str, str]) -> Pod:
    pod = decode_object(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": name,
                "creationTimestamp": f"2026-01-01T00:00:0{age}Z",
                "annotations": said,
            },
            "spec": {
                "nodeName": "a",
                "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}],
            },
        }
    )
    assert isinstance(pod, Pod)
    return pod


device_lists = st.lists(st.integers(0, 7), min_size=1, max_size=2, unique=True).map(
    lambda found: (len(found), ",".join(map(str, found)))
)
bound_pods = st.builds(
    lambda name, claimed, reported: bound_pod(
        name,
        claimed[0],
        "yxz".index(name),
        {DEVICES_ANNOTATION: claimed[1]} | ({ALLOCATED_DEVICES_ANNOTATION: reported[1]} if reported else {}),
    ),
    st.sampled_from(("x", "y", "z")),
    device_lists,
    st.none() | device_lists,
)


def devices_by_pod(store: Store) -> dict[str, object]:
    rows = store.snapshot(1).pods
    return {rows.keys[row]: rows.grants[row] for row in range(len(rows.alive)) if rows.alive[row]}


@given(st.lists(nodes | bound_pods, min_size=2, max_size=8))
def test_bound_pods_have_the_devices_that_the_last_state_gives(updates: list[Node | Pod]) -> None:
    """Nodes change after pods came that name their devices; several pods may name the same ones."""
    seen = Store()
    for update in updates:
        seen.apply([Put(update)])
        seen.snapshot(1)
    fresh = Store()
    fresh.apply(
        [Put(update) for update in {(type(update), update.metadata.name): update for update in updates}.values()]
    )
    assert devices_by_pod(seen) == devices_by_pod(fresh)
    assert arrays(seen) == arrays(fresh)


def test_a_device_goes_to_the_pod_that_reports_it_and_back_to_the_one_that_claims_it() -> None:
    gpu_node = Node(metadata=ObjectMeta(name="a"), status=NodeStatus(allocatable={"nvidia.com/gpu": "4"}))
    claims = bound_pod("x", 1, 1, {DEVICES_ANNOTATION: "1"})
    reports = bound_pod("y", 1, 2, {DEVICES_ANNOTATION: "0", ALLOCATED_DEVICES_ANNOTATION: "1"})
    store = Store()
    for update in (gpu_node, claims, reports):
        store.apply([Put(update)])
        store.snapshot(1)
    assert devices_by_pod(store) == {"team/x": (DeviceGrant(0),), "team/y": (DeviceGrant(1),)}
    store.apply([Deleted("Pod", "team/y")])
    assert devices_by_pod(store) == {"team/x": (DeviceGrant(1),)}


class Recorded(Mapping[str, str]):
    """Annotations that remember which were asked for."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values_by_name = values
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        return self.values_by_name[name]

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return self.values_by_name.get(name, default)

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return name in self.values_by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)


@given(nodes)
def test_every_annotation_that_placement_reads_counts_as_a_change(node: Node) -> None:
    recorded = Recorded(dict(node.metadata.annotations))
    replace = msgspec.structs.replace
    node = replace(node, metadata=replace(node.metadata, annotations=recorded))
    read_node(node)
    has_unknown_gpus(node)
    assert recorded.asked
    assert recorded.asked <= set(NODE_ANNOTATIONS)
