"""A pod's effective request and a node's quantities, as Kubernetes counts them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.model.errors import InputError
from windlass.model.meta import ObjectMeta
from windlass.model.node import Node, NodeStatus
from windlass.model.pod import Container, Pod, PodLevelResources, PodSpec, RawQuantity, ResourceRequirements
from windlass.model.quantity import parse_quantity
from windlass.model.requests import (
    MAX_POD_REQUEST,
    format_amount,
    is_extended_resource,
    node_quantities,
    pod_requests,
)

Quantities = dict[str, RawQuantity]


def container(
    requests: Quantities | None = None, limits: Quantities | None = None, *, sidecar: bool = False
) -> Container:
    resources = ResourceRequirements(requests=requests or {}, limits=limits or {})
    return Container(resources=resources, restart_policy="Always" if sidecar else "")


def pod(*containers: Container, init: tuple[Container, ...] = (), **spec: object) -> Pod:
    meta = ObjectMeta(name="p", namespace="team")
    return Pod(metadata=meta, spec=PodSpec(containers=containers, init_containers=init, **spec))  # type: ignore[arg-type]


def node(capacity: Quantities, allocatable: Quantities | None = None) -> Node:
    status = NodeStatus(capacity=capacity, allocatable=allocatable or {})
    return Node(metadata=ObjectMeta(name="n"), status=status)


def test_units() -> None:
    asked = container({"cpu": "1.5", "memory": "1Gi"}, {"nvidia.com/gpu": 2})
    assert pod_requests(pod(asked)) == {"cpu": 1500, "memory": 2**30, "nvidia.com/gpu": 2, "pods": 1}


def test_a_pod_that_asks_for_nothing_still_is_a_pod() -> None:
    assert pod_requests(pod()) == {"pods": 1}
    assert pod_requests(pod(container({"cpu": 0}, {"nvidia.com/gpu": "0"}))) == {"pods": 1}


def test_a_limit_is_the_default_of_its_request() -> None:
    assert pod_requests(pod(container({"cpu": "1"}, {"cpu": "2", "memory": "1k"}))) == {
        "cpu": 1000,
        "memory": 1000,
        "pods": 1,
    }


def test_an_init_container_counts_only_where_it_needs_more() -> None:
    small, large = container({"cpu": "1", "memory": "10"}), container({"cpu": "3", "memory": "1"})
    assert pod_requests(pod(small, init=(large,))) == {"cpu": 3000, "memory": 10, "pods": 1}


def test_sidecars_count_beside_what_starts_after_them_only() -> None:
    before, after = container({"cpu": "6"}), container({"cpu": "4"})
    sidecar = container({"cpu": "2"}, sidecar=True)
    assert pod_requests(pod(container({"cpu": "1"}), init=(before, sidecar)))["cpu"] == 6000
    assert pod_requests(pod(container({"cpu": "1"}), init=(sidecar, before)))["cpu"] == 8000
    assert pod_requests(pod(container({"cpu": "5"}), init=(sidecar, after)))["cpu"] == 7000


def test_overhead_comes_on_top_of_everything() -> None:
    asked = pod(container({"cpu": "1"}), init=(container({"cpu": "3"}),), overhead={"cpu": "250m"})
    assert pod_requests(asked)["cpu"] == 3250


def test_requests_at_the_pods_level_replace_those_of_containers() -> None:
    level = PodLevelResources(requests={"cpu": "4"}, limits={"cpu": "8", "memory": "1Gi", "hugepages-2Mi": "4Mi"})
    asked = pod(container({"cpu": "9", "memory": "1Mi"}), resources=level, overhead={"cpu": "1"})
    assert pod_requests(asked) == {"cpu": 5000, "memory": 2**20, "hugepages-2Mi": 2**22, "pods": 1}


@pytest.mark.parametrize(
    ("asked", "path", "words", "code"),
    [
        (
            container(limits={"nvidia.com/gpu": "0.5"}),
            "limits.nvidia.com/gpu",
            "integer",
            "FRACTIONAL_GPU_REQUEST",
        ),
        (
            container(limits={"nvidia.com/gpu": "500m"}),
            "limits.nvidia.com/gpu",
            "integer",
            "FRACTIONAL_GPU_REQUEST",
        ),
        (
            container(limits={"nvidia.com/gpu": 1.5}),
            "limits.nvidia.com/gpu",
            "integer",
            "FRACTIONAL_GPU_REQUEST",
        ),
        (
            container({"nvidia.com/gpu": 1}),
            "requests.nvidia.com/gpu",
            "without a limit",
            "REQUESTS_NE_LIMITS",
        ),
        (
            container({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 2}),
            "requests.nvidia.com/gpu",
            "equal",
            "REQUESTS_NE_LIMITS",
        ),
        (
            container({"hugepages-2Mi": "2Mi"}),
            "requests.hugepages-2Mi",
            "without a limit",
            "REQUESTS_NE_LIMITS",
        ),
        (container({"cpu": "2"}, {"cpu": "1"}), "requests.cpu", "above its limit", "INVALID_OBJECT"),
        (container({"cpu": "-1"}), "requests.cpu", "negative", "INVALID_OBJECT"),
        (
            container({"memory": "9e18"}, {"memory": "1e19"}),
            "limits.memory",
            "too large",
            "INVALID_OBJECT",
        ),
        (container({"memory": "12 GB"}), "requests.memory", "not a quantity", "INVALID_OBJECT"),
    ],
)
@pytest.mark.parametrize("place", ["containers", "initContainers"])
def test_what_the_api_server_refuses(asked: Container, path: str, words: str, code: str, place: str) -> None:
    fine = container({"cpu": "1"})
    broken = pod(fine, asked) if place == "containers" else pod(fine, init=(fine, asked))
    with pytest.raises(InputError, match=words) as caught:
        pod_requests(broken)
    assert caught.value.object == "Pod team/p"
    assert caught.value.path == f"spec.{place}[1].resources.{path}"
    assert caught.value.code == code
    assert caught.value.remedy


def test_gpus_can_not_be_asked_for_at_the_pods_level() -> None:
    level = PodLevelResources(limits={"nvidia.com/gpu": 1})
    with pytest.raises(InputError) as caught:
        pod_requests(pod(container(), resources=level))
    assert caught.value.path == "spec.resources.limits.nvidia.com/gpu"


def test_a_sum_beyond_63_bits_is_refused() -> None:
    half = container({"memory": "5E"})
    with pytest.raises(InputError, match="requests of memory add up to more than 2"):
        pod_requests(pod(half, half))


def test_which_resources_are_extended() -> None:
    assert is_extended_resource("nvidia.com/gpu")
    assert not any(map(is_extended_resource, ["cpu", "hugepages-2Mi", "kubernetes.io/x", "a.kubernetes.io/x"]))


NAMES = st.sampled_from(["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"])


@st.composite
def containers(draw: st.DrawFn) -> Container:
    names = draw(st.sets(NAMES, max_size=3))
    requests: Quantities = {}
    limits: Quantities = {}
    for name in sorted(names):
        amount = draw(st.integers(0, 9))
        if name == "nvidia.com/gpu" or draw(st.booleans()):
            limits[name] = amount
        else:
            requests[name] = f"{amount}00m" if name == "cpu" else amount
    return container(requests, limits, sidecar=draw(st.booleans()))


def needs(asked: Container, name: str) -> int:
    raw = asked.resources.requests.get(name, asked.resources.limits.get(name, 0))
    return int(parse_quantity(raw) * (1000 if name == "cpu" else 1))


def slow_request(asked: Pod, name: str) -> int:
    """Plays the start of the pod and notes the most that it ever needs at one moment."""
    running = moment = peak = 0
    for item in asked.spec.init_containers:
        moment = running + needs(item, name)
        peak = max(peak, moment)
        if item.restart_policy == "Always":
            running = moment
    everything = running + sum(needs(item, name) for item in asked.spec.containers)
    overhead = int(parse_quantity(asked.spec.overhead.get(name, 0)) * (1000 if name == "cpu" else 1))
    return max(peak, everything) + overhead


@given(
    st.lists(containers(), max_size=3),
    st.lists(containers(), max_size=4),
    st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(0, 3)),
)
def test_the_effective_request_is_the_peak_of_the_pods_life(
    main: list[Container], init: list[Container], overhead: dict[str, int]
) -> None:
    asked = pod(*main, init=tuple(init), overhead=overhead)
    expected = {name: slow_request(asked, name) for name in ("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu")}
    assert pod_requests(asked) == {**{name: amount for name, amount in expected.items() if amount}, "pods": 1}


def test_allocatable_defaults_to_capacity_and_capacity_to_allocatable() -> None:
    assert node_quantities(node({"cpu": 2})) == ({"cpu": 2000}, {"cpu": 2000})
    capacity, allocatable = node_quantities(node({"cpu": 2}, {"cpu": 1, "pods": "110"}))
    assert capacity == {"cpu": 2000, "pods": 110}
    assert allocatable == {"cpu": 1000, "pods": 110}


def test_sums_of_what_nodes_have_fit_into_64_bits() -> None:
    _, allocatable = node_quantities(node({"memory": "5Ei"}))
    assert allocatable["memory"] * 5000 < 2**63
    assert allocatable["memory"] >= MAX_POD_REQUEST, "a request is capped, too, and still fits"


@pytest.mark.parametrize(
    ("broken", "path"),
    [
        (node({"nvidia.com/gpu": "-1"}), "status.capacity.nvidia.com/gpu"),
        (node({"nvidia.com/gpu": 8}, {"nvidia.com/gpu": 1.5}), "status.allocatable.nvidia.com/gpu"),
        (node({"cpu": 1}, {"cpu": 2}), "status.allocatable.cpu"),
        (node({"memory": "lots"}), "status.capacity.memory"),
    ],
)
def test_impossible_nodes(broken: Node, path: str) -> None:
    with pytest.raises(InputError) as caught:
        node_quantities(broken)
    assert (caught.value.object, caught.value.path) == ("Node n", path)


def test_amounts_are_printed_as_kubernetes_would() -> None:
    assert format_amount("cpu", 1500) == "1500m"
    assert format_amount("cpu", 2000) == "2"
    assert format_amount("memory", 2**31) == "2Gi"
    assert format_amount("nvidia.com/gpu", 8000) == "8000"
