"""PodGroups of three schedulers become one noun; what they ask for and nobody does here holds them by its path."""

from __future__ import annotations

from typing import Any

import pytest
from tests.model.kueue_samples import changed, decoded
from tests.model.owner_samples import COSCHEDULING, NATIVE, VOLCANO

from windlass.model.codec import PartialObject, decode_object
from windlass.model.errors import InputError
from windlass.model.pod_group import PodGroup, pod_group_from_object
from windlass.model.unstructured import Unstructured
from windlass.model.workload import TopologyRequest


def made(tree: Unstructured) -> PodGroup:
    [wire] = decoded(tree)
    return pod_group_from_object(wire)


def test_coscheduling() -> None:
    group = made(COSCHEDULING)
    assert (group.key, group.api_group, group.min_pods) == ("eng/gang", "scheduling.x-k8s.io", 2)
    assert group.all_or_nothing


def test_volcano_counts_the_minimum_of_its_tasks() -> None:
    group = made(VOLCANO)
    assert (group.api_group, group.min_pods, group.priority_class) == (
        "scheduling.volcano.sh",
        4,
        "system-node-critical",
    )
    assert group.hold == ""
    assert "spec.networkTopology" in made(changed(VOLCANO, "spec/networkTopology", {"mode": "hard"})).hold
    assert made(changed(VOLCANO, "spec/networkTopology", {"mode": "soft"})).hold == ""
    assert "spec.subGroupPolicy" in made(changed(VOLCANO, "spec/subGroupPolicy", [{"name": "a"}])).hold


def test_native() -> None:
    group = made(NATIVE)
    assert (group.api_group, group.min_pods, group.priority) == ("scheduling.k8s.io", 3, 11)
    assert group.topology == TopologyRequest("required", "example.com/rack")
    assert group.preemption_policy == "Never"
    assert group.all_or_nothing


@pytest.mark.parametrize(
    ("mode", "whole"), [({"all": {}}, True), ({"single": {}}, False), ("PodGroup", True), ("Pod", False)]
)
def test_the_mode_of_disruption_in_both_spellings(mode: Any, whole: bool) -> None:
    assert made(changed(NATIVE, "spec/disruptionMode", mode)).all_or_nothing is whole


def test_a_basic_policy_is_no_gang() -> None:
    group = made(changed(NATIVE, "spec/schedulingPolicy", {"basic": {}}))
    assert group.min_pods == 1


@pytest.mark.parametrize(
    ("field", "value"), [("parentCompositePodGroupName", "above"), ("resourceClaims", [{"name": "c"}])]
)
def test_what_native_groups_may_ask_and_is_not_implemented(field: str, value: Any) -> None:
    assert f"spec.{field}" in made(changed(NATIVE, f"spec/{field}", value)).hold


@pytest.mark.parametrize(
    ("tree", "path", "value", "where"),
    [
        (COSCHEDULING, "spec/minMember", -1, "spec.minMember"),
        (COSCHEDULING, "spec/minMember", "two", "spec.minMember"),
        (VOLCANO, "spec/minTaskMember/ps", -1, "spec.minTaskMember.ps"),
        (NATIVE, "spec/schedulingPolicy/gang/minCount", -1, "spec.schedulingPolicy.gang.minCount"),
        (
            NATIVE,
            "spec/schedulingConstraints/topology",
            [{"key": "a"}, {"key": "b"}],
            "spec.schedulingConstraints",
        ),
        (NATIVE, "spec/disruptionMode", 3, "spec.disruptionMode"),
    ],
)
def test_the_wrong_field_is_named(tree: Unstructured, path: str, value: Any, where: str) -> None:
    with pytest.raises(InputError) as caught:
        decode_object(changed(tree, path, value))
    assert caught.value.path.startswith(where)
    assert caught.value.object == "PodGroup eng/gang"


def test_a_group_of_nobody_known_is_another_object() -> None:
    assert isinstance(decode_object(changed(NATIVE, "apiVersion", "example.com/v1")), PartialObject)
    assert isinstance(decode_object(changed(NATIVE, "apiVersion", "")), PartialObject)
