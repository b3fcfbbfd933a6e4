"""Kueue's topology annotations, and what a pod counts against quota."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.model.errors import InputError
from windlass.model.meta import ObjectMeta
from windlass.model.pod import Container, Pod, PodSpec, ResourceRequirements
from windlass.model.quota import format_quota, parse_quota, quota_requests
from windlass.model.topology_request import topology_request_from_annotations
from windlass.model.workload import TopologyRequest


def annotations(**values: str) -> dict[str, str]:
    return {f"kueue.x-k8s.io/podset-{name.replace('_', '-')}": value for name, value in values.items()}


@pytest.mark.parametrize(
    ("asked", "request_"),
    [
        ({}, None),
        ({"app": "x"}, None),
        (annotations(required_topology="rack"), TopologyRequest("required", "rack")),
        (
            annotations(preferred_topology="rack", group_name="g"),
            TopologyRequest("preferred", "rack", group="g"),
        ),
        (annotations(unconstrained_topology="true"), TopologyRequest("unconstrained")),
        (annotations(unconstrained_topology="false"), None),
        (
            annotations(required_topology="z", slice_required_topology="rack", slice_size="8"),
            TopologyRequest("required", "z", "rack", 8),
        ),
        (
            annotations(
                required_topology="z",
                slice_required_topology_constraints='[{"topology":"b","size":8},{"topology":"r","size":2}]',
            ),
            TopologyRequest("required", "z", "b", 8, (("r", 2),)),
        ),
        (
            annotations(slice_required_topology="rack", slice_size="2"),
            TopologyRequest("unconstrained", "", "rack", 2),
        ),
    ],
)
def test_annotations(asked: dict[str, str], request_: TopologyRequest | None) -> None:
    assert topology_request_from_annotations(asked) == request_


@pytest.mark.parametrize(
    "asked",
    [
        annotations(required_topology="a", preferred_topology="b"),
        annotations(slice_required_topology="rack"),
        annotations(slice_required_topology="rack", slice_size="x"),
        annotations(slice_required_topology_constraints="{}"),
        annotations(slice_required_topology_constraints='[{"topology":"b"}]'),
        annotations(slice_required_topology_constraints='[{"topology":"b","size":8},{"topology":"r","size":3}]'),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_annotation(asked: dict[str, str]) -> None:
    with pytest.raises(InputError) as caught:
        topology_request_from_annotations(asked)
    assert caught.value.path.startswith("metadata.annotations")
    assert caught.value.remedy


def pod(gpus: str = "", **marks: str) -> Pod:
    limits: dict[str, str | int | float] = {"nvidia.com/gpu": gpus} if gpus else {}
    container = Container(resources=ResourceRequirements(limits=limits, requests={"cpu": "1"}))
    named = {name.replace("_", "-"): value for name, value in marks.items()}
    return Pod(metadata=ObjectMeta(name="p", annotations=named), spec=PodSpec(containers=(container,)))


@pytest.mark.parametrize(
    ("one", "device_memory", "milli"),
    [
        (pod("2"), 0, 2000),
        (pod(gpu_fraction="0.5"), 0, 500),
        (pod(gpu_fraction="0.5", gpu_fraction_num_devices="2"), 0, 1000),
        (pod(gpu_memory="10000"), 40000, 250),
        (pod(gpu_memory="10001"), 40000, 251),
        (pod(gpu_memory="10000"), 0, 1000),
        (pod(gpu_memory="50000"), 40000, 1000),
        (pod(), 0, None),
    ],
)
def test_a_share_counts_as_that_share(one: Pod, device_memory: int, milli: int | None) -> None:
    requests = quota_requests(one, device_memory)
    assert requests.get("nvidia.com/gpu") == milli
    assert requests["cpu"] == 1000


@given(st.sampled_from(["cpu", "nvidia.com/gpu", "memory", "example.com/x"]), st.integers(0, 10**9))
def test_quota_goes_out_and_in(resource: str, amount: int) -> None:
    assert parse_quota(resource, format_quota(resource, amount)) == amount
