"""ResourceQuota, LimitRange and PodDisruptionBudget: what they allow, in Kubernetes' own arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
from tests.model.kueue_samples import changed, decoded
from tests.model.owner_samples import BUDGET, LIMIT_RANGE, RESOURCE_QUOTA

from windlass.model.codec import decode_object
from windlass.model.disruption import disruptions_allowed
from windlass.model.errors import InputError
from windlass.model.meta import ObjectMeta
from windlass.model.namespace_limits import exceeded_quota_message, limit_range_violation, quota_left
from windlass.model.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from windlass.model.unstructured import Unstructured


def test_what_is_left_of_a_quota() -> None:
    [quota] = decoded(RESOURCE_QUOTA)
    assert quota_left(quota) == {"nvidia.com/gpu": 2000, "cpu": 3500}


def test_beyond_a_quota_in_the_api_servers_words() -> None:
    [quota] = decoded(RESOURCE_QUOTA)
    assert exceeded_quota_message(quota, {"nvidia.com/gpu": 2000, "cpu": 3500, "memory": 9}) == ""
    message = exceeded_quota_message(quota, {"nvidia.com/gpu": 4000})
    assert message == (
        "exceeded quota: train, requested: requests.nvidia.com/gpu=4, "
        "used: requests.nvidia.com/gpu=6, limited: requests.nvidia.com/gpu=8"
    )


def test_a_quota_with_scopes_is_not_judged() -> None:
    [quota] = decoded(changed(RESOURCE_QUOTA, "spec/scopes", ["BestEffort"]))
    assert exceeded_quota_message(quota, {"nvidia.com/gpu": 10**9}) == ""


def pod(cpu: str, gpus: str = "1") -> Pod:
    resources = ResourceRequirements(requests={"cpu": cpu}, limits={"nvidia.com/gpu": gpus})
    return Pod(spec=PodSpec(containers=(Container(resources=resources),)))


def test_limits_of_containers_and_pods() -> None:
    ranges = decoded(LIMIT_RANGE)
    assert limit_range_violation(ranges, pod("300m")) == ""
    assert "spec.containers[0].resources.requests.cpu" in limit_range_violation(ranges, pod("301m"))
    assert "maximum of 300m" in limit_range_violation(ranges, pod("301m"))
    large = changed(LIMIT_RANGE, "spec/limits/1/min", {"nvidia.com/gpu": "2"})
    assert "below the minimum of 2 per pod" in limit_range_violation(decoded(large), pod("1m", "1"))


def member(name: str, node: str = "n", phase: str = "Running") -> Pod:
    metadata = ObjectMeta(name=name, namespace="eng", labels={"app": "a"})
    return Pod(metadata=metadata, spec=PodSpec(node_name=node), status=PodStatus(phase=phase))


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": "50%"}, 2),
        ({"minAvailable": 3}, 1),
        ({"minAvailable": "51%"}, 1),
        ({"maxUnavailable": 1}, 1),
        ({"maxUnavailable": "25%"}, 1),
        ({"maxUnavailable": 0}, 0),
        ({}, 0),
    ],
)
def test_how_many_may_go(spec: Unstructured, allowed: int) -> None:
    tree = changed(BUDGET, "spec", {**spec, "selector": {"matchLabels": {"app": "a"}}})
    [budget] = decoded(tree)
    pods = [member(str(number)) for number in range(4)] + [member("done", phase="Succeeded")]
    assert disruptions_allowed(budget, pods) == allowed


def test_a_pod_that_waits_counts_against_the_budget() -> None:
    [budget] = decoded(changed(BUDGET, "spec/minAvailable", 2))
    assert disruptions_allowed(budget, [member("a"), member("b"), member("c", node="")]) == 0


def test_the_status_knows_best() -> None:
    [budget] = decoded({**BUDGET, "status": {"disruptionsAllowed": 7}})
    assert disruptions_allowed(budget, []) == 7


@pytest.mark.parametrize(
    ("tree", "path", "value", "where"),
    [
        (BUDGET, "spec/minAvailable", "half", "spec.minAvailable"),
        (BUDGET, "spec/minAvailable", "101%", "spec.minAvailable"),
        (BUDGET, "spec/maxUnavailable", 1, "spec.maxUnavailable"),
        (RESOURCE_QUOTA, "spec/hard/cpu", "many", "spec.hard.cpu"),
        (LIMIT_RANGE, "spec/limits/0/max/cpu", "many", "spec.limits[0].max.cpu"),
    ],
)
def test_the_wrong_field_is_named(tree: Unstructured, path: str, value: Any, where: str) -> None:
    with pytest.raises(InputError) as caught:
        decode_object(changed(tree, path, value))
    assert caught.value.path == where
