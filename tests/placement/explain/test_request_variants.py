"""Copies of a request with one thing changed: amounts are taken off the right container, and nothing else changes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reference.park import GPU, pod
from windlass.model.pod import Container, Pod, ResourceRequirements, Toleration
from windlass.model.workload import PodSet, TopologyRequest, Workload
from windlass.placement.explain import request_variants as variants


def containers(*cpus: str | None, **more: Any) -> Pod:
    """A pod with a container for each amount of CPU, as requests; None: a container without any."""
    made = tuple(
        Container(name=f"c{at}", resources=ResourceRequirements(requests={"cpu": cpu} if cpu else {}))
        for at, cpu in enumerate(cpus)
    )
    found: Pod = pod("p", containers=made, **more)
    return found


def cpus(changed: Pod | None) -> list[str | None]:
    assert changed is not None
    return [container.resources.requests.get("cpu") for container in changed.spec.containers]


@pytest.mark.parametrize(
    ("before", "total", "after"),
    [
        (("4",), 3000, ["3"]),
        (("4", "2"), 5000, ["3", "2"]),
        (("2", "4"), 5000, ["2", "3"]),
        (("3", "3"), 4000, ["1", "3"]),
        (("4", "1"), 1000, ["0", "1"]),
        (("4", None), 3500, ["3500m", None]),
        (("4",), 1, ["1m"]),
    ],
)
def test_the_largest_container_gives_and_of_equals_the_first(
    before: tuple[str | None, ...], total: int, after: list[str | None]
) -> None:
    assert cpus(variants.with_amount(containers(*before), "cpu", total)) == after


@pytest.mark.parametrize(
    ("before", "total"),
    [(("4",), 4000), (("4",), 5000), (("4",), 0), (("4", "3"), 2000), ((), 0)],
    ids=["equal", "more", "nothing", "less than the others have", "no container"],
)
def test_there_is_no_smaller_request_where_containers_cant_give_it(before: tuple[str, ...], total: int) -> None:
    assert variants.with_amount(containers(*before), "cpu", total) is None


def test_requests_of_the_whole_pod_are_left_alone() -> None:
    whole = containers("4", resources=ResourceRequirements(requests={"cpu": "4"}))
    assert variants.with_amount(whole, "cpu", 2000) is None


def test_init_containers_that_ask_for_more_shrink_to_the_total() -> None:
    init = tuple(
        Container(name=name, resources=ResourceRequirements(requests={"cpu": cpu}))
        for name, cpu in (("large", "4"), ("exact", "3"), ("small", "1"))
    )
    changed = variants.with_amount(containers("4", init_containers=init), "cpu", 3000)
    assert changed is not None
    assert [one.resources.requests["cpu"] for one in changed.spec.init_containers] == ["3", "3", "1"]


def resources_of(changed: Pod | None) -> ResourceRequirements:
    assert changed is not None
    return changed.spec.containers[0].resources


def with_resources(requests: dict[str, str], limits: dict[str, str]) -> Pod:
    resources = ResourceRequirements(requests=requests, limits=limits)
    made: Pod = pod("p", containers=(Container(resources=resources),))
    return made


def test_a_limit_follows_where_it_is_equal_and_stays_where_it_is_not() -> None:
    equal = resources_of(variants.with_amount(with_resources({"cpu": "4"}, {"cpu": "4"}), "cpu", 2000))
    assert (equal.requests, equal.limits) == ({"cpu": "2"}, {"cpu": "2"})
    above = resources_of(variants.with_amount(with_resources({"cpu": "4"}, {"cpu": "8"}), "cpu", 2000))
    assert (above.requests, above.limits) == ({"cpu": "2"}, {"cpu": "8"})
    none = resources_of(variants.with_amount(with_resources({"cpu": "4"}, {"memory": "1Gi"}), "cpu", 2000))
    assert (none.requests, none.limits) == ({"cpu": "2"}, {"memory": "1Gi"})
    alone = resources_of(variants.with_gpus(with_resources({}, {GPU: "4", "cpu": "1"}), 3))
    assert (alone.requests, alone.limits) == ({GPU: "3"}, {GPU: "3", "cpu": "1"})


def test_a_share_shrinks_by_the_annotation_that_the_pod_uses() -> None:
    kai = variants.with_share(pod("p", share="0.5", annotations={"a": "b"}), 250)
    assert kai is not None
    assert kai.metadata.annotations == {"a": "b", "gpu-fraction": "0.25"}
    milli = variants.with_share(pod("p", annotations={"alibabacloud.com/gpu-milli": "500"}), 250)
    assert milli is not None
    assert milli.metadata.annotations == {"alibabacloud.com/gpu-milli": "250"}
    assert variants.with_share(pod("p", 1), 250) is None


def test_selectors_tolerations_and_models_change_alone() -> None:
    made = pod("p", node_selector={"a": "1", "b": "2"}, tolerations=(Toleration("x"),), annotations={"n": "1"})
    assert variants.with_selector(made, "a", "3").spec.node_selector == {"b": "2", "a": "3"}
    assert variants.with_selector(made, "a", None).spec.node_selector == {"b": "2"}
    assert variants.with_selector(made, "c", None) == made
    assert variants.with_tolerations(made, (Toleration("y"),)).spec.tolerations == (Toleration("x"), Toleration("y"))
    assert variants.with_models(made, "T4").metadata.annotations == {
        "n": "1",
        "alibabacloud.com/gpu-card-model": "T4",
    }


def test_one_pod_set_changes_and_the_others_stay() -> None:
    first, second = PodSet("a", 4, pod("p", 1), min_count=3), PodSet("b", 5, pod("q", 2))
    workload = Workload("d/w", "Job", (first, second))
    assert variants.with_count(workload, 0, 2).pod_sets == (
        msgspec.structs.replace(first, count=2, min_count=2),
        second,
    )
    assert variants.with_count(workload, 0, 3).pod_sets[0].min_count == 3
    assert variants.with_count(workload, 1, 2).pod_sets == (first, msgspec.structs.replace(second, count=2))
    other = pod("r", 3)
    assert variants.with_pod(workload, 1, other).pod_sets == (first, msgspec.structs.replace(second, template=other))
    topology = TopologyRequest("required", "rack")
    changed = variants.with_topology(workload, 0, topology)
    assert changed.pod_sets == (msgspec.structs.replace(first, topology=topology), second)
