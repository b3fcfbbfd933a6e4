"""The filters run on one pod of a shape for all of them, so they may read only what the key of the shape contains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.placement.test_filter_properties import listers_of

from reference.strategies import affinities, clusters, labels, pods, ports, spreads, tuples
from windlass.cluster.node_columns import NodeColumns
from windlass.cluster.shape import make_shape, read_requests, shape_key
from windlass.model.meta import ObjectMeta
from windlass.model.names import kubernetes, kueue, nvidia, others, windlass
from windlass.model.pod import Container, EphemeralVolume, Pod, PodSpec, Volume
from windlass.placement.filters import static_reasons

replace = msgspec.structs.replace
NAMES = sorted(
    value
    for owner in (kubernetes, kueue, nvidia, others, windlass)
    for value in vars(owner).values()
    if isinstance(value, str) and "/" in value and not value.startswith("alibabacloud.com/")
)
"""Not those that a pod has to write as a number."""
EPHEMERAL = Volume(name="scratch", ephemeral=EphemeralVolume())
notes = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), st.sampled_from(("", "1", "x")), max_size=4)


@st.composite
def drawn_pods(draw):
    """With claims, an ephemeral volume now and then, and annotations."""
    pod = draw(pods(draw(st.sampled_from(("pod", "twin")))))
    volumes = (*pod.spec.volumes, EPHEMERAL) if draw(st.integers(0, 3)) == 0 else pod.spec.volumes
    meta = replace(pod.metadata, annotations=draw(notes))
    return Pod(metadata=meta, spec=replace(pod.spec, volumes=volumes, node_name=""))


@st.composite
def twins(draw, pod):
    """The same pod with other values in any of the fields that a node has nothing to do with, and in some others."""
    spec, affinity = pod.spec, draw(st.none() | affinities)
    if affinity is not None:
        affinity = replace(affinity, node_affinity=spec.affinity.node_affinity if spec.affinity else None)
    elif spec.affinity is not None and spec.affinity.node_affinity is not None:
        affinity = spec.affinity
    changed = {
        "affinity": affinity,
        "containers": (Container(name="other", image="other", ports=draw(tuples(ports, 1))),),
        "host_network": draw(st.booleans()),
        "priority": draw(st.integers(-1, 1)),
        "scheduler_name": draw(st.sampled_from(("", "other"))),
        "topology_spread_constraints": draw(tuples(spreads)),
    }
    meta = ObjectMeta(
        name=draw(st.sampled_from((pod.metadata.name, "other"))),
        namespace=draw(st.sampled_from((pod.metadata.namespace, "blue"))),
        uid=draw(st.sampled_from(("", "uid"))),
        labels=draw(labels(("app", "job", *NAMES[:3]))),
        annotations=draw(notes),
    )
    return Pod(metadata=meta, spec=replace(spec, **changed))


@settings(max_examples=300)
@given(cluster=clusters(with_storage=True), pod=drawn_pods(), data=st.data())
def test_pods_of_one_shape_are_refused_by_the_same_nodes(cluster, pod, data):
    twin = data.draw(twins(pod))
    is_same = make_shape(pod).key == make_shape(twin).key
    event(f"the same shape: {is_same}")
    if is_same:
        nodes, listers = NodeColumns(cluster.nodes), listers_of(cluster)
        first, second = (static_reasons(each, nodes, listers) for each in (pod, twin))
        assert first.tolist() == second.tolist()


class Recorded:
    """A struct that notes which of its fields are read; structs inside it do the same."""

    def __init__(self, value: Any, path: str, read: set[str]) -> None:
        self._value, self._path, self._read = value, path, read

    def __getattr__(self, name: str) -> Any:
        value, path = getattr(self._value, name), f"{self._path}.{name}"
        if isinstance(value, (ObjectMeta, PodSpec)):
            return Recorded(value, path, self._read)
        if name == "annotations":
            return RecordedMap(value, path, self._read)
        self._read.add(path)
        return value


class RecordedMap(Mapping[str, str]):
    def __init__(self, value: dict[str, str], path: str, read: set[str]) -> None:
        self._value, self._path, self._read = value, path, read

    def __getitem__(self, key: str) -> str:
        self._read.add(f"{self._path}[{key}]")
        return self._value[key]

    def __iter__(self) -> Iterator[str]:
        self._read.add(f"{self._path}[*]")
        return iter(self._value)

    def __len__(self) -> int:
        return len(self._value)


@settings(max_examples=150)
@given(cluster=clusters(with_storage=True), pod=drawn_pods())
def test_filters_read_no_field_of_the_pod_that_the_key_leaves_out(cluster, pod):
    in_key, by_filters = set[str](), set[str]()
    shape_key(Recorded(pod, "pod", in_key), *read_requests(pod))  # type: ignore[arg-type]
    static_reasons(Recorded(pod, "pod", by_filters), NodeColumns(cluster.nodes), listers_of(cluster))  # type: ignore[arg-type]
    # The node of a bound pod is no part of its shape, and the pod of a shape has none.
    assert by_filters - in_key <= {"pod.spec.node_name"}
